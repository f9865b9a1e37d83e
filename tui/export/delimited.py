"""CSV: a header of exported column names, then exact values.

Comma, LF, UTF-8, quotes only where needed; a missing value is empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from profilers.analysis.registry import Table
from tui.export.columns import exact

if TYPE_CHECKING:
    import pandas as pd

# The csv module of Python < 3.13 leaves a lone carriage return unquoted, and readers take it for a new line.
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def render(frame: pd.DataFrame, table: Table, meta: Mapping[str, str]) -> bytes:
    """The frame as CSV. Floats are in the shortest form that reads back to the same value; infinity is ``inf``."""
    columns = [[_field(value) for value in exact(frame.iloc[:, position])] for position in range(len(frame.columns))]
    lines = [",".join(_field(str(name)) for name in frame.columns)]
    lines += [",".join(row) for row in zip(*columns, strict=True)]
    return ("\n".join(lines) + "\n").encode()


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text
