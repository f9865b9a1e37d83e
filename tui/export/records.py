"""JSON: a list of records with the exported column names, one record a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from profilers.analysis.registry import Table
from tui.export.columns import exact

if TYPE_CHECKING:
    import pandas as pd


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as dictionaries of plain values. A missing value is None (in JSON an infinite one too)."""
    names = [str(name) for name in frame.columns]
    columns = [exact(frame.iloc[:, position]) for position in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def render(frame: pd.DataFrame, table: Table, meta: Mapping[str, str]) -> bytes:
    """The frame as a JSON array. Floats are exact."""
    rows = [msgspec.json.encode(record) for record in records(frame)]
    return b"[\n" + b",\n".join(rows) + b"\n]\n" if rows else b"[]\n"
