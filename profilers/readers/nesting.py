"""Who called whom: operators nested by time on each thread, and the operator in which an instant falls.

Every function takes plain int64 arrays and works on whole columns. Times are nanoseconds. An interval holds what
begins and ends inside it; intervals that only touch (one ends where the next begins) are siblings; of intervals with
the same begin and end, the earlier in the input is the outer one; an interval that overlaps another without lying in
it is its sibling.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
"""An int64 column."""

NONE = -1
_ROOMY = 1 << 62


def nest(start: npt.ArrayLike, dur: npt.ArrayLike, thread: npt.ArrayLike) -> tuple[Ints, Ints, Ints]:
    """Parent, depth and self time of every interval.

    ``parent`` is the row number of the innermost interval of the same thread that holds it (-1: none), ``depth`` the
    number of intervals around it, ``self`` its length less the part its children cover (overlapping children cover an
    instant once). Negative lengths count as 0. All three come back in the order of the input.

    Method: sorted by (thread, begin, longest first), every row points at the row before it and follows the pointers
    until one holds it. What a skipped row did not sit in, cannot hold this one either, so pointers may be followed
    while they are still moving, and runs of siblings are passed in doubling steps.
    """
    starts, lengths = _int64(start), np.maximum(_int64(dur), 0)
    ends = starts + lengths
    threads = _codes(thread)
    size = len(starts)
    if not size:
        empty = np.empty(0, np.int64)
        return empty, empty.copy(), empty.copy()
    order = _order(threads, starts, lengths)
    parent = np.full(size, NONE, np.int64)
    found = _parents(starts[order], ends[order], threads[order])
    parent[order] = np.where(found >= 0, order[found], NONE)
    return parent, _depths(parent), lengths - _covered(starts, ends, parent, order)


def innermost(
    op_start: npt.ArrayLike,
    op_dur: npt.ArrayLike,
    op_thread: npt.ArrayLike,
    at_ns: npt.ArrayLike,
    thread: npt.ArrayLike,
    *,
    parent: Ints | None = None,
) -> Ints:
    """For every instant, the row number of the innermost interval of its thread that holds it (-1: none does).

    An interval holds the instants from its begin to its end, both included; where one ends and the next begins, the
    next has it. ``parent`` is what :func:`nest` gave for the same intervals, where the caller has it already.
    """
    starts, lengths = _int64(op_start), np.maximum(_int64(op_dur), 0)
    instants = _int64(at_ns)
    if not len(starts) or not len(instants):
        return np.full(len(instants), NONE, np.int64)
    if parent is None:
        parent = nest(starts, lengths, op_thread)[0]
    both = _codes(np.concatenate([np.asarray(op_thread), np.asarray(thread)]))
    threads, wanted = both[: len(starts)], both[len(starts) :]
    order = _order(threads, starts, lengths)
    lane_keys, query_keys = _keys(threads[order], starts[order], wanted, instants)
    place = np.searchsorted(lane_keys, query_keys, side="right") - 1
    holder = np.where(place >= 0, order[np.maximum(place, 0)], NONE)
    holder[(holder >= 0) & (threads[holder] != wanted)] = NONE
    ends = starts + lengths
    moving = np.flatnonzero(holder >= 0)
    while len(moving):
        moving = moving[ends[holder[moving]] < instants[moving]]
        holder[moving] = parent[holder[moving]]
        moving = moving[holder[moving] >= 0]
    return holder


def inclusive(parent: Ints, depth: Ints, own: npt.ArrayLike) -> Ints:
    """Each row's own value plus those of all rows below it (``parent`` and ``depth`` as :func:`nest` gives them)."""
    total = np.array(own, dtype=np.int64)
    by_depth = np.argsort(-depth, kind="stable")
    levels = np.flatnonzero(np.diff(depth[by_depth], prepend=-1, append=-1))
    for begin, end in itertools.pairwise(levels):
        rows = by_depth[begin:end]
        rows = rows[parent[rows] >= 0]
        np.add.at(total, parent[rows], total[rows])
    return total


def _int64(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)


def _codes(values: npt.ArrayLike) -> Ints:
    """Threads as 0, 1, 2 ... in the order of their value."""
    codes, _ = pd.factorize(np.asarray(values), sort=True)
    return codes.astype(np.int64)


def _order(threads: Ints, starts: Ints, lengths: Ints) -> Ints:
    """Row numbers by (thread, begin, longest first, place in the input)."""
    by_length = np.argsort(-lengths, kind="stable")
    by_start = by_length[np.argsort(starts[by_length], kind="stable")]
    return by_start[np.argsort(threads[by_start], kind="stable")]


def _parents(starts: Ints, ends: Ints, threads: Ints) -> Ints:
    """For rows in the order of :func:`_order`, the position of each one's parent."""
    size = len(starts)
    pointer = np.arange(-1, size - 1, dtype=np.int64)
    pointer[1:][threads[1:] != threads[:-1]] = NONE
    moving = np.flatnonzero(pointer >= 0)
    while len(moving):
        held = pointer[moving]
        beyond = ends[held] < ends[moving]
        beyond |= (ends[held] == starts[moving]) & (ends[held] > starts[held])
        moving = moving[beyond]
        pointer[moving] = pointer[pointer[moving]]
        moving = moving[pointer[moving] >= 0]
    return pointer


def _depths(parent: Ints) -> Ints:
    """How many ancestors each row has: the pointers are doubled until all have run out."""
    depth = (parent >= 0).astype(np.int64)
    ancestor = parent.copy()
    moving = np.flatnonzero(ancestor >= 0)
    while len(moving):
        above = ancestor[moving]
        depth[moving] += depth[above]
        ancestor[moving] = ancestor[above]
        moving = moving[ancestor[moving] >= 0]
    return depth


def _covered(starts: Ints, ends: Ints, parent: Ints, order: Ints) -> Ints:
    """The part of each row that its children cover, each instant once."""
    child = order[parent[order] >= 0]
    # Children of one parent stay in the order of their begin, since the sort is stable.
    child = child[np.argsort(parent[child], kind="stable")]
    above, begin, end = parent[child], starts[child], ends[child]
    same = above[1:] == above[:-1]
    if np.any(same & (begin[1:] < end[:-1])):
        reach = pd.Series(end).groupby(above, sort=False).cummax().to_numpy()
        begin = begin.copy()
        begin[1:] = np.where(same, np.maximum(begin[1:], reach[:-1]), begin[1:])
        end = np.maximum(end, begin)
    covered = np.zeros(len(starts), np.int64)
    np.add.at(covered, above, end - begin)
    return covered


def _keys(lanes: Ints, times: Ints, wanted: Ints, instants: Ints) -> tuple[Ints, Ints]:
    """One sortable number for (thread, time), for the intervals and for the instants."""
    low = min(int(times.min()), int(instants.min()))
    width = max(int(times.max()), int(instants.max())) - low + 1
    highest = max(int(lanes.max()), int(wanted.max())) + 1
    if width * highest < _ROOMY:
        return lanes * width + (times - low), wanted * width + (instants - low)
    ranks = np.unique(np.concatenate([times, instants]))
    return (
        lanes * len(ranks) + np.searchsorted(ranks, times),
        wanted * len(ranks) + np.searchsorted(ranks, instants),
    )
