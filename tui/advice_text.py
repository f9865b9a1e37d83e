"""The findings as text: one block each, the same on the screen and on the command line."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profilers.rules.names import visible
from tui import format as fmt

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "No change was found that would buy 2 % or more."
CAVEAT = "Each gain is of that change alone, at best; gains do not add up."


@dataclass(frozen=True)
class Block:
    """A finding: its title, what it would buy, and the labelled lines below."""

    title: str
    buys: str
    lines: tuple[tuple[str, str], ...]


def blocks(frame: pd.DataFrame, ascii: bool = False) -> list[Block]:
    """The rows of the ``advice`` table as blocks."""
    times = "x" if ascii else "×"
    gain = fmt.writer("ratio", ascii=ascii)

    def text(value: object) -> str:
        shown = visible(str(value))
        return fmt.ascii_text(shown) if ascii else shown

    return [
        Block(
            f"{number}  {text(row.finding)}",
            f"wall {gain(row.wall_speedup)}{times}   device {gain(row.device_speedup)}{times}",
            (("do", text(row.do)), ("evidence", text(row.evidence)), ("of", text(row.of))),
        )
        for number, row in enumerate(frame.itertuples(index=False), start=1)
    ]


def folded(block: Block, cells: int) -> list[tuple[str, str]]:
    """The labelled lines of a block, folded to so many cells: (label or '', text)."""
    out: list[tuple[str, str]] = []
    for label, text in block.lines:
        parts = textwrap.wrap(text, max(cells - 13, 20)) or [""]
        out += [(label if index == 0 else "", part) for index, part in enumerate(parts)]
    return out
