"""The tail: how many kernel names must be fast before most of the kernel time is covered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.view import view
from profilers.tables import Recording

_COLUMNS = ["pct", "names", "gemm_names", "other_names", "lumped_names"]


def coverage(recording: Recording, options: Options) -> pd.DataFrame:
    """Per level: the fewest names that cover it, how many of them are GEMM, and how many entries it takes when all
    GEMM kernels count as one (the study's way)."""
    time, gemm, _ = by_name(recording, options)
    if not time.size:
        return pd.DataFrame(columns=_COLUMNS)
    rows = []
    lumped = np.sort(np.r_[time[gemm].sum(), time[~gemm]])[::-1] if gemm.any() else time
    for level in options.coverage_levels:
        names = needed(time, level)
        gemm_names = int(gemm[:names].sum())
        rows.append((level, names, gemm_names, names - gemm_names, needed(lumped, level)))
    return pd.DataFrame(rows, columns=_COLUMNS)


def by_name(recording: Recording, options: Options) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kernel time per name, longest first; whether the name is (mostly) GEMM; the name."""
    v = view(recording)
    names = tally.texts(v.kernels["name"])
    code, dur = tally.codes(v.kernels["name"])[v.rows], v.dur[v.rows]
    time = tally.total(code, dur, names.size)
    gemm = tally.dominant(code, v.gemm_like(options)[v.rows].astype(np.int64), dur, names.size) == 1
    order = np.flatnonzero(tally.count(code, names.size))
    order = order[np.argsort(-time[order], kind="stable")]
    return time[order], gemm[order], names[order]


def needed(time: np.ndarray, level: float) -> int:
    """How many of the entries, largest first, reach ``level`` percent of their sum."""
    running = np.cumsum(time)
    if not running.size or running[-1] <= 0:
        return 0
    return int(np.searchsorted(running, running[-1] * level / 100 * (1 - 1e-12))) + 1


def coverage_union(
    recordings: Sequence[Recording], options: Options | None = None, level: float = 90.0
) -> pd.DataFrame:
    """The study's count over several applications: non-GEMM names that any of them needs for ``level`` percent with
    its GEMM kernels lumped, and all GEMM names that occur. One row: ``pct names gemm_names other_names``."""
    options = options or Options()
    gemm_names: set[str] = set()
    other_names: set[str] = set()
    for recording in recordings:
        time, gemm, names = by_name(recording, options)
        gemm_names.update(names[gemm])
        entries = np.r_[time[gemm].sum(), time[~gemm]] if gemm.any() else time
        labels = np.r_[[""], names[~gemm]] if gemm.any() else names
        order = np.argsort(-entries, kind="stable")
        picked = labels[order[: needed(entries[order], level)]]
        other_names.update(name for name in picked if name)
    other_names -= gemm_names
    row = (level, len(gemm_names | other_names), len(gemm_names), len(other_names))
    return pd.DataFrame([row], columns=_COLUMNS[:4])
