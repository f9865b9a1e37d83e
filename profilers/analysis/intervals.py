"""Arithmetic on time intervals, in numpy columns: unions, gaps, innermost running operator, shared instants.

Intervals are half open, ``[start, end)``, in int64 nanoseconds; one with ``end <= start`` covers nothing. No function
loops over rows, so a million intervals cost a few sorts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def _sorted(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    keep = end > start
    start, end = start[keep], end[keep]
    if start.size and np.any(np.diff(start) < 0):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    return start, end


def union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The disjoint, sorted intervals that cover the same instants (touching ones are joined)."""
    start, end = _sorted(np.asarray(start, np.int64), np.asarray(end, np.int64))
    if not start.size:
        return start, end
    reach = np.maximum.accumulate(end)
    first = np.r_[True, start[1:] > reach[:-1]]
    last = np.r_[np.flatnonzero(first)[1:] - 1, start.size - 1]
    return start[first], reach[last]


def union_length(start: Ints, end: Ints) -> int:
    """Nanoseconds covered by at least one interval."""
    starts, ends = union(start, end)
    return int((ends - starts).sum())


def gaps(start: Ints, end: Ints, low: int | None = None, high: int | None = None) -> tuple[Ints, Ints]:
    """What is not covered between ``low`` and ``high`` (default: the first start and the last end)."""
    starts, ends = union(start, end)
    if not starts.size:
        if low is None or high is None or high <= low:
            return starts, ends
        return np.array([low], np.int64), np.array([high], np.int64)
    left, right = np.r_[starts[0], ends], np.r_[starts, ends[-1]]
    if low is not None:
        left = np.maximum(left, low)
        left[0] = low
    if high is not None:
        right = np.minimum(right, high)
        right[-1] = high
    keep = right > left
    return left[keep], right[keep]


def covered(start: Ints, end: Ints, starts: Ints, ends: Ints) -> Ints:
    """Nanoseconds of each interval that lie in the disjoint sorted intervals ``starts, ends`` (see :func:`union`)."""
    if not starts.size:
        return np.zeros(len(start), np.int64)
    before = np.r_[0, np.cumsum(ends - starts)]

    def until(time: Ints) -> Ints:
        index = np.searchsorted(starts, time, side="right")
        inside = np.where(index > 0, np.minimum(time, ends[index - 1]) - starts[index - 1], 0)
        return np.asarray(np.where(index > 0, before[index - 1] + inside, 0), np.int64)

    length = until(np.asarray(end, np.int64)) - until(np.asarray(start, np.int64))
    return np.asarray(np.maximum(length, 0), np.int64)


def alone(start: Ints, end: Ints, others: tuple[Ints, Ints], within: tuple[Ints, Ints]) -> int:
    """Nanoseconds of ``within`` in which one of these intervals ran and none of the ``others`` did (both disjoint and
    sorted, see :func:`union`)."""
    both = union(np.r_[start, others[0]], np.r_[end, others[1]])
    return int(covered(*both, *within).sum() - covered(*others, *within).sum())


@dataclass(frozen=True, eq=False)
class Sharing:
    """Instants divided equally among the intervals that run at them: ``time`` are the instants at which the number of
    running intervals changes, ``weight`` the integral of 1/number up to there, ``busy`` the busy time up to there."""

    time: Ints
    weight: Floats
    busy: Ints

    def share(self, start: Any, end: Any) -> Floats:
        """Nanoseconds that fall to an interval ``[start, end)`` which was one of those counted (or a part of one)."""
        return np.maximum(self._until(end, self.weight) - self._until(start, self.weight), 0.0)

    def busy_between(self, start: Any, end: Any) -> Floats:
        """Nanoseconds of ``[start, end)`` in which anything ran."""
        return self._until(end, self.busy) - self._until(start, self.busy)

    def _until(self, time: Any, sums: Any) -> Floats:
        if not self.time.size:
            return np.zeros(np.shape(time))
        # Seen from the first instant, so that times long after their origin stay exact as floats.
        origin = self.time[0]
        return np.asarray(np.interp(np.asarray(time) - origin, self.time - origin, sums), np.float64)


