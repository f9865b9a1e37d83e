"""The table for a terminal, drawn by rich: short names, letters, the unit and 'of what' in the header."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table as Sheet
from rich.text import Text

from profilers.analysis.registry import Table
from profilers.rules.names import short_names, visible
from tui.export.columns import Written, for_people
from tui.format import ascii_text, numeric
from tui.palette import ANSI, CLASS_GROUP

if TYPE_CHECKING:
    import pandas as pd

GAP = 2
NARROW, NARROWER = 36, (24, 16, 12, 8)
"""Names and texts fold into lines of ``NARROW`` cells before a ``wide`` column gives way, and of fewer after that."""

_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_ASCII_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def render(
    frame: pd.DataFrame,
    table: Table,
    meta: Mapping[str, str],
    *,
    ascii: bool = False,
    width: int | None = None,
    colour: bool = False,
) -> bytes:
    """The frame for a terminal of ``width`` cells (None: as wide as it needs), headed by ``meta["title"]``.

    Where the width does not hold every column, those marked ``wide`` give way and a line below names them; names are
    folded, never cut. A table without rows says so.
    """
    columns = [_shortened(c, frame, ascii) for c in for_people(frame, table, ascii=ascii)]
    shown, hidden, widths = _fit(columns, width)
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(sum(widths) + GAP * len(widths), 20),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
        safe_box=False,
    )
    if title := meta.get("title"):
        title = visible(title)
        console.print(Text(ascii_text(title) if ascii else title, style="bold"), soft_wrap=True)
    if len(frame):
        console.print(_sheet(shown, widths, ascii))
    else:
        console.print(Text(f"{table.name}: no rows"), soft_wrap=True)
    if hidden and len(frame):
        names = ", ".join(c.column.name for c in hidden)
        console.print(Text(f"not shown in {width} columns: {names}", style="dim"), soft_wrap=True)
    return ("\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n").encode()


def _shortened(written: Written, frame: pd.DataFrame, ascii: bool) -> Written:
    if written.column.format != "name":
        return written
    names = [str(name) for name in frame[written.column.name].tolist()]
    distinct = list(dict.fromkeys(names))
    short = {name: visible(text) for name, text in zip(distinct, short_names(distinct), strict=True)}
    cells = [ascii_text(short[name]) if ascii else short[name] for name in names]
    return Written(written.column, written.title, written.of, cells)


def _folds(written: Written) -> bool:
    return written.column.format in ("name", "text")


def _widest(texts: Iterable[str]) -> int:
    return max((cell_len(text) for text in texts), default=0)


def _natural(written: Written) -> int:
    """Cells and title on one line each; what a percentage is of takes two or three."""
    return _widest((written.title, *textwrap.wrap(written.of, 16), *written.cells))


def _least(written: Written, folded: int) -> int:
    """The narrowest that shows everything: headings folded between words, names and texts into ``folded`` cells."""
    words = _widest((*written.title.split(), *written.of.split()))
    return max(words, min(_widest(written.cells), folded)) if _folds(written) else max(words, _widest(written.cells))


def _fit(columns: list[Written], width: int | None) -> tuple[list[Written], list[Written], list[int]]:
    """The columns that are shown, those that give way, and the widths of those shown."""
    natural = {id(c): _natural(c) for c in columns}
    if width is None:
        return columns, [], [natural[id(c)] for c in columns]
    least = {id(c): _least(c, NARROW) for c in columns}
    shown = list(columns)
    for written in reversed(columns):
        if _total(least, shown) > width and written.column.wide:
            shown.remove(written)
    for folded in NARROWER:
        if _total(least, shown) > width:
            least = {id(c): _least(c, folded) for c in columns}
    widths = {id(c): least[id(c)] for c in shown}
    for written in sorted(shown, key=_folds):  # numbers first: a folded heading is worse than a folded name
        spare = width - _total(widths, shown)
        widths[id(written)] += max(min(spare, natural[id(written)] - widths[id(written)]), 0)
    return shown, [c for c in columns if c not in shown], [widths[id(c)] for c in shown]


def _total(widths: Mapping[int, int], columns: list[Written]) -> int:
    return sum(widths[id(c)] + GAP for c in columns) - GAP


def _sheet(columns: list[Written], widths: list[int], ascii: bool) -> Sheet:
    box = _ASCII_RULE if ascii else _RULE
    sheet = Sheet(box=box, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), header_style="")
    for heading, written, width in zip(_headings(columns, widths), columns, widths, strict=True):
        side: JustifyMethod = "right" if numeric(written.column) else "left"
        sheet.add_column(heading, justify=side, width=width, no_wrap=not _folds(written), overflow="fold")
    styles = [[_style(c, text) for text in c.cells] for c in columns]
    for row in range(len(columns[0].cells)):
        sheet.add_row(*(Text(c.cells[row], style=styles[place][row]) for place, c in enumerate(columns)))
    return sheet


def _headings(columns: list[Written], widths: list[int]) -> list[Text]:
    """Headings folded to their widths and standing on the rule, whatever their number of lines."""
    folded = []
    for written, width in zip(columns, widths, strict=True):
        title = textwrap.wrap(written.title, width, break_long_words=False) or [""]
        folded.append((title, textwrap.wrap(written.of, width, break_long_words=False)))
    height = max(len(title) + len(of) for title, of in folded)
    out = []
    for title, of in folded:
        heading = Text("\n" * (height - len(title) - len(of)) + "\n".join(title), style="bold")
        if of:
            heading.append("\n" + "\n".join(of), style="not bold dim")
        out.append(heading)
    return out


def _style(written: Written, text: str) -> str:
    if written.column.format == "group":
        return ANSI.group(text.partition(" ")[2] or text)
    if written.column.format == "class":
        return ANSI.group(CLASS_GROUP[text]) if text in CLASS_GROUP else ""
    return ""
