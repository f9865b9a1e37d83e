"""Which lengths are not believed, and which odd but real ones are."""

from __future__ import annotations

import numpy as np

from profilers.readers.flags import FLAGS, flag_column, flag_durations, flag_notes

US = 1_000


def marks(start: list[int], dur: list[int], lane: list[int] | None = None, **more: list[bool]) -> list[str]:
    flags = flag_durations(np.array(start), np.array(dur), lane or [0] * len(start), **more)
    return [FLAGS[flag] for flag in flags]


def test_a_kernel_that_runs_over_the_rest_of_its_stream() -> None:
    assert marks([0, 10 * US, 20 * US], [2_000_000 * US, 5 * US, 5 * US]) == ["overrun", "", ""]


def test_another_stream_may_run_meanwhile() -> None:
    assert marks([0, 10 * US, 20 * US], [2_000_000 * US, 5 * US, 5 * US], [1, 2, 2]) == ["", "", ""]


def test_small_overlaps_are_real() -> None:
    assert marks([0, 100 * US], [104 * US, 59 * US]) == ["", ""]
    # An old clock: the next one is wholly inside, but only 13 us are at stake.
    assert marks([0, 6 * US], [19 * US, 1 * US]) == ["", ""]


def test_a_long_overlap_into_a_longer_successor_is_not_an_overrun() -> None:
    assert marks([0, 100 * US], [300 * US, 5_000 * US]) == ["", ""]


def test_nodes_of_a_graph_run_side_by_side() -> None:
    assert marks([0, 10 * US], [900 * US, 5 * US], graph=[True, True]) == ["", ""]


def test_equal_begins_are_passed_over() -> None:
    assert marks([0, 0, 5_000 * US], [900 * US, 5 * US, 1 * US]) == ["", "", ""]
    assert marks([0, 0, 50 * US], [900 * US, 5 * US, 1 * US]) == ["overrun", "", ""]


def test_negative_overflow_and_zero_time() -> None:
    big = np.iinfo(np.int64).max
    assert marks([5, 6, 7, 0], [-1, big, 3, 0], zero=[False, False, False, True]) == [
        "negative",
        "overflow",
        "",
        "zero_time",
    ]


def test_a_bad_one_does_not_convict_its_neighbour() -> None:
    assert marks([0, 10 * US, 400 * US], [300 * US, -1, 1]) == ["", "negative", ""]


def test_column_and_notes_count() -> None:
    flags = flag_durations(np.array([5, 6, 7]), np.array([-1, -2, 3]), [0, 0, 0])
    assert list(flag_column(flags)) == ["negative", "negative", ""]
    assert [(note.code, note.count) for note in flag_notes(flags)] == [("flag_negative", 2)]
    assert len(flag_durations(np.array([], np.int64), np.array([], np.int64), [])) == 0
