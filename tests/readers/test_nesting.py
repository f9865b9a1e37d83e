"""Nesting by time: against a plain stack on random intervals, and on the cases that go wrong."""

from __future__ import annotations

import numpy as np
import pytest

from profilers.readers.nesting import inclusive, innermost, nest


def holds(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    (begin, end), (start, stop) = outer, inner
    if stop > end or start < begin:
        return False
    return not (start == end and end > begin)


def plain(start: list[int], dur: list[int], thread: list[int]) -> tuple[list[int], list[int], list[int]]:
    """The same by the textbook: a stack per thread."""
    rows = sorted(range(len(start)), key=lambda row: (thread[row], start[row], -dur[row], row))
    parent, depth = [-1] * len(start), [0] * len(start)
    covered: list[set[int]] = [set() for _ in start]
    stack: list[int] = []
    for row in rows:
        span = (start[row], start[row] + dur[row])
        while stack and (
            thread[stack[-1]] != thread[row] or not holds((start[stack[-1]], start[stack[-1]] + dur[stack[-1]]), span)
        ):
            stack.pop()
        if stack:
            parent[row], depth[row] = stack[-1], depth[stack[-1]] + 1
            covered[stack[-1]] |= set(range(*span))
        stack.append(row)
    return parent, depth, [dur[row] - len(covered[row]) for row in range(len(start))]


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_a_stack_on_random_intervals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, width = int(rng.integers(1, 200)), int(rng.integers(3, 120))
    start = rng.integers(0, width, size)
    dur = np.where(rng.random(size) < 0.3, 0, rng.integers(0, width, size))
    thread = rng.integers(0, 4, size) * 10**12 - 5
    parent, depth, own = nest(start, dur, thread)
    want = plain(start.tolist(), dur.tolist(), thread.tolist())
    assert parent.tolist() == want[0]
    assert depth.tolist() == want[1]
    assert own.tolist() == want[2]


@pytest.mark.parametrize("seed", range(20))
def test_innermost_holds_the_instant_and_nothing_inside_it_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 150))
    # Properly nested intervals, made by splitting: only then is there one innermost.
    spans = [(0, 1000, 0)]
    for _ in range(size):
        begin, end, thread = spans[int(rng.integers(len(spans)))]
        cut = sorted(int(x) for x in rng.integers(begin, end + 1, 2))
        if all(not (b < cut[0] < e < cut[1] or cut[0] < b < cut[1] < e) for b, e, _ in spans):
            spans.append((cut[0], cut[1], thread))
    start = np.array([b for b, _, _ in spans])
    dur = np.array([e - b for b, e, _ in spans])
    thread = np.zeros(len(spans), np.int64)
    at = rng.integers(-5, 1010, 300)
    got = innermost(start, dur, thread, at, np.zeros(300, np.int64))
    for instant, row in zip(at.tolist(), got.tolist(), strict=True):
        held = [i for i in range(len(spans)) if start[i] <= instant <= start[i] + dur[i]]
        if not held:
            assert row == -1
        else:
            assert row in held
            assert start[row] == max(start[i] for i in held)


def test_touching_intervals_are_siblings_and_the_next_has_the_seam() -> None:
    parent, depth, own = nest([0, 0, 10], [20, 10, 10], [1, 1, 1])
    assert parent.tolist() == [-1, 0, 0]
    assert depth.tolist() == [0, 1, 1]
    assert own.tolist() == [0, 10, 10]
    assert innermost([0, 0, 10], [20, 10, 10], [1, 1, 1], [10, 20, 21], [1, 1, 1]).tolist() == [2, 2, -1]


def test_of_equal_intervals_the_earlier_is_the_outer() -> None:
    parent, depth, own = nest([5, 5, 5], [7, 7, 7], [0, 0, 0])
    assert parent.tolist() == [-1, 0, 1]
    assert depth.tolist() == [0, 1, 2]
    assert own.tolist() == [0, 0, 7]


def test_other_threads_never_hold() -> None:
    assert nest([0, 1], [10, 2], [1, 2])[0].tolist() == [-1, -1]
    assert innermost([0], [10], [1], [5, 5], [1, 2]).tolist() == [0, -1]


def test_an_instant_on_a_thread_without_intervals() -> None:
    assert innermost([0, 0], [9, 9], [1, 3], [4], [2]).tolist() == [-1]


def test_negative_length_counts_as_none_and_nothing_is_needed() -> None:
    parent, _, own = nest([0, 3], [10, -4], [0, 0])
    assert parent.tolist() == [-1, 0]
    assert own.tolist() == [10, 0]
    assert all(len(column) == 0 for column in nest([], [], []))
    assert innermost([], [], [], [3], [0]).tolist() == [-1]


def test_times_too_wide_for_one_key() -> None:
    start = [0, 2**61, 2**61 + 5]
    got = innermost(start, [10, 100, 10], [0, 1, 1], [2**61 + 7, 5, 2**61 + 50], [1, 0, 1])
    assert got.tolist() == [2, 0, 1]


def test_overlapping_children_cover_an_instant_once() -> None:
    assert nest([0, 0, 5], [20, 10, 10], [0, 0, 0])[2].tolist() == [5, 10, 10]


def test_inclusive_adds_up_the_whole_subtree() -> None:
    parent, depth, _ = nest([0, 0, 1, 50, 51], [100, 10, 2, 10, 3], [0, 0, 0, 0, 0])
    assert inclusive(parent, depth, [0, 1, 2, 4, 8]).tolist() == [15, 3, 2, 12, 8]
    assert inclusive(np.array([], np.int64), np.array([], np.int64), []).tolist() == []
