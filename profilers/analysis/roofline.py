"""Which kernels are limited by arithmetic and which by memory: achieved rates against what the device allows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.peaks import recording_peaks
from profilers.analysis.rates import kernel_peaks
from profilers.analysis.states import sources
from profilers.analysis.view import view
from profilers.tables import Recording

COMPUTE, MEMORY, UNKNOWN = "compute", "memory", ""


def bound_names(intensity: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """``compute`` at or above the ridge (peak operations over peak bytes a second), ``memory`` below, '' unknown."""
    known = ~np.isnan(intensity) & ~np.isnan(ridge)
    return np.where(known, np.where(intensity >= ridge, COMPUTE, MEMORY), UNKNOWN).astype(object)


_TABLE = [
    "name", "group", "calls", "time_us", "intensity", "tflops_per_s", "gb_per_s", "roof_tflops_per_s", "pct_of_roof",
    "bound", "source",
]  # fmt: skip


def roofline(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per kernel name, longest first.

    Operations and bytes are the counters' where the recording has them, else from the operators' shapes. ``roof`` is
    min(peak, intensity x bandwidth). ``pct_of_roof`` is the larger of operations over the compute peak and bytes over
    the memory peak, which is the same thing, and holds for kernels that compute nothing as well; above 100 means that
    bytes came from caches, or that the peak is a poor estimate. NaN: not known.
    """
    return _rated(recording, options, "name")[_TABLE]


def roofline_groups(recording: Recording, options: Options) -> pd.DataFrame:
    """The same per group of kernels, longest first. ``known_pct`` is the part of the group's kernel time whose bytes are
    known: the rates are over that part alone."""
    return _rated(recording, options, "group")


def _rated(recording: Recording, options: Options, column: str) -> pd.DataFrame:
    """Rates of all kernels that have one value in ``column``."""
    v = view(recording)
    rows, frame = v.rows, v.kernels
    names = tally.texts(frame[column])
    # A kernel without a value is one of its own kind: the last text, which is empty.
    code, dur = tally.codes(frame[column])[rows] % names.size, v.dur[rows]
    size = names.size
    flop_peak, byte_peak = (part[rows] for part in kernel_peaks(recording, recording_peaks(recording, options)))
    flops, moved = frame["flops"].to_numpy()[rows], frame["bytes"].to_numpy()[rows]
    time, calls = tally.total(code, dur, size), tally.count(code, size)
    order = np.flatnonzero(calls)
    order = order[np.argsort(-time[order], kind="stable")]

    def known(values: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Sums per name over the rows in ``where``; NaN where a name has none."""
        sums = tally.total(code[where], values[where], size)
        return np.where(tally.count(code[where], size) > 0, sums, np.nan)[order]

    # A name may run on several devices, in several types, and for operators of unknown shape: rates are over the time
    # of those rows whose cost is known, and what the device would have allowed in just that time.
    computes, moves = ~np.isnan(flops), ~np.isnan(moved)
    both = computes & moves
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity = known(flops, both) / known(moved, both)
        ridge = known(dur * flop_peak, both) / known(dur * byte_peak / 1e3, both)
        peak = known(dur * flop_peak, both) / known(dur, both)
        roof = np.minimum(peak, intensity * known(dur * byte_peak / 1e3, both) / known(dur, both))
        compute_used = known(flops, computes) / known(dur * flop_peak * 1e3, computes)
        memory_used = known(moved, moves) / known(dur * byte_peak, moves)
        bound = bound_names(intensity, ridge)
        # What computes nothing by any formula is limited by memory, if its traffic is known.
        bound[(bound == UNKNOWN) & ~np.isnan(memory_used) & (memory_used > 0) & np.isnan(compute_used)] = MEMORY
        group = tally.dominant(code, tally.codes(frame["group"])[rows], dur, size)[order]
        return tally.frame(
            name=names[order],
            group=tally.texts(frame["group"])[group],
            calls=calls[order],
            time_us=time[order] / 1e3,
            intensity=intensity,
            tflops_per_s=known(flops, computes) / known(dur, computes) / 1e3,
            gb_per_s=known(moved, moves) / known(dur, moves),
            roof_tflops_per_s=roof,
            pct_of_roof=100 * np.fmax(compute_used, memory_used),
            bound=bound,
            source=sources(v, code, size)[order],
            known_pct=100 * np.nan_to_num(known(dur, moves)) / time[order],
        )
