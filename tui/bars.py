"""Bars as text segments: pure functions over numbers, used by every pane. A cell is divided into eighths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment

from tui.palette import Palette


@dataclass(frozen=True)
class Slice:
    """A part of a bar: its value, the colour it has, and the letter that stands for it."""

    value: float
    colour: str
    letter: str = ""
    hatched: bool = False
    """Drawn as faint dots: idle time is an absence, not a colour."""


def stacked(slices: Sequence[Slice], width: int, palette: Palette, total: float | None = None) -> list[Segment]:
    """A stacked bar of exactly ``width`` cells. ``total`` (default: the sum) fills the whole width; the rest stays blank.

    With colour, slices meet inside a cell to an eighth, and a slice of three cells or more carries its letter. In ASCII,
    and without colour, every cell shows the letter of the slice with most of it.
    """
    whole = total if total is not None else sum(s.value for s in slices)
    if width <= 0:
        return []
    if whole <= 0:
        return [Segment(" " * width)]
    edges = [0.0]
    for part in slices:
        edges.append(edges[-1] + max(part.value, 0.0) / whole * width)
    if palette.ascii or not palette.colour:
        return _lettered(slices, edges, width, palette)
    return _blocked(slices, edges, width, palette)


def _lettered(slices: Sequence[Slice], edges: list[float], width: int, palette: Palette) -> list[Segment]:
    cells = [" "] * width
    styles = [palette.style()] * width
    for index, part in enumerate(slices):
        first, last = round(edges[index]), min(round(edges[index + 1]), width)
        sign = palette.mark("idle") if part.hatched else (part.letter or "#")
        for cell in range(first, last):
            cells[cell] = sign
            styles[cell] = palette.style(part.colour)
    return merged([Segment(cell, style) for cell, style in zip(cells, styles, strict=True)])


def _blocked(slices: Sequence[Slice], edges: list[float], width: int, palette: Palette) -> list[Segment]:
    owners = [_owner(slices, edges, cell) for cell in range(width)]
    out: list[Segment] = []
    shown: set[int] = set()
    for left, eighths, right in owners:
        if left is None:
            out.append(Segment(" "))
            continue
        part = slices[left]
        if eighths >= 8 or right == left:
            letter = " "
            size = edges[left + 1] - edges[left]
            if left not in shown and part.letter and size >= 3 and not part.hatched:
                letter = part.letter
                shown.add(left)
            if part.hatched:
                out.append(Segment(palette.mark("idle"), palette.style(palette.faint)))
            else:
                out.append(Segment(letter, palette.style(palette.ink, part.colour, bold=True)))
            continue
        after = "" if right is None or slices[right].hatched else slices[right].colour
        if part.hatched:
            out.append(Segment(palette.mark("idle"), palette.style(palette.faint)))
        elif eighths == 0:
            out.append(Segment(" ", palette.style("", after)))
        else:
            out.append(Segment(palette.blocks[eighths], palette.style(part.colour, after)))
    return merged(out)


def _owner(slices: Sequence[Slice], edges: list[float], cell: int) -> tuple[int | None, int, int | None]:
    """The slice at the left of a cell, how many eighths of the cell it fills, and the slice that follows."""
    left = None
    for index in range(len(slices)):
        if edges[index] <= cell + 1e-9 and edges[index + 1] > cell + 1e-9:
            left = index
            break
    if left is None:
        return None, 0, None
    end = edges[left + 1]
    if end >= cell + 1 - 1e-9:
        return left, 8, left
    eighths = int((end - cell) * 8 + 0.5)
    right = None
    for index in range(left + 1, len(slices)):
        if edges[index + 1] - edges[index] > 1e-9:
            right = index
            break
    if eighths == 8:
        return left, 8, left
    return left, eighths, right


def single(value: float, total: float, width: int, colour: str, palette: Palette, track: str = "") -> list[Segment]:
    """One bar from the left, to an eighth of a cell; ``track`` colours what is left of the width."""
    if width <= 0:
        return []
    share = 0.0 if total <= 0 or value != value else min(max(value / total, 0.0), 1.0)
    if palette.ascii:
        full = round(share * width)
        return [
            Segment("#" * full, palette.style(colour)),
            Segment(("-" if track else " ") * (width - full), palette.style(palette.faint)),
        ]
    eighths = round(share * width * 8)
    full, part = divmod(eighths, 8)
    out = [Segment("█" * full, palette.style(colour, track if part == 0 and not full else ""))]
    rest = width - full
    if part and rest:
        out.append(Segment(palette.blocks[part], palette.style(colour, track)))
        rest -= 1
    if rest:
        out.append(Segment(" " * rest, palette.style("", track)))
    return out


def progress(share: float, width: int, palette: Palette, back: str = "") -> list[Segment]:
    """A thin progress line; ``back`` is the colour behind it."""
    if width <= 0:
        return []
    done = round(min(max(share, 0.0), 1.0) * width)
    return [
        Segment(palette.mark("rule") * done, palette.style(palette.good, back)),
        Segment(palette.mark("rule_dim") * (width - done), palette.style(palette.faint, back)),
    ]


def merged(segments: list[Segment]) -> list[Segment]:
    """Neighbours of one style become one segment: fewer bytes to the terminal."""
    out: list[Segment] = []
    for segment in segments:
        if out and out[-1].style == segment.style:
            out[-1] = Segment(out[-1].text + segment.text, segment.style)
        else:
            out.append(segment)
    return out
