"""A section's table as HTML: sortable, long names folded, and what paper and a phone leave out said below it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from profilers.rules.names import short_names, visible
from tui.export.columns import Written, exact, for_people
from tui.format import numeric
from tui.report.pictures import group_class, state_class

if TYPE_CHECKING:
    from tui.report.content import Section

ROWS = 200
"""As many rows of a table are in the page; it says how many more there are and which command has them."""

PAPER_ROWS = 40
"""As many of them are printed (the style sheet hides the others there)."""

_SHORT = 12
"""A table of at most so many rows is never cut by the end of a page."""

_NO_BAR = frozenset({"cum_pct", "known_pct"})
"""Percentages without a bar: rows of a running total, or of how much is known, are no parts of one whole."""

_UPRIGHT = 3
"""A summary of at most so many devices stands upright: a line a figure, which fits paper and a phone."""


def table(section: Section) -> str:
    """The table of a section with the lines that belong below it."""
    frame = section.frame.head(ROWS)
    columns = for_people(frame, section.table)
    cells = [_cells(c, exact(frame.iloc[:, place])) for place, c in enumerate(columns)]
    if section.table.name == "summary" and len(frame) <= _UPRIGHT:
        return _upright(columns, cells)
    rows = "\n".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    head = "".join(_head(c) for c in columns)
    kind = ' class="short"' if len(frame) <= _SHORT else ""
    body = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    return f'<div class="scroll">{body}</div>{_below(section, len(frame), columns)}'


def _below(section: Section, shown: int, columns: list[Written]) -> str:
    out = []
    whole = len(section.frame)
    if whole > shown:
        left = f"{shown:,} of {whole:,} rows; all of them: kernelscope show RUN {section.table.name}"
        out.append(f'<p class="more">{html.escape(left)}</p>')
    if shown > PAPER_ROWS:
        out.append(f'<p class="more paper">On paper the first {PAPER_ROWS} of {whole:,} rows.</p>')
    wide = [c.title for c in columns if c.column.wide]
    if wide:
        out.append(f'<p class="more folded">Only on a wide screen: {html.escape(", ".join(wide))}.</p>')
    return "".join(out)


def _upright(columns: list[Written], cells: list[list[str]]) -> str:
    """A row a column: its title, then a cell a row."""
    rows = []
    for written, values in zip(columns, cells, strict=True):
        of = f" <small>{html.escape(written.of)}</small>" if written.of else ""
        rows.append(f'<tr><th scope="row">{html.escape(written.title)}{of}</th>{"".join(values)}</tr>')
    body = "\n".join(rows)
    return f'<div class="scroll"><table class="upright"><tbody>\n{body}\n</tbody></table></div>'


def _head(written: Written) -> str:
    kind = _class(written, "right" if numeric(written.column) else "")
    of = f"<small>{html.escape(written.of)}</small>" if written.of else ""
    return f'<th scope="col"{kind}><button type="button">{html.escape(written.title)}</button>{of}</th>'


def _class(written: Written, *names: str) -> str:
    held = [name for name in (*names, "wide" if written.column.wide else "") if name]
    return f' class="{" ".join(held)}"' if held else ""


def _cells(written: Written, values: list[object]) -> list[str]:
    kind = written.column.format
    if kind == "name":
        return _names(written, [str(value) if value is not None else "" for value in values])
    texts = [html.escape(text) for text in written.cells]
    if numeric(written.column):
        return [_number(written, text, value) for text, value in zip(texts, values, strict=True)]
    if kind in ("group", "state"):
        classes = [(group_class if kind == "group" else state_class)(str(value)) for value in values]
        return [f"<td{_class(written, 'group', c)}>{text}</td>" for text, c in zip(texts, classes, strict=True)]
    return [f"<td{_class(written)}>{text}</td>" for text in texts]


def _number(written: Written, text: str, value: object) -> str:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    exact_value = repr(value).replace("inf", "Infinity")  # as a script reads it
    data = f' data-value="{exact_value}"' if known else ""
    share = written.column.format == "pct" and written.column.name not in _NO_BAR
    part = f' style="--part:{min(max(float(value), 0.0), 100.0):.1f}%"' if known and share else ""  # type: ignore[arg-type]
    return f"<td{_class(written, 'right', 'pct' if part else '')}{part}{data}>{text}</td>"


def _names(written: Written, names: list[str]) -> list[str]:
    """Short names that open to the whole ones."""
    distinct = list(dict.fromkeys(names))
    short = dict(zip(distinct, short_names(distinct), strict=True))
    out = []
    for name in names:
        whole, brief = html.escape(visible(name)), html.escape(visible(short[name]))
        inner = brief if brief == whole else f"<details><summary>{brief}</summary>{whole}</details>"
        out.append(f"<td{_class(written, 'name')}>{inner}</td>")
    return out
