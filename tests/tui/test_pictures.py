"""Pictures in text: as large as asked, on the scale that their labels say."""

from __future__ import annotations

import pytest
from rich.segment import Segment

from tui import pictures
from tui.cells import width
from tui.palette import palette

DARK, PLAIN = palette("dark"), palette("dark", ascii=True)


def text(line: list[Segment]) -> str:
    return "".join(segment.text for segment in line)


@pytest.mark.parametrize("cells", [20, 56, 90])
@pytest.mark.parametrize("rows", [6, 12, 22])
def test_a_curve_fills_its_box(cells: int, rows: int) -> None:
    lines = pictures.curve(
        [(0, 0), (10, 90), (100, 100)],
        cells,
        rows,
        DARK,
        "#e8a33d",
        title="t",
        y_label="%",
        x_label="kernels",
        x_max=100,
    )
    assert len(lines) == rows
    assert all(width(text(line)) <= cells for line in lines)
    assert text(lines[1]).startswith("100 ")


def test_a_curve_rises_where_its_points_do() -> None:
    lines = pictures.curve(
        [(0, 0), (50, 100), (100, 100)], 46, 13, PLAIN, "", title="", y_label="", x_label="", x_max=100
    )
    body = [text(line)[5:] for line in lines[1:-2]]
    assert "*" in body[0][25:]  # at the top from the middle on
    assert "*" not in body[-1][10:]  # and never back at the bottom


def test_a_scatter_labels_powers_of_ten_and_puts_points_between_them() -> None:
    points = [(10.0, 100.0, "G", "#e8a33d"), (1.0, 0.1, "e", "#5b8db8")]
    lines = pictures.scatter(points, (1000.0, 3000.0), 60, 20, PLAIN)
    labels = [label for line in lines[1:-2] if (label := text(line)[:6].strip())]
    assert labels == ["1000", "100", "10", "1", "0.1"]
    row_of = {sign: next(i for i, line in enumerate(lines[1:-2]) if sign in text(line)[7:]) for sign in "Ge"}
    label_rows = {text(line)[:6].strip(): i for i, line in enumerate(lines[1:-2]) if text(line)[:6].strip()}
    assert row_of["G"] == label_rows["100"]
    assert row_of["e"] == label_rows["0.1"]


def test_nothing_to_show_is_said() -> None:
    lines = pictures.scatter([(float("nan"), 1.0, "G", "")], None, 40, 10, DARK)
    assert "No kernel" in text(lines[0])
