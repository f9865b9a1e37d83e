"""Small pictures in text: a curve and a scatter on a grid of cells, drawn with block glyphs (or plain characters)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from rich.segment import Segment

from tui.cells import fit, width
from tui.palette import Palette

# Braille needs fonts that plain consoles lack: quadrants of a cell, two columns by two rows, are in almost every font.
_QUADRANTS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"


def curve(
    points: Sequence[tuple[float, float]],
    cells: int,
    rows: int,
    palette: Palette,
    colour: str,
    *,
    title: str,
    y_label: str,
    x_label: str,
    x_max: float,
) -> list[list[Segment]]:
    """A falling or rising line through points (x, y in 0-100) with axes; ``rows`` includes title and axis."""
    left = 5
    room, height = max(cells - left - 1, 4), max(rows - 3, 2)
    dots = [[0] * room for _ in range(height)]
    scale = max(x_max, 1e-9)
    for column in range(room * 2):
        x = column / (room * 2 - 1) * scale
        y = _at(points, x)
        row = min(max(round((1 - y / 100) * (height * 2 - 1)), 0), height * 2 - 1)
        dots[row // 2][column // 2] |= 1 << (2 * (row % 2) + column % 2)
    out = [[Segment(fit(title, cells), palette.style(palette.text, bold=True))]]
    for index, line in enumerate(dots):
        value = 100 * (1 - index / max(height - 1, 1))
        label = f"{value:3.0f} " if index in (0, height // 2, height - 1) else "    "
        glyphs = "".join(("*" if bits else " ") if palette.ascii else _QUADRANTS[bits] for bits in line)
        out.append(
            [
                Segment(label + ("|" if palette.ascii else "│"), palette.style(palette.muted)),
                Segment(glyphs, palette.style(colour)),
            ]
        )
    out.append(
        [
            Segment(
                "    " + ("+" if palette.ascii else "└") + ("-" if palette.ascii else "─") * room,
                palette.style(palette.muted),
            )
        ]
    )
    right = f"{scale:,.0f}"
    axis = fit(f"{y_label} / {x_label}", room - width(right) - 1) + right.rjust(width(right) + 1)
    out.append([Segment(" " * left + axis, palette.style(palette.muted))])
    return out


def _at(points: Sequence[tuple[float, float]], x: float) -> float:
    """Linear between points, flat outside."""
    if not points:
        return 0.0
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * ((x - x0) / (x1 - x0) if x1 > x0 else 1.0)
    return points[-1][1]


def scatter(
    points: Sequence[tuple[float, float, str, str]],
    roof: tuple[float, float] | None,
    cells: int,
    rows: int,
    palette: Palette,
) -> list[list[Segment]]:
    """A log-log scatter of (intensity FLOP/B, TFLOP/s, letter, colour), with the roof of (peak TFLOP/s, peak GB/s).

    Later points are drawn over earlier ones: give the largest last.
    """
    left = 7
    room, height = max(cells - left, 8), max(rows - 3, 3)
    good = [p for p in points if p[0] > 0 and p[1] > 0 and math.isfinite(p[0]) and math.isfinite(p[1])]
    if not good:
        return [[Segment("No kernel with operations and bytes.", palette.style(palette.muted))]]
    xs = [math.log10(p[0]) for p in good]
    ys = [math.log10(p[1]) for p in good]
    if roof is not None:
        ys.append(math.log10(roof[0]))
        xs.append(math.log10(roof[0] * 1000 / roof[1]))
    x0, x1 = math.floor(min(xs)), max(math.ceil(max(xs)), math.floor(min(xs)) + 1)
    y0, y1 = math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1)
    y0 = max(y0, y1 - 7)
    grid: list[list[tuple[str, str]]] = [[(" ", "")] * room for _ in range(height)]
    if roof is not None:
        for column in range(room):
            intensity = 10 ** (x0 + (x1 - x0) * column / (room - 1))
            top = math.log10(min(roof[0], intensity * roof[1] / 1000))
            row = round((y1 - top) / (y1 - y0) * (height - 1))
            if 0 <= row < height:
                grid[row][column] = ("-" if palette.ascii else "─", palette.muted)
    for x, y, letter, colour in good:
        column = round((math.log10(x) - x0) / (x1 - x0) * (room - 1))
        row = round((y1 - math.log10(y)) / (y1 - y0) * (height - 1))
        if 0 <= row < height and 0 <= column < room:
            grid[row][column] = (letter, colour)
    out = [[Segment(fit("TFLOP/s over FLOP/B, both by powers of ten", cells), palette.style(palette.text, bold=True))]]
    # Only the rows of powers of ten are labelled: a figure in between would look measured.
    labels = {round((y1 - power) / (y1 - y0) * (height - 1)): f"{10.0**power:g}" for power in range(y0, y1 + 1)}
    for index, line in enumerate(grid):
        label = labels.get(index, "")
        segments = [Segment(fit(label, 6, True) + ("|" if palette.ascii else "│"), palette.style(palette.muted))]
        segments += [Segment(sign, palette.style(colour, bold=sign.isalpha())) for sign, colour in line]
        out.append(segments)
    out.append(
        [
            Segment(
                " " * 6 + ("+" if palette.ascii else "└") + ("-" if palette.ascii else "─") * room,
                palette.style(palette.muted),
            )
        ]
    )
    ends = f"{10.0**x0:g}", f"{10.0**x1:g} FLOP/B"
    out.append(
        [
            Segment(
                " " * left + ends[0] + " " * max(room - len(ends[0]) - len(ends[1]), 1) + ends[1],
                palette.style(palette.muted),
            )
        ]
    )
    return out