def sharing(start: Ints, end: Ints, windows: tuple[Ints, Ints] | None = None) -> Sharing:
    """How instants are shared among the intervals; with ``windows`` (disjoint, sorted) only the instants in them."""
    keep = end > start
    start, end = np.asarray(start, np.int64)[keep], np.asarray(end, np.int64)[keep]
    edges, step = [start, end], [np.ones(start.size, np.int64), -np.ones(end.size, np.int64)]
    inside = [np.zeros(2 * start.size, np.int64)]
    if windows is not None:
        count = windows[0].size
        edges += [windows[0], windows[1]]
        step.append(np.zeros(2 * count, np.int64))
        inside.append(np.r_[np.ones(count, np.int64), -np.ones(count, np.int64)])
    time = np.concatenate(edges)
    if not time.size:
        return Sharing(time, np.zeros(0), time)
    order = np.argsort(time, kind="stable")
    time = time[order]
    running = np.cumsum(np.concatenate(step)[order])
    is_in = np.cumsum(np.concatenate(inside)[order]) > 0 if windows is not None else np.ones(time.size, bool)
    length = np.diff(time)
    active = (running[:-1] > 0) & is_in[:-1]
    density = np.zeros(length.size)
    np.divide(length, running[:-1], out=density, where=active)
    return Sharing(time, np.r_[0.0, np.cumsum(density)], np.r_[0, np.cumsum(np.where(active, length, 0))])


def innermost(start: Ints, end: Ints, parent: Ints, depth: Ints, thread: Ints) -> tuple[Ints, Ints, Ints]:
    """The stretches of time in which each operator was the innermost one running on its thread.

    ``parent`` is the row of the caller (-1: none), ``depth`` grows by one a call. A child that overruns its caller
    is cut to it, and an operator that runs into its next sibling is cut at the sibling's begin (both come from rounded
    clocks). Returns ``start, end, row`` of the stretches; those of one operator add up to its duration without its
    children.
    """
    start, end = np.array(start, np.int64), np.array(end, np.int64)
    depth, parent = np.asarray(depth, np.int64), np.asarray(parent, np.int64)
    rows = np.flatnonzero(end > start)
    rows = rows[np.lexsort((start[rows], parent[rows], thread[rows]))]
    here, after = rows[:-1], rows[1:]
    meets = (thread[here] == thread[after]) & (parent[here] == parent[after]) & (end[here] > start[after])
    end[here[meets]] = start[after[meets]]
    for level in range(1, int(depth.max(initial=0)) + 1):
        rows = np.flatnonzero((depth == level) & (parent >= 0))
        start[rows] = np.maximum(start[rows], start[parent[rows]])
        end[rows] = np.minimum(end[rows], end[parent[rows]])
    rows = np.flatnonzero(end > start)
    if not rows.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    time = np.r_[start[rows], end[rows]]
    begins = np.r_[np.ones(rows.size, np.int8), np.zeros(rows.size, np.int8)]
    # At one instant: first the ends, deepest first, then the begins, shallowest first; the last of them says who runs.
    nesting = np.r_[depth[rows], -depth[rows]]
    owner = np.r_[rows, parent[rows]]
    where = np.r_[thread[rows], thread[rows]]
    order = np.lexsort((nesting, begins, time, where))
    time, owner, where = time[order], owner[order], where[order]
    follows = np.r_[np.where(where[1:] == where[:-1], time[1:], time[:-1]), time[-1]]
    keep = (follows > time) & (owner >= 0)
    return time[keep], follows[keep], owner[keep]


def cut(start: Ints, end: Ints, edges: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Intervals cut at ascending ``edges``: ``start, end, row, bin`` of the pieces; what lies outside is left out."""
    last = edges.size - 1
    low = np.clip(np.searchsorted(edges, start, side="right") - 1, 0, max(last - 1, 0))
    high = np.clip(np.searchsorted(edges, end, side="left") - 1, 0, max(last - 1, 0))
    count = np.where(end > start, high - low + 1, 0)
    row = np.repeat(np.arange(start.size), count)
    offset = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    bins = low[row] + offset
    piece_start, piece_end = np.maximum(start[row], edges[bins]), np.minimum(end[row], edges[bins + 1])
    keep = piece_end > piece_start
    return piece_start[keep], piece_end[keep], row[keep], bins[keep]
