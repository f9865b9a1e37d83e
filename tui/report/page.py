"""The report as one page that holds everything it needs. Nothing is fetched: its own security policy forbids it.

The one script sorts tables; the policy admits it by its hash. Without scripts the page reads as well.
"""

from __future__ import annotations

import base64
import hashlib
import html
from importlib import resources
from typing import TYPE_CHECKING

from tui.advice_text import CAVEAT, blocks
from tui.palette import DARK, LIGHT, Palette
from tui.report import curves, pictures, roofline, tail
from tui.report.content import Content, Section
from tui.report.tables import table

if TYPE_CHECKING:
    import pandas as pd

_FOOTER = (
    "Made by kernelscope. Times in the unit of their heading; every percentage says of what; ≈ and 'estimate' mark what was "
    "not measured. Names are shortened: open one to read it whole; kernelscope show has every table with whole names."
)

_INK = ("#ffffff", "#16181d")
"""What letters on a colour are written in: whichever can be read better."""


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
        pictures.bars(content.shares, content.of),
        pictures.group_legend(content.shares) if content.shares else "",
        pictures.strip(content.strip, content.states_how),
        "</section>",
        *(_section(section, content) for section in content.sections),
        *(f'<p class="more">{html.escape(line)}</p>' for line in content.missing),
        f"<footer>{_FOOTER}</footer>",
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(line for line in lines if line) + "\n").encode()


def _asset(name: str) -> str:
    return resources.files("tui.report").joinpath(name).read_text(encoding="utf-8")


def _section(section: Section, content: Content) -> str:
    inner = _findings(section.frame) if section.table.name == "advice" else _picture(section, content) + table(section)
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


def _picture(section: Section, content: Content) -> str:
    name = section.table.name
    if name == "kernels":
        return tail.picture([float(value) for value in section.frame["time_us"]])
    if name == "roofline_groups":
        return roofline.picture(content.frame("gemms"), section.frame, content.frame("roofs"))
    return curves.picture(content.telemetry, dict(content.devices)) if name == "telemetry" else ""


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
        colours = [(pictures.group_class(name), palette.group(name)) for name in sorted(groups)]
        colours += [(pictures.state_class(name), palette.state(name)) for name in sorted(states)]
        return "\n".join(f".{cls} {{ --of: {of}; --on: {ink(of)}; }}" for cls, of in colours) + "\n"

    return sheet(LIGHT) + "@media screen and (prefers-color-scheme: dark) {\n" + sheet(DARK) + "}\n"


def ink(colour: str) -> str:
    """Of :data:`_INK` the one with more contrast on this colour (``#rrggbb``), by WCAG's relative luminance."""
    return max(_INK, key=lambda one: contrast(one, colour))


def contrast(one: str, other: str) -> float:
    """From 1 (the same) to 21 (black on white), as WCAG 2 defines it."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
