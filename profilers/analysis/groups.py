"""Kernel time by class and group, with the largest kernel of each."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.view import view
from profilers.rules.taxonomy import CLASSES
from profilers.tables import Recording


def groups(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per class and group that occurs, longest first; ``pct`` of kernel time adds up to 100."""
    v = view(recording)
    rows = v.rows
    group_names, kernel_names = tally.texts(v.kernels["group"]), tally.texts(v.kernels["name"])
    group, name, dur = tally.codes(v.kernels["group"])[rows], tally.codes(v.kernels["name"])[rows], v.dur[rows]
    group = np.where(group < 0, group_names.size - 1, group)
    width = group_names.size
    pair = v.cls[rows] * width + group
    size = len(CLASSES) * width
    time, calls = tally.total(pair, dur, size), tally.count(pair, size)
    top = tally.dominant(pair, name, dur, size)
    present = np.flatnonzero(calls)
    present = present[np.argsort(-time[present], kind="stable")]
    return tally.frame(
        class_=[CLASSES[index // width] for index in present],
        group=group_names[present % width],
        calls=calls[present],
        time_us=time[present] / 1e3,
        pct=100 * time[present] / max(time.sum(), 1),
        top_name=kernel_names[top[present]],
    )
