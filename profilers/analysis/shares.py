"""Three shares by class, side by side and never mixed: of kernel time, of operator time, of wall time.

* **device**: kernel time by class over total kernel time (the 1,000-kernels study).
* **operator**: host + device time of the operators directly below the step, children included (NonGEMM Bench's metric).
  On a CPU the operator's duration alone.
* **wall**: every instant of the steps (of the span, where no steps were recorded) given to what ran then; an instant
  with several activities is divided equally among them; ``idle`` is the rest.

Each share of each device adds up to 100. ``attention`` keeps its own row here, whatever counts it as GEMM in totals.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis.options import Options
from profilers.analysis.tally import total
from profilers.analysis.view import View, is_cpu, pct, recode, view
from profilers.rules.taxonomy import CLASSES, IDLE, UNCLASSIFIED
from profilers.tables import Recording

_COLUMNS = ["share", "device", "class", "time_us", "pct", "of"]
_Row = tuple[str, str, str, float, float, str]


def shares(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per share, device and class (all five, in the taxonomy's order); ``wall`` has ``idle`` last."""
    v = view(recording)
    rows: list[_Row] = []
    for index, device in enumerate(v.devices):
        mine = np.flatnonzero(v.is_kernel & (v.device == index))
        rows += _rows("device", device, total(v.cls[mine].astype(np.int64), v.dur[mine], len(CLASSES)), "kernel time")
    rows += _operator(v)
    for index, device in enumerate(v.devices):
        share, wall = v.wall_share(index)
        by_class = total(v.cls.astype(np.int64), share, len(CLASSES))
        of = "step wall time" if v.windows(index)[0].size else "span, first start to last end"
        rows += _rows("wall", device, np.r_[by_class, max(wall - by_class.sum(), 0.0)], of)
    return pd.DataFrame(rows, columns=_COLUMNS)


def _rows(share: str, device: str, time_ns: np.ndarray, of: str) -> list[_Row]:
    whole = float(time_ns.sum())
    if not whole:
        return []
    names = (*CLASSES, IDLE)[: len(time_ns)]
    return [(share, device, c, float(t) / 1e3, pct(float(t), whole), of) for c, t in zip(names, time_ns, strict=True)]


def _operator(v: View) -> list[_Row]:
    """The recording's operators are of one host; with several devices their row says ``all``."""
    rows, time = v.below_the_step
    top = v.operators.iloc[rows]
    if not len(top):
        return []
    device = v.devices[0] if len(v.devices) == 1 else "all" if v.devices else "cpu"
    on_cpu = is_cpu(device)
    of = "host time of the operators directly below the step"
    of = of if on_cpu else "host + device time of the operators directly below the step"
    classes = recode(top["class"], CLASSES, UNCLASSIFIED).astype(np.int64)
    return _rows("operator", device, total(classes, time, len(CLASSES)), of)
