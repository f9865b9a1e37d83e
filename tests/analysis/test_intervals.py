"""Interval arithmetic against a nanosecond-by-nanosecond count."""

from __future__ import annotations

import numpy as np
import pytest

from profilers.analysis import intervals


def _random(seed: int, size: int, high: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, high, size)
    return start, start + rng.integers(0, 30, size)


def _paint(start: np.ndarray, end: np.ndarray, high: int = 260) -> np.ndarray:
    running = np.zeros(high, int)
    for a, b in zip(start, end, strict=True):
        running[a:b] += 1
    return running


@pytest.mark.parametrize("seed", range(20))
def test_union_and_gaps_cover_each_instant_once(seed: int) -> None:
    start, end = _random(seed, 25)
    painted = _paint(start, end)
    assert intervals.union_length(start, end) == (painted > 0).sum()
    starts, ends = intervals.union(start, end)
    assert (starts[1:] > ends[:-1]).all()
    left, right = intervals.gaps(start, end)
    free = np.flatnonzero(painted)
    assert (right - left).sum() == (painted[free[0] : free[-1]] == 0).sum()
    left, right = intervals.gaps(start, end, 0, 260)
    assert (right - left).sum() == (painted == 0).sum()


@pytest.mark.parametrize("seed", range(20))
def test_alone_counts_the_instants_of_one_and_not_of_the_others(seed: int) -> None:
    one, others, within = _random(seed, 15), _random(seed + 100, 8), _random(seed + 200, 5)
    painted = (_paint(*one) > 0) & (_paint(*others) == 0) & (_paint(*within) > 0)
    assert intervals.alone(*one, intervals.union(*others), intervals.union(*within)) == painted.sum()


@pytest.mark.parametrize("seed", range(20))
def test_covered_counts_the_shared_instants(seed: int) -> None:
    start, end = _random(seed, 15)
    other = _random(seed + 100, 8)
    painted = _paint(*other) > 0
    expected = [painted[a:b].sum() for a, b in zip(start, end, strict=True)]
    assert intervals.covered(start, end, *intervals.union(*other)).tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_instants_are_divided_equally(seed: int) -> None:
    start, end = _random(seed, 25)
    window = intervals.union(*_random(seed + 50, 6))
    inside, running = _paint(*window) > 0, _paint(start, end)
    each = np.where(inside & (running > 0), 1 / np.maximum(running, 1), 0)
    expected = [each[a:b].sum() for a, b in zip(start, end, strict=True)]
    shared = intervals.sharing(start, end, window)
    assert shared.share(start, end) == pytest.approx(expected)
    assert shared.share(start, end).sum() == pytest.approx((inside & (running > 0)).sum())
    assert shared.busy[-1] == (inside & (running > 0)).sum()


def _nested(rng: np.random.Generator, low: int, high: int, parent: int, depth: int, out: list[list[int]]) -> None:
    at = low
    while at < high and len(out) < 60:
        begin = at + int(rng.integers(0, 4))
        end = min(begin + int(rng.integers(0, 20)), high)
        if begin >= high:
            return
        out.append([begin, end, parent, depth])
        if depth < 4:
            _nested(rng, begin, end, len(out) - 1, depth + 1, out)
        at = end


@pytest.mark.parametrize("seed", range(20))
def test_the_innermost_stretches_add_up_to_self_time(seed: int) -> None:
    rows: list[list[int]] = []
    _nested(np.random.default_rng(seed), 0, 200, -1, 0, rows)
    start, end, parent, depth = np.array(rows, np.int64).T
    self_time = end - start
    for row, above in enumerate(parent):
        if above >= 0:
            self_time[above] -= end[row] - start[row]
    begin, finish, owner = intervals.innermost(start, end, parent, depth, np.zeros(len(rows), np.int64))
    assert np.bincount(owner, finish - begin, minlength=len(rows)).tolist() == self_time.tolist()
    assert (_paint(begin, finish) <= 1).all()
    assert intervals.union_length(begin, finish) == intervals.union_length(start, end)


def test_threads_do_not_see_each_other() -> None:
    start, end = np.array([0, 5]), np.array([10, 20])
    none = np.array([-1, -1])
    begin, finish, owner = intervals.innermost(start, end, none, np.zeros(2, int), np.array([1, 2]))
    assert sorted(zip(owner.tolist(), begin.tolist(), finish.tolist(), strict=True)) == [(0, 0, 10), (1, 5, 20)]


def test_a_child_that_overruns_and_a_sibling_that_overlaps_leave_no_instant_twice() -> None:
    start, end = np.array([0, 4, 8]), np.array([10, 12, 20])
    begin, finish, owner = intervals.innermost(
        start, end, np.array([-1, 0, -1]), np.array([0, 1, 0]), np.zeros(3, np.int64)
    )
    assert (_paint(begin, finish) <= 1).all()
    assert np.bincount(owner, finish - begin).tolist() == [4, 4, 12]


def test_nothing_gives_nothing() -> None:
    none = np.zeros(0, np.int64)
    assert intervals.union_length(none, none) == 0
    assert intervals.gaps(none, none)[0].size == 0
    assert intervals.gaps(none, none, 3, 9)[1].tolist() == [9]
    assert intervals.sharing(none, none).share(none, none).size == 0
    assert intervals.innermost(none, none, none, none, none)[0].size == 0


@pytest.mark.parametrize("seed", range(10))
def test_cutting_keeps_every_instant_within_the_edges(seed: int) -> None:
    start, end = _random(seed, 25)
    edges = np.array([20, 50, 51, 120, 180])
    begin, finish, row, place = intervals.cut(start, end, edges)
    assert (begin >= edges[place]).all() and (finish <= edges[place + 1]).all() and (finish > begin).all()
    expected = np.maximum(np.minimum(end, 180) - np.maximum(start, 20), 0)
    assert np.bincount(row, finish - begin, minlength=25).tolist() == expected.tolist()
