"""Markdown: a table as GitHub and its kin read it, cells as on the screen, names whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from profilers.analysis.registry import Table
from tui.export.columns import for_people
from tui.format import numeric

if TYPE_CHECKING:
    import pandas as pd

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def render(frame: pd.DataFrame, table: Table, meta: Mapping[str, str]) -> bytes:
    """The frame as a Markdown table. Kernel and operator names are code, so that ``<`` and ``*`` in them survive."""
    columns = for_people(frame, table)
    titles = [escape(f"{c.title} {c.of}".strip()) for c in columns]
    rules = ["---:" if numeric(c.column) else ":---" for c in columns]
    cells = [[code(text) if c.column.format == "name" else escape(text) for text in c.cells] for c in columns]
    lines = [_line(titles), _line(rules), *(_line(row) for row in zip(*cells, strict=True))]
    return ("\n".join(lines) + "\n").encode()


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text in which Markdown finds nothing to interpret."""
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """A code span: ``|`` would still split the table's cell, so it is escaped; the fence outgrows backticks inside."""
    if not text:
        return ""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return fence + pad + text.replace("|", r"\|") + pad + fence
