"""Placing samples on kernels: a shift that is known beforehand is found to an interval, and what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pm_maker import after, sampled

from profilers.analysis.pm_align import GOOD, NEAR, CannotAlignError, align

INTERVAL = 10_000
SHIFTS = (0, 3_700, -12_345, 1_000_003, 86_400_000_000_000, -7_654_321_987)


def irregular(seed: int = 3, count: int = 120):
    """A step in which no two places look alike: kernels of 2 to 90 us with gaps between some."""
    made, at = [], 0
    random = np.random.default_rng(seed)
    for number in range(count):
        dur = int(random.integers(2_000, 90_000))
        made += after((f"k{number}", dur, 40.0, 30.0, 10.0), start=at)
        at += dur + int(random.choice([1_000, 5_000, 40_000]))
    return made


def placed(kernels, made, shift, *, known):
    """``align`` with samples whose clock is ``shift`` ns ahead."""
    begin = np.array([one.start for one in kernels], np.int64)
    over = np.array([one.end for one in kernels], np.int64)
    return align(made["start"] + shift, made["end"] + shift, made["busy"], begin, over, known=known)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("phase", [0, 3_300, 7_900])
def test_an_unknown_clock_is_found_to_one_interval(shift, phase):
    kernels = irregular()
    found = placed(kernels, sampled(kernels, INTERVAL, phase=phase), shift, known=False)
    assert found.estimated
    assert abs(found.shift_ns + shift) <= INTERVAL // 8
    assert found.agreement > 0.99


@pytest.mark.parametrize("shift", [0, 1_250, -NEAR * INTERVAL + INTERVAL, 150_000])
def test_a_known_clock_is_corrected_within_its_neighbourhood(shift):
    kernels = irregular()
    found = placed(kernels, sampled(kernels, INTERVAL), shift, known=True)
    assert not found.estimated
    assert abs(found.shift_ns + shift) <= INTERVAL // 8


def test_a_clock_that_is_not_what_it_was_said_to_be_is_found_all_the_same():
    kernels = irregular()
    found = placed(kernels, sampled(kernels, INTERVAL), 37_000_000, known=True)
    assert found.estimated and abs(found.shift_ns + 37_000_000) <= INTERVAL // 8


def test_a_step_without_a_gap_is_pinned_by_the_idle_time_around_it():
    kernels = after(*[("gemm", 33_000, 80.0, 20.0, 70.0)] * 60, gap=0)
    found = placed(kernels, sampled(kernels, INTERVAL, phase=4_400), 5_000_777, known=False)
    assert abs(found.shift_ns + 5_000_777) <= INTERVAL // 8


def test_noise_moves_it_by_less_than_an_interval():
    kernels = irregular()
    made = sampled(kernels, INTERVAL)
    noise = np.random.default_rng(1).normal(0, 12, len(made["busy"]))
    made["busy"] = np.clip(made["busy"] + noise, 0, 100)
    found = placed(kernels, made, -444_000, known=False)
    assert abs(found.shift_ns - 444_000) <= INTERVAL and GOOD < found.agreement < 0.99


def test_equal_layers_are_told_apart_by_the_ends_of_the_step():
    layer = (("a", 45_000, 1.0, 1.0, 1.0), ("b", 20_000, 1.0, 1.0, 1.0))
    kernels = after(*layer * 12, gap=25_000)
    found = placed(kernels, sampled(kernels, INTERVAL), 2_000_000, known=False)
    assert abs(found.shift_ns + 2_000_000) <= INTERVAL // 8


def test_two_places_that_fit_equally_well_are_refused():
    """Equal layers, of which the profiler lost one: the samples do not say whether the first or the last."""
    layer = (("a", 50_000, 1.0, 1.0, 1.0), ("b", 20_000, 1.0, 1.0, 1.0))
    kernels = after(*layer * 20, gap=20_000)
    with pytest.raises(CannotAlignError, match="equally well at two places, 110 us apart") as raised:
        placed(kernels[2:], sampled(kernels, INTERVAL), 5_000, known=False)
    assert "\n" not in str(raised.value)
    # A clock that is known decides it.
    assert abs(placed(kernels[2:], sampled(kernels, INTERVAL), 5_000, known=True).shift_ns + 5_000) <= INTERVAL


@pytest.mark.parametrize("known", [True, False])
def test_samples_of_something_else_are_refused(known):
    kernels, other = irregular(3), irregular(99)
    with pytest.raises(CannotAlignError, match=r"best correlation is 0\.\d\d, 0\.80 is needed") as raised:
        placed(kernels, sampled(other, INTERVAL, margin=900_000), 0, known=known)
    assert "\n" not in str(raised.value)


def test_samples_that_say_the_same_all_the_time_fit_nowhere():
    kernels = irregular()
    made = sampled(kernels, INTERVAL)
    made["busy"][:] = 100.0
    with pytest.raises(CannotAlignError, match="do not go together"):
        placed(kernels, made, 0, known=False)


def test_too_little_is_said_so():
    kernels = irregular()
    made = sampled(kernels, INTERVAL)
    few = {name: values[:2] for name, values in made.items()}
    with pytest.raises(CannotAlignError, match="2 samples are too few"):
        placed(kernels, few, 0, known=False)
    half = {name: values[: len(values) // 3] for name, values in made.items()}
    with pytest.raises(CannotAlignError, match=r"the samples cover .* ms, the kernels .* ms"):
        placed(kernels, half, 0, known=False)
    with pytest.raises(CannotAlignError, match="no kernel has a length"):
        align(made["start"], made["end"], made["busy"], np.zeros(1, np.int64), np.zeros(1, np.int64), known=True)
