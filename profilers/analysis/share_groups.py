"""The three shares refined by group: what the stacked bars draw. Sums to :mod:`profilers.analysis.shares` class by class."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.view import View, pct, recode, view
from profilers.rules.taxonomy import GROUPS, IDLE, UNCLASSIFIED, class_of
from profilers.tables import Recording

_COLUMNS = ["share", "device", "class", "group", "time_us", "pct"]
_NAMES = tuple(GROUPS)


def shares_by_group(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per share, device and group that occurs; ``wall`` has an ``idle`` row. Each share of each device sums to 100."""
    v = view(recording)
    group = _codes(v.kernels["group"])
    rows: list[tuple[str, str, str, str, float, float]] = []
    for index, device in enumerate(v.devices):
        mine = np.flatnonzero(v.is_kernel & (v.device == index))
        rows += _rows("device", device, tally.total(group[mine], v.dur[mine], len(_NAMES)), 0.0)
    rows += _operator(v)
    for index, device in enumerate(v.devices):
        share, wall = v.wall_share(index)
        by_group = tally.total(group, share, len(_NAMES))
        rows += _rows("wall", device, by_group, max(wall - by_group.sum(), 0.0))
    return pd.DataFrame(rows, columns=_COLUMNS)


def _codes(groups: pd.Series) -> np.ndarray:
    return recode(groups, _NAMES, UNCLASSIFIED).astype(np.int64)


def _rows(
    share: str, device: str, time_ns: np.ndarray, idle_ns: float
) -> list[tuple[str, str, str, str, float, float]]:
    whole = float(time_ns.sum()) + idle_ns
    if not whole:
        return []
    found = [
        (share, device, class_of(name), name, float(t) / 1e3, pct(float(t), whole))
        for name, t in zip(_NAMES, time_ns, strict=True)
        if t
    ]
    if idle_ns:
        found.append((share, device, IDLE, IDLE, idle_ns / 1e3, pct(idle_ns, whole)))
    return found


def _operator(v: View) -> list[tuple[str, str, str, str, float, float]]:
    rows, time = v.below_the_step
    top = v.operators.iloc[rows]
    if not len(top):
        return []
    device = v.devices[0] if len(v.devices) == 1 else "all" if v.devices else "cpu"
    return _rows("operator", device, tally.total(_codes(top["group"]), time, len(_NAMES)), 0.0)
