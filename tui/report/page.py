"""The report as one page that holds everything it needs. Nothing is fetched: its own security policy forbids it.

The one script sorts tables; the policy admits it by its hash. Without scripts the page reads as well.
"""

from __future__ import annotations

import base64
import hashlib
import html
from importlib import resources
from typing import TYPE_CHECKING

from profilers.rules.names import short_names, visible
from tui.advice_text import CAVEAT, blocks
from tui.export.columns import Written, exact, for_people
from tui.format import numeric
from tui.palette import DARK, LIGHT, Palette
from tui.report import pictures
from tui.report.content import Content, Section

if TYPE_CHECKING:
    import pandas as pd

ROWS = 200
"""As many rows of a table are in the page; it says how many more there are and which command has them."""


def render(content: Content) -> bytes:
    """The page, UTF-8."""
    style, script = _asset("page.css") + _colours(content), _asset("sort.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = html.escape(content.title)
    facts = "".join(f"<dt>{html.escape(label)}</dt><dd>{html.escape(value)}</dd>" for label, value in content.facts)
    links = "".join(f'<a href="#{s.table.name}">{html.escape(s.heading)}</a>' for s in content.sections)
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title} · kernelscope</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        f"<header><h1>{title}</h1><dl>{facts}</dl><nav>{links}</nav></header>",
        '<section id="overview">',
        pictures.bars(content.shares),
        pictures.group_legend(content.shares) if content.shares else "",
        pictures.strip(content.strip),
        "</section>",
        *(_section(section) for section in content.sections),
        "<footer>Made by kernelscope. Times in the unit of their heading; every percentage says of what.</footer>",
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(line for line in lines if line) + "\n").encode()


def _asset(name: str) -> str:
    return resources.files("tui.report").joinpath(name).read_text(encoding="utf-8")


def _section(section: Section) -> str:
    inner = _findings(section.frame) if section.table.name == "advice" else _picture(section) + _table(section)
    head = f'<h2>{html.escape(section.heading)}</h2><p class="question">{html.escape(section.table.question)}</p>'
    return f'<section id="{section.table.name}">{head}{inner}</section>'


def _findings(frame: pd.DataFrame) -> str:
    out = []
    for block in blocks(frame):
        lines = "".join(f"<dt>{label}</dt><dd>{html.escape(text)}</dd>" for label, text in block.lines)
        out.append(
            f"<article><h3>{html.escape(block.title)} <b>{html.escape(block.buys)}</b></h3><dl>{lines}</dl></article>"
        )
    return f'{"".join(out)}<p class="more">{html.escape(CAVEAT)}</p>'


def _picture(section: Section) -> str:
    frame = section.frame
    if section.table.name == "kernels":
        return pictures.tail([float(value) for value in frame["time_us"]])
    if section.table.name == "roofline":
        names = short_names([str(name) for name in frame["name"]])
        columns = (frame["intensity"], frame["tflops_per_s"], frame["group"].astype(str), names)
        return pictures.scatter(
            [(float(x), float(y), g, visible(n)) for x, y, g, n in zip(*columns, strict=True)][:500]
        )
    return ""


def _table(section: Section) -> str:
    frame = section.frame.head(ROWS)
    columns = for_people(frame, section.table)
    cells = [_cells(c, exact(frame.iloc[:, place])) for place, c in enumerate(columns)]
    rows = "\n".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    head = "".join(_head(c) for c in columns)
    more = len(section.frame) - len(frame)
    left = f"{len(frame):,} of {len(section.frame):,} rows; all of them: kernelscope show RUN {section.table.name}"
    note = f'<p class="more">{html.escape(left)}</p>' if more else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>{note}'


def _head(written: Written) -> str:
    kind = ' class="right"' if numeric(written.column) else ""
    of = f"<small>{html.escape(written.of)}</small>" if written.of else ""
    return f'<th scope="col"{kind}><button type="button">{html.escape(written.title)}</button>{of}</th>'


def _cells(written: Written, values: list[object]) -> list[str]:
    kind = written.column.format
    if kind == "name":
        return _names([str(value) if value is not None else "" for value in values])
    texts = [html.escape(text) for text in written.cells]
    if numeric(written.column):
        return [_number(text, value, kind == "pct") for text, value in zip(texts, values, strict=True)]
    if kind == "group":
        return [
            f'<td class="group {pictures.group_class(str(value))}">{text}</td>'
            for text, value in zip(texts, values, strict=True)
        ]
    if kind == "state":
        return [
            f'<td class="group {pictures.state_class(str(value))}">{text}</td>'
            for text, value in zip(texts, values, strict=True)
        ]
    return [f"<td>{text}</td>" for text in texts]


def _number(text: str, value: object, share: bool) -> str:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    exact_value = repr(value).replace("inf", "Infinity")  # as a script reads it
    data = f' data-value="{exact_value}"' if known else ""
    part = f' style="--part:{min(max(float(value), 0.0), 100.0):.1f}%"' if known and share else ""  # type: ignore[arg-type]
    return f'<td class="right{" pct" if part else ""}"{part}{data}>{text}</td>'


def _names(names: list[str]) -> list[str]:
    """Short names that open to the whole ones."""
    distinct = list(dict.fromkeys(names))
    short = dict(zip(distinct, short_names(distinct), strict=True))
    out = []
    for name in names:
        whole, brief = html.escape(visible(name)), html.escape(visible(short[name]))
        inner = brief if brief == whole else f"<details><summary>{brief}</summary>{whole}</details>"
        out.append(f'<td class="name">{inner}</td>')
    return out


def _colours(content: Content) -> str:
    """Classes of the groups and states that occur: light, dark, and light again on paper."""
    groups = {name for share in content.shares for name, _ in share.parts} | {"matmul"}
    states = {name for name, _ in content.strip.legend} | {name for name, _, _ in content.strip.cells if name}
    for section in content.sections:
        for column in section.table.columns:
            if column.format in ("group", "state"):
                found = {str(value) for value in section.frame[column.name].unique()}
                groups, states = (groups | found, states) if column.format == "group" else (groups, states | found)

    def sheet(palette: Palette) -> str:
        rules = [f".{pictures.group_class(name)} {{ --of: {palette.group(name)}; }}" for name in sorted(groups)]
        rules += [f".{pictures.state_class(name)} {{ --of: {palette.state(name)}; }}" for name in sorted(states)]
        return "\n".join(rules) + "\n"

    return sheet(LIGHT) + "@media screen and (prefers-color-scheme: dark) {\n" + sheet(DARK) + "}\n"
