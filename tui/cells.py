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
