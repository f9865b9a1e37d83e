"""Writers of result tables, one a format: every format is given the same frame, from the screen or the command line.

Two kinds. **Exact**: CSV, JSON and Parquet hold the values as computed (floats round-trip) under the exported column
names. **For people**: the terminal table, Markdown, LaTeX and HTML write cells as :mod:`tui.format` does and say in the
header which unit a column has and what a percentage is of. Names are whole everywhere but in the terminal table.

Names come from strangers. CSV keeps them as they are, also where one begins with ``=``, ``+``, ``-`` or ``@``, which
spreadsheets take for a formula: import such a file with its columns as text. The formats for people escape what their
language would interpret and make control characters visible.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.analysis.registry import Table
from tui.export.saving import ExportError, save

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BINARY", "EXTENSIONS", "FORMATS", "ExportError", "format_for", "render", "save", "write"]

_WRITERS = {
    "table": "terminal",
    "csv": "delimited",
    "json": "records",
    "markdown": "markdown",
    "latex": "latex",
    "parquet": "parquet",
    "html": "page",
}

FORMATS = tuple(_WRITERS)
EXTENSIONS = {
    "table": ".txt",
    "csv": ".csv",
    "json": ".json",
    "markdown": ".md",
    "latex": ".tex",
    "parquet": ".parquet",
    "html": ".html",
}
BINARY = frozenset({"parquet"})

_BY_EXTENSION = {extension: format for format, extension in EXTENSIONS.items()} | {
    ".htm": "html",
    ".markdown": "markdown",
}


def format_for(target: Path) -> str | None:
    """The format that a file name asks for by its extension; None where it says nothing."""
    return _BY_EXTENSION.get(target.suffix.lower())


def render(
    frame: pd.DataFrame,
    table: Table,
    format: str,
    *,
    meta: Mapping[str, str] | None = None,
    ascii: bool = False,
    width: int | None = None,
    colour: bool = False,
) -> bytes:
    """The table in one format, as bytes (UTF-8 where it is text).

    ``frame`` has columns of ``table`` (all or some, in any order); columns that the table does not describe are written
    as they are. ``meta`` says where the table comes from (``title``, ``run``, ...): in the terminal's and the page's
    heading, in comments of LaTeX, in the Parquet file's metadata; CSV, JSON and Markdown hold nothing but the table.
    ``ascii``, ``width`` (cells; None: as wide as it needs) and ``colour`` are for the terminal table. Raises
    :class:`ExportError` for a format there is not.
    """
    if format not in _WRITERS:
        raise ExportError(f"no export format {format!r}: choose from {', '.join(FORMATS)}")
    module = importlib.import_module(f"tui.export.{_WRITERS[format]}")
    if format == "table":
        return module.render(frame, table, meta or {}, ascii=ascii, width=width, colour=colour)
    call: Callable[[pd.DataFrame, Table, Mapping[str, str]], bytes] = module.render
    return call(frame, table, meta or {})


def write(
    frame: pd.DataFrame,
    table: Table,
    format: str,
    target: Path | None,
    *,
    meta: Mapping[str, str] | None = None,
    force: bool = False,
    ascii: bool = False,
    width: int | None = None,
    colour: bool = False,
) -> bytes | Path:
    """Write the table to ``target`` and return its absolute path; without a target, return the bytes.

    Arguments as for :func:`render` and :func:`save`.
    """
    data = render(frame, table, format, meta=meta, ascii=ascii, width=width, colour=colour)
    return data if target is None else save(data, target, force=force)
