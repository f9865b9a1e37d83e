"""Live states against a count of every instant, and their edges against those of the kernels' states."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from profilers.analysis.livestates import GAP_S, LIVE_STATES, UNKNOWN, Live, letters, live, live_states, strip, summary
from profilers.tables import SAMPLES

S = 1_000_000_000


def test_the_edges_are_the_studys():
    values = [0.0, 9.99, 10.0, 70.0, 70.01, 100.0]
    assert list(letters(values, [0.0] * 6)) == ["·LL", "·LL", "·ML", "·ML", "·HL", "·HL"]
    assert list(letters([0.0] * 6, values)) == ["·LL", "·LL", "·LM", "·LM", "·LH", "·LH"]
    assert list(letters([np.nan, 5.0], [5.0, np.nan])) == [UNKNOWN, UNKNOWN]
    assert len(set(LIVE_STATES)) == 9


def test_the_edges_are_those_of_the_kernels_states():
    from profilers.analysis.options import Options
    from profilers.analysis.states import _level

    values = np.linspace(0, 100, 2001)
    unknown = np.zeros(values.size, bool)
    for a in (5.0, 50.0, 90.0):
        ours = letters(values, np.full(values.size, a))
        theirs = np.array(list("LMH"))[_level(values, Options().util_edges, unknown)]
        assert [state[1] for state in ours] == list(theirs)


def of(times_s, sm, dram=None) -> Live:
    t = np.array([round(x * S) for x in times_s])
    return live("cuda:0", (t, sm), (t, [50.0] * len(sm) if dram is None else dram))


def test_a_state_stands_for_the_time_since_the_sample_before():
    one = of([0, 1, 3, 4], [5.0, 50.0, 90.0, 90.0])
    found = summary(one)
    assert found.known_s == 4.0
    assert found.shares == (("·HM", 3.0, 75.0), ("·MM", 1.0, 25.0))
    # From L to M, from M to H.
    assert found.flips == 2 and found.flips_per_minute == 30.0 and found.newest == "·HM"


def test_nothing_is_known_of_a_gap():
    one = of([0, 1, 1 + GAP_S + 1, 2 + GAP_S + 1], [5.0, 5.0, 90.0, 90.0])
    found = summary(one)
    assert found.known_s == 2.0 and found.flips == 0
    assert {state: seconds for state, seconds, _ in found.shares} == {"·LM": 1.0, "·HM": 1.0}


def test_few_samples():
    assert summary(of([], [])).shares == ()
    alone = summary(of([5], [90.0]))
    assert alone.shares == () and alone.newest == "·HM" and np.isnan(alone.flips_per_minute)
    assert strip(of([], []), 0, S, 3) == ["", "", ""] and strip(of([0, 1], [5.0, 5.0]), 0, S, 0) == []


def test_samples_of_one_without_the_other_are_left_out():
    one = live("d", ([0, S, 2 * S, 2 * S], [1.0, 2.0, np.nan, 3.0]), ([S, 2 * S, 3 * S], [90.0, 90.0, 90.0]))
    assert list(one.t_ns) == [S, 2 * S] and list(one.state) == ["·LH", "·LH"]


@pytest.mark.parametrize("seed", range(5))
def test_strip_and_shares_agree_with_a_count_of_milliseconds(seed):
    chance = np.random.default_rng(seed)
    ms = np.cumsum(chance.integers(1, 400, 60))
    one = of(ms / 1000, list(chance.choice([5.0, 50.0, 90.0], 60)), list(chance.choice([5.0, 90.0], 60)))
    states = {}
    for first, last, state in zip(one.start_ns // 1_000_000, one.t_ns // 1_000_000, one.state, strict=True):
        for instant in range(int(first), int(last)):
            states[instant] = state
    found = summary(one)
    for state, seconds, pct in found.shares:
        assert seconds == pytest.approx(sum(s == state for s in states.values()) / 1000)
        assert pct == pytest.approx(100 * seconds / found.known_s)
    assert sum(pct for _, _, pct in found.shares) == pytest.approx(100)
    first, size, count = int(ms[0]) - 150, 700, 25
    drawn = strip(one, first * 1_000_000, size * 1_000_000, count)
    for cell, state in enumerate(drawn):
        inside = [states.get(i, "") for i in range(first + cell * size, first + (cell + 1) * size)]
        known = [s for s in inside if s]
        if not known:
            assert state == UNKNOWN
        else:
            assert known.count(state) == max(known.count(s) for s in set(known))


def test_from_a_table_of_samples():
    rows = [
        (t * S, device, metric, value, "%", "gpm")
        for device, sm in (("cuda:1", 90.0), ("cuda:0", 5.0))
        for t in range(3)
        for metric, value in (("sm_pct", sm), ("dram_pct", 50.0), ("util_pct", 99.0))
    ]
    rows += [(0, "cpu", "util_pct", 3.0, "%", "psutil"), (0, "cuda:2", "sm_pct", 3.0, "%", "gpm")]
    found = live_states(SAMPLES.conform(pd.DataFrame(rows, columns=SAMPLES.names)))
    assert [(one.device, summary(one).newest, summary(one).known_s) for one in found] == [
        ("cuda:0", "·LM", 2.0),
        ("cuda:1", "·HM", 2.0),
    ]
    assert live_states(SAMPLES.empty()) == []
