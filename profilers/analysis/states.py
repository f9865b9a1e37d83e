"""Utilization states: threads, SM % and DRAM % of every kernel, each low, medium or high (1,000-kernels study).

Threads below 4,000 are L, up to 32,000 M, above H; SM % and DRAM % below 10 are L, up to 70 M, above H (edges are in
:class:`~profilers.analysis.options.Options`). All states of few threads are one, ``L**``: 19 states. A part that is not
known is ``?`` (``H??``: threads known, no counters and no estimate). On a CPU the elements worked on stand for threads.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.view import View, pct, view
from profilers.tables import Recording

Ints = npt.NDArray[np.int64]

_LETTERS = "LMH?"
FEW = "L**"

STATES = (FEW, *(t + s + d for t in "MH" for s in "LMH" for d in "LMH"))
"""The 19 states of the study."""


def _level(values: np.ndarray, edges: tuple[float, float], unknown: np.ndarray) -> Ints:
    level = (values >= edges[0]).astype(np.int64) + (values > edges[1])
    return np.where(unknown, 3, level)


def state_codes(v: View, options: Options) -> Ints:
    """A number per row of ``kernels`` that stands for its state; :func:`state_names` has the names."""
    threads = v.kernels["threads"].to_numpy()
    sm, dram = v.kernels["sm_pct"].to_numpy(), v.kernels["dram_pct"].to_numpy()
    many = _level(threads, options.thread_edges, threads < 0)
    code = many * 16 + _level(sm, options.util_edges, np.isnan(sm)) * 4
    code += _level(dram, options.util_edges, np.isnan(dram))
    return np.where(many == 0, 0, code)


@lru_cache(maxsize=1)
def state_names() -> npt.NDArray[np.object_]:
    """The name of every code of :func:`state_codes`, and ``''`` for -1."""
    names = [t + s + d for t in _LETTERS for s in _LETTERS for d in _LETTERS]
    return np.array([FEW if name[0] == "L" else name for name in names] + [""], dtype=object)


def runs(v: View, options: Options) -> tuple[Ints, Ints, np.ndarray, Ints]:
    """Consecutive kernels in one state on one device, by start: ``state, length, time_ns, device`` of the runs."""
    rows = v.in_time
    code, device = state_codes(v, options)[rows], v.device[rows].astype(np.int64)
    if not rows.size:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty, empty
    first = np.flatnonzero(np.r_[True, (code[1:] != code[:-1]) | (device[1:] != device[:-1])])
    length = np.diff(np.r_[first, rows.size])
    return code[first], length, np.add.reduceat(v.dur[rows], first), device[first]


def states(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per state that occurs, longest first. ``gemm_pct`` and ``nongemm_pct`` are of all kernel time and add up
    to ``pct``; the ``pct`` add up to 100. ``mean_run_length`` counts every kernel, sampled by nobody."""
    v = view(recording)
    size = state_names().size
    code, dur = state_codes(v, options)[v.rows], v.dur[v.rows]
    time, calls = tally.total(code, dur, size), tally.count(code, size)
    gemm = tally.total(code, np.where(v.gemm_like(options)[v.rows], dur, 0), size)
    run_code, _, _, _ = runs(v, options)
    number = tally.count(run_code, size)
    whole = max(time.sum(), 1)
    present = np.flatnonzero(calls)
    present = present[np.argsort(-time[present], kind="stable")]
    return tally.frame(
        state=state_names()[present],
        time_us=time[present] / 1e3,
        pct=100 * time[present] / whole,
        gemm_pct=100 * gemm[present] / whole,
        nongemm_pct=100 * (time - gemm)[present] / whole,
        kernels=calls[present],
        runs=number[present],
        mean_run_length=calls[present] / np.maximum(number[present], 1),
        source=sources(v, code, size)[present],
    )


def sources(v: View, code: Ints, size: int) -> np.ndarray:
    """Per code the source of its kernels' utilization; ``estimate+ncu`` where they differ."""
    names = tally.texts(v.kernels["source"])
    pairs, _ = tally.numbered(
        code * names.size + tally.codes(v.kernels["source"])[v.rows] % names.size, size * names.size
    )
    found: list[list[str]] = [[] for _ in range(size)]
    for pair in pairs.tolist():
        found[pair // names.size].append(names[pair % names.size] or "none")
    return np.array(["+".join(sorted(set(parts))) for parts in found], dtype=object)


def transitions(recording: Recording, options: Options) -> pd.DataFrame:
    """How often a run of one state is followed by a run of another, on one device; most frequent first.

    A state never follows itself (that is a longer run): the counts add up to runs less devices.
    """
    code, _, _, device = runs(view(recording), options)
    same = device[1:] == device[:-1]
    pair = (code[:-1] * state_names().size + code[1:])[same]
    pairs, number = np.unique(pair, return_counts=True)
    order = np.argsort(-number, kind="stable")
    names = state_names()
    return tally.frame(
        from_=names[pairs[order] // names.size], to=names[pairs[order] % names.size], count=number[order]
    )


def runlengths(recording: Recording, options: Options) -> pd.DataFrame:
    """How many runs of each length each state has, and their kernel time; most frequent first."""
    code, length, time, _ = runs(view(recording), options)
    width = int(length.max(initial=0)) + 1
    pairs, inverse = tally.numbered(code * width + length, state_names().size * width)
    number = np.bincount(inverse, minlength=pairs.size)
    order = np.argsort(-number, kind="stable")
    return tally.frame(
        state=state_names()[pairs[order] // width],
        length=pairs[order] % width,
        runs=number[order],
        time_us=tally.total(inverse, time, pairs.size)[order] / 1e3,
    )


def mean_run_length(recording: Recording, options: Options) -> float:
    """Kernels a run, over all states and devices (the study: one or two); NaN without kernels."""
    _, length, _, _ = runs(view(recording), options)
    return float(length.mean()) if length.size else float("nan")


def utilization(recording: Recording, options: Options) -> pd.DataFrame:
    """The study's curve: kernel time of kernels whose busiest resource (SM, DRAM, tensor pipes) is below x %.

    Rows at 5, 10 ... 100; the last takes in 100 itself, so it falls short of 100 % by the time of kernels whose
    utilization is not known.
    """
    v = view(recording)
    columns = [v.kernels[name].to_numpy()[v.rows] for name in ("sm_pct", "dram_pct", "tensor_pct")]
    busiest = np.fmax.reduce(columns) if v.rows.size else np.zeros(0)
    dur = v.dur[v.rows]
    known = ~np.isnan(busiest)
    if not v.rows.size:
        return tally.frame(below_pct=[], time_us=[], time_pct=[], source=[])
    levels = np.arange(5, 101, 5)
    below = [dur[known & ((busiest < level) | (level == 100))].sum() for level in levels]
    source = sources(v, np.where(known, 0, 1), 2)[0] or "none"
    return tally.frame(
        below_pct=levels.astype(float),
        time_us=np.array(below) / 1e3,
        time_pct=[pct(float(time), float(dur.sum())) for time in below],
        source=source,
    )
