"""Operator time by operator name: on the host without children, on the device by what it launched itself."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.view import is_cpu, recode, view
from profilers.rules.taxonomy import CLASSES, UNCLASSIFIED
from profilers.tables import Recording


def operators(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per operator name, largest share first. ``self_us`` and ``device_us`` leave children out, so each adds up
    over the table, and ``pct`` of their sum adds up to 100; ``total_us`` is host time with children.

    On a CPU run an operator's own time is its kernel, so ``device_us`` is 0.
    """
    v = view(recording)
    frame = v.operators
    names = tally.texts(frame["name"])
    code, size = tally.codes(frame["name"]), names.size
    own = tally.total(code, frame["self_ns"].to_numpy(), size)
    whole = tally.total(code, frame["dur_ns"].to_numpy(), size)
    calls = tally.count(code, size)
    on_device = np.array([not is_cpu(device) for device in v.devices] + [False])[v.device]
    linked = np.flatnonzero(v.believed & (v.operator_row >= 0))
    of = code[v.operator_row[linked]]
    device = tally.total(of, np.where(on_device[linked], v.dur[linked], 0), size)
    launched = tally.total(of, v.is_kernel[linked], size)
    both = own + device
    order = np.flatnonzero(calls)
    order = order[np.argsort(-both[order], kind="stable")]
    # Weighed by time with children, so that an operator that only calls others has the class of its calls.
    weight = frame["dur_ns"].to_numpy() + frame["device_ns"].to_numpy()
    group = tally.dominant(code, tally.codes(frame["group"]), weight, size)[order]
    cls = tally.dominant(code, recode(frame["class"], CLASSES, UNCLASSIFIED).astype(np.int64), weight, size)[order]
    return tally.frame(
        name=names[order],
        group=tally.texts(frame["group"])[group],
        class_=np.array(CLASSES, object)[cls],
        calls=calls[order],
        self_us=own[order] / 1e3,
        device_us=device[order] / 1e3,
        total_us=whole[order] / 1e3,
        pct=100 * both[order] / max(both.sum(), 1),
        kernels_per_call=launched[order] / calls[order],
    )
