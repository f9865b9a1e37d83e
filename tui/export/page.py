"""HTML: one page that holds everything it needs, for a browser, a mail or a wiki. No script, nothing fetched."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING

from profilers.analysis.registry import Table
from profilers.rules.names import visible
from tui.export.columns import Written, exact, for_people
from tui.format import numeric
from tui.palette import DARK, LIGHT, Palette

if TYPE_CHECKING:
    import pandas as pd

_STYLE = """
:root { color-scheme: light dark; --text: #24272e; --muted: #5d636e; --rule: #d9dce1; --page: #fff; --bar: #f5e3c3; }
@media (prefers-color-scheme: dark) {
  :root { --text: #d7dae0; --muted: #8b919c; --rule: #363b44; --page: #16181d; --bar: #4a3a1f; }
}
body { margin: 2rem; background: var(--page); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.25rem; margin: 0; }
p { margin: .25rem 0; color: var(--muted); }
table { border-collapse: collapse; margin-top: 1rem; font-variant-numeric: tabular-nums; }
th { text-align: left; vertical-align: bottom; border-bottom: 1px solid var(--muted); padding: .3rem .6rem; }
th small { display: block; color: var(--muted); font-weight: 400; }
td { border-bottom: 1px solid var(--rule); padding: .2rem .6rem; vertical-align: top; }
.right { text-align: right; white-space: nowrap; }
.name { font: 12px/1.6 ui-monospace, monospace; overflow-wrap: anywhere; min-width: 18rem; max-width: 60rem; }
.pct { background: linear-gradient(to right, var(--bar) var(--part), transparent var(--part)); }
.group { white-space: nowrap; }
.group::before { content: ""; display: inline-block; width: .7em; height: .7em; margin-right: .45em;
  background: var(--of-group); }
"""


def render(frame: pd.DataFrame, table: Table, meta: Mapping[str, str]) -> bytes:
    """The frame as a page. Cells are as on the screen; ``data-value`` holds the exact number."""
    columns = for_people(frame, table)
    cells = [_cells(c, exact(frame.iloc[:, position])) for position, c in enumerate(columns)]
    title = meta.get("title", "") or table.name
    about = [f"{key}: {value}" for key, value in meta.items() if key != "title"]
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title)} · {_text(table.name)}</title>",
        f"<style>{_STYLE}{_colours(frame)}</style>",
        "</head>",
        "<body>",
        f"<h1>{_text(title)} · {_text(table.name)}</h1>",
        *(f"<p>{_text(line)}</p>" for line in (table.question, *about) if line),
        "<table>",
        f"<thead><tr>{''.join(_head(c) for c in columns)}</tr></thead>",
        "<tbody>",
        *(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True)),
        "</tbody>",
        "</table>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(lines) + "\n").encode()


def _text(text: str) -> str:
    return html.escape(visible(text))


def _head(written: Written) -> str:
    kind = ' class="right"' if numeric(written.column) else ""
    of = f"<small>{html.escape(written.of)}</small>" if written.of else ""
    return f"<th{kind}>{html.escape(written.title)}{of}</th>"


def _cells(written: Written, values: list[object]) -> list[str]:
    texts = [html.escape(text) for text in written.cells]
    format = written.column.format
    if format == "pct":
        return [_share(text, value) for text, value in zip(texts, values, strict=True)]
    if numeric(written.column):
        return [f'<td class="right"{_value(value)}>{text}</td>' for text, value in zip(texts, values, strict=True)]
    if format == "group":
        return [f'<td class="group g-{_slug(value)}">{text}</td>' for text, value in zip(texts, values, strict=True)]
    if format == "name":
        return [f'<td class="name">{text}</td>' for text in texts]
    return [f"<td>{text}</td>" for text in texts]


def _value(value: object) -> str:
    return "" if value is None else f' data-value="{value!r}"'


def _share(text: str, value: object) -> str:
    if not isinstance(value, int | float):
        return f'<td class="right">{text}</td>'
    part = min(max(float(value), 0.0), 100.0)
    return f'<td class="right pct" style="--part:{part:.1f}%"{_value(value)}>{text}</td>'


def _slug(value: object) -> str:
    """A class name for a group: groups may come from a person's own rules, so only letters, digits and dashes pass."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in str(value))


def _colours(frame: pd.DataFrame) -> str:
    if "group" not in frame.columns:
        return ""
    names = sorted({str(value) for value in frame["group"].unique() if value == value})
    return _sheet(names, LIGHT) + "@media (prefers-color-scheme: dark) {\n" + _sheet(names, DARK) + "}\n"


def _sheet(names: list[str], palette: Palette) -> str:
    return "".join(f".g-{_slug(name)} {{ --of-group: {palette.group(name)}; }}\n" for name in names)
