"""LaTeX: a plain ``tabular`` that needs no package, cells as on the screen, names whole and breakable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from profilers.analysis.registry import Table
from tui.export.columns import Written, for_people
from tui.format import numeric

if TYPE_CHECKING:
    import pandas as pd

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "`": r"\char96{}",
    "–": r"\textendash{}",
    "−": "$-$",
    "µ": r"$\mu$",
    "×": r"$\times$",
    "Σ": r"$\Sigma$",
    "∞": r"$\infty$",
    "·": r"$\cdot$",
}
# Where a long name may go to the next line: after what separates its parts.
_BREAKS = re.compile(r"(::|\\textless\{\}|\\textgreater\{\}|,|\\_|\()")


def render(frame: pd.DataFrame, table: Table, meta: Mapping[str, str]) -> bytes:
    """The frame as a ``tabular``; a column of names is a paragraph, and comments say what the table is."""
    columns = for_people(frame, table)
    layout = "".join(_layout(c) for c in columns)
    heads = [" & ".join(escape(c.title) for c in columns)]
    if any(c.of for c in columns):
        heads.append(" & ".join(rf"{{\scriptsize {escape(c.of)}}}" if c.of else "" for c in columns))
    cells = [_cells(c) for c in columns]
    lines = [
        *(f"% {line}" for line in _comment(table, meta)),
        rf"\begin{{tabular}}{{{layout}}}",
        r"\hline",
        *(f"{head} \\\\" for head in heads),
        r"\hline",
        *(f"{' & '.join(row)} \\\\" for row in zip(*cells, strict=True)),
        r"\hline",
        r"\end{tabular}",
    ]
    return ("\n".join(lines) + "\n").encode()


def _layout(written: Written) -> str:
    if written.column.format == "name":
        return r"p{0.4\linewidth}"
    return "r" if numeric(written.column) else "l"


def _comment(table: Table, meta: Mapping[str, str]) -> list[str]:
    lines = [f"{table.name}: {table.question}" if table.question else table.name]
    lines += [f"{key}: {value}" for key, value in meta.items()]
    return [" ".join(line.split()) for line in lines]


def _cells(written: Written) -> list[str]:
    if written.column.format != "name":
        return [escape(text) for text in written.cells]
    return [rf"{{\raggedright\ttfamily {_BREAKS.sub(_breakable, escape(text))}\par}}" for text in written.cells]


def _breakable(found: re.Match[str]) -> str:
    return found.group() + r"\allowbreak{}"


def escape(text: str) -> str:
    """Text in which LaTeX finds nothing to interpret. Letters outside ASCII stay (today's LaTeX reads UTF-8)."""
    escaped = "".join(_ESCAPES.get(char, char) for char in text)
    return re.sub(r"-(?=-)", "-{}", escaped)  # two hyphens would be set as a dash
