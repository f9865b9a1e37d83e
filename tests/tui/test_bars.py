"""Bars fill exactly their width, to an eighth of a cell, and read without colour."""

from __future__ import annotations

import pytest
from rich.segment import Segment

from tui.bars import Slice, single, stacked
from tui.cells import fit, width
from tui.palette import palette

DARK, PLAIN = palette("dark"), palette("dark", ascii=True)


def text(segments: list[Segment]) -> str:
    return "".join(segment.text for segment in segments)


@pytest.mark.parametrize("cells", [1, 2, 7, 40, 133])
@pytest.mark.parametrize("values", [(1, 1, 1), (97.3, 0.2, 2.5), (1e-9, 1, 0), (0, 0, 5), (3,)])
@pytest.mark.parametrize("colours", [DARK, PLAIN])
def test_a_stacked_bar_is_exactly_as_wide_as_asked(cells: int, values: tuple[float, ...], colours: object) -> None:
    parts = [Slice(v, "#ff0000", "G") for v in values]
    assert width(text(stacked(parts, cells, colours))) == cells  # type: ignore[arg-type]


def test_nothing_measured_is_blank_not_full() -> None:
    assert text(stacked([Slice(0, "#ff0000", "G")], 10, DARK)) == " " * 10


def test_letters_take_the_place_of_colour() -> None:
    parts = [Slice(50, "#e8a33d", "G"), Slice(25, "#f0d264", "A"), Slice(25, "", hatched=True)]
    assert text(stacked(parts, 8, PLAIN)) == "GGGGAA.."


def test_slices_meet_inside_a_cell() -> None:
    bar = stacked([Slice(1, "#e8a33d"), Slice(1, "#5b8db8")], 3, DARK)
    assert "▌" in text(bar)


@pytest.mark.parametrize(("share", "full"), [(0.0, 0), (0.5, 5), (1.0, 10), (7.0, 10), (float("nan"), 0)])
def test_a_single_bar_stays_on_its_scale(share: float, full: int) -> None:
    bar = text(single(share, 1.0, 10, "#e8a33d", DARK))
    assert bar.count("█") == full
    assert width(bar) == 10


def test_fit_counts_cells_not_characters() -> None:
    assert width(fit("漢字漢字", 5)) == 5
    assert fit("abc", 6, True) == "   abc"
    assert fit("abcdef", 4) == "abc…"


@pytest.mark.parametrize("theme", ["dark", "light", "ansi"])
def test_letters_of_grey_states_are_as_light_as_other_quiet_text(theme: str) -> None:
    drawn = palette(theme)
    assert {drawn.state_text(name) for name in ("L**", "???", "H??")} == {drawn.muted}
    assert drawn.state_text("HHM") == drawn.state("HHM") != drawn.muted
