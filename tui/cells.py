"""Text fitted to terminal cells: widths are cell widths, never string lengths."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

GAP = 2
"""Blank cells between two columns of a table."""


def width(text: str) -> int:
    """Terminal cells that a text takes."""
    return cell_len(text)


def fit(text: str, cells: int, right: bool = False, *, ellipsis: str = "…") -> str:
    """The text in exactly ``cells`` cells: padded, or cut with a sign that it was cut."""
    size = cell_len(text)
    if size == cells:
        return text
    if size < cells:
        return " " * (cells - size) + text if right else text + " " * (cells - size)
    if cells <= len(ellipsis):
        return set_cell_size(text, cells)
    return set_cell_size(text, cells - len(ellipsis)) + ellipsis


def fit_middle(text: str, cells: int, *, ellipsis: str = "…") -> str:
    """As :func:`fit`, but the middle is cut and both ends stay: kernel names tell each other apart at their ends."""
    if cell_len(text) <= cells or cells < 8:
        return fit(text, cells, ellipsis=ellipsis)
    room = cells - len(ellipsis)
    head = set_cell_size(text, room - room // 2)
    tail = text[-1:]
    while len(tail) < len(text) and cell_len(text[-len(tail) - 1 :]) <= room // 2:
        tail = text[-len(tail) - 1 :]
    return fit(head + ellipsis + tail, cells)
