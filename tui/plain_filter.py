"""With ``--ascii``, the last look at every line before it is written: one plain character for each cell that is not ASCII.

Widgets of ours draw plain characters themselves, and better ones; this catches titles, hints and what users typed.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_ONE = {
    "·": "|",
    "…": "~",
    "–": "-",
    "—": "-",
    "−": "-",
    "µ": "u",
    "μ": "u",
    "×": "x",
    "≈": "~",
    "±": "~",
    "≤": "<",
    "≥": ">",
    "∞": "8",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "⏎": "<",
    "Σ": "S",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    "🔎": "  ",
    "▔": "-",
    "▁": "_",
}


def plain_cells(text: str) -> str:
    """The text in ASCII, as many cells wide as it was; ``?`` for what has no plain sign."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else _ONE.get(c) or _drawn(c) or "?" * cell_len(c) for c in text)


def _drawn(char: str) -> str:
    """A plain sign for lines and blocks that Textual's own widgets draw; '' for what is none of them."""
    if "\u2500" <= char <= "\u257f":
        return "-" if char in "─━═" else "|" if char in "│┃║" else "+"
    return "#" if "\u2580" <= char <= "\u259f" else ""


class PlainCells(LineFilter):
    """Applied by Textual to each line of each widget."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [s if s.control or s.text.isascii() else Segment(plain_cells(s.text), s.style) for s in segments]
