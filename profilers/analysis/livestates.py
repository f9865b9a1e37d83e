"""Utilization states of whole devices through time, from telemetry: ``·MH`` is SM medium, DRAM high.

The edges are those of the kernels' states (1,000-kernels study). There is no thread axis: telemetry knows no kernel, so
the first letter is a dot. A sample is an average since the one before it, so it stands for the time between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from profilers.analysis.options import UTIL_EDGES

if TYPE_CHECKING:
    import pandas as pd

GAP_S = 30.0
"""Two samples further apart leave the time between them unknown: nobody sampled."""

LIVE_STATES = tuple(f"·{sm}{dram}" for sm in "LMH" for dram in "LMH")
"""The nine states, by SM then DRAM."""

UNKNOWN = ""

Texts = npt.NDArray[np.object_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Live:
    """The states of one device in time order: ``state[i]`` held from ``start_ns[i]`` to ``t_ns[i]``.

    The two are equal for a first sample and after a gap of :data:`GAP_S`: no time is known of those.
    """

    device: str
    start_ns: Ints
    t_ns: Ints
    state: Texts


@dataclass(frozen=True)
class Summary:
    """Time per state (seconds and % of the known time), and changes of state per minute of known time."""

    known_s: float
    shares: tuple[tuple[str, float, float], ...]
    """(state, seconds, percent), longest first; the percent sum to 100."""
    flips: int
    flips_per_minute: float
    newest: str


def letters(sm_pct: npt.ArrayLike, dram_pct: npt.ArrayLike, edges: tuple[float, float] = UTIL_EDGES) -> Texts:
    """The states of pairs of percentages; :data:`UNKNOWN` where either is NaN."""
    sm, dram = np.asarray(sm_pct, float), np.asarray(dram_pct, float)
    names = np.array([*LIVE_STATES, UNKNOWN], dtype=object)
    code = 3 * _level(sm, edges) + _level(dram, edges)
    return names[np.where(np.isnan(sm) | np.isnan(dram), len(LIVE_STATES), code)]


def _level(values: npt.NDArray[np.float64], edges: tuple[float, float]) -> Ints:
    return (values >= edges[0]).astype(np.int64) + (values > edges[1])


def live(
    device: str,
    sm: tuple[npt.ArrayLike, npt.ArrayLike],
    dram: tuple[npt.ArrayLike, npt.ArrayLike],
    edges: tuple[float, float] = UTIL_EDGES,
) -> Live:
    """The states of one device from its SM % and DRAM %, each as (times in ns, values).

    A state takes both at the same time; samples of one without the other are left out, and so are NaN.
    """
    sm_t, sm_v = _clean(sm)
    dram_t, dram_v = _clean(dram)
    t, a, b = np.intersect1d(sm_t, dram_t, assume_unique=True, return_indices=True)
    before = np.r_[t[:1], t[:-1]]
    start = np.where(t - before > GAP_S * 1e9, t, before)
    return Live(device, start, t, letters(sm_v[a], dram_v[b], edges))


def _clean(pair: tuple[npt.ArrayLike, npt.ArrayLike]) -> tuple[Ints, npt.NDArray[np.float64]]:
    times, values = np.asarray(pair[0], np.int64), np.asarray(pair[1], np.float64)
    known = ~np.isnan(values)
    times, place = np.unique(times[known], return_index=True)
    return times, values[known][place]


def live_states(samples: pd.DataFrame, edges: tuple[float, float] = UTIL_EDGES) -> list[Live]:
    """:func:`live` for every device of ``samples`` (:data:`profilers.tables.SAMPLES`) that has both, by name."""
    found = []
    part = samples[samples["metric"].isin(["sm_pct", "dram_pct"])]
    for device, rows in part.groupby(part["device"].astype(str), sort=True):
        sm, dram = rows[rows["metric"] == "sm_pct"], rows[rows["metric"] == "dram_pct"]
        one = live(
            str(device),
            (sm["t_ns"].to_numpy(), sm["value"].to_numpy()),
            (dram["t_ns"].to_numpy(), dram["value"].to_numpy()),
            edges,
        )
        if one.t_ns.size:
            found.append(one)
    return found


def summary(one: Live) -> Summary:
    """Time per state and how often it changes. A device whose only sample has no time before it has no shares."""
    known = one.start_ns < one.t_ns
    names, place = np.unique(one.state[known].astype(str), return_inverse=True)
    seconds = np.bincount(place, weights=(one.t_ns - one.start_ns)[known] / 1e9, minlength=names.size)
    total = float(seconds.sum())
    order = np.argsort(-seconds, kind="stable")
    # A change counts where the later of two samples is known to follow the earlier one.
    flips = int(((one.state[1:] != one.state[:-1]) & known[1:]).sum())
    return Summary(
        total,
        tuple((str(names[i]), float(seconds[i]), 100 * float(seconds[i]) / total) for i in order),
        flips,
        60 * flips / total if total else float("nan"),
        str(one.state[-1]) if one.state.size else UNKNOWN,
    )


def strip(one: Live, first_ns: int, slice_ns: int, count: int) -> list[str]:
    """``count`` slices of ``slice_ns`` from ``first_ns``: the state that takes most of each, UNKNOWN without a sample."""
    out = [UNKNOWN] * count
    if not one.t_ns.size or slice_ns <= 0 or count <= 0:
        return out
    start, end = one.start_ns, one.t_ns
    states, code = np.unique(one.state.astype(str), return_inverse=True)
    # A sample may lie in several slices: it is cut at their edges.
    low = np.clip((start - first_ns) // slice_ns, 0, count)
    high = np.clip(-((first_ns - end) // slice_ns), 0, count)
    pieces = np.maximum(high - low, 0)
    row = np.repeat(np.arange(start.size), pieces)
    cell = np.arange(row.size) - np.repeat(np.cumsum(pieces) - pieces, pieces) + low[row]
    edge = first_ns + cell * slice_ns
    inside = np.minimum(end[row], edge + slice_ns) - np.maximum(start[row], edge)
    time = np.zeros((count, states.size))
    np.add.at(time, (cell, code[row]), np.maximum(inside, 0))
    best = time.argmax(axis=1)
    return [str(states[best[i]]) if time[i, best[i]] > 0 else UNKNOWN for i in range(count)]
