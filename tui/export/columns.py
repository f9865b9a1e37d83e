"""A frame and its table as plain columns: what every writer starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profilers.analysis.registry import Col, Table
from tui.format import header, of, units_for, writer

if TYPE_CHECKING:
    import pandas as pd


def described(frame: pd.DataFrame, table: Table) -> list[Col]:
    """What each of the frame's columns is, in the frame's order; one that the table does not know goes by its type."""
    known = {column.name: column for column in table.columns}
    return [known.get(str(name)) or _guess(str(name), frame[name]) for name in frame.columns]


def _guess(name: str, values: pd.Series) -> Col:
    kind = values.dtype.kind if hasattr(values.dtype, "kind") else "O"
    return Col(name, name, {"i": "count", "u": "count", "f": "number", "b": "flag"}.get(kind, "text"))  # type: ignore[arg-type]


def exact(values: pd.Series) -> list[Any]:
    """The column's values as Python objects: floats exact, a missing text or number None, texts encodable as UTF-8."""
    if values.dtype.kind == "f":
        return [None if value != value else value for value in values.astype("float64").tolist()]
    if str(values.dtype) == "category":
        names = [_plain(value) for value in values.cat.categories.tolist()]
        return [names[code] if code >= 0 else None for code in values.cat.codes.tolist()]
    return [_plain(value) for value in values.tolist()]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        # A lone surrogate (a broken escape in somebody's JSON) has no UTF-8: its escape is written, not a crash.
        return value if value.isprintable() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if value is None or value != value:
        return None
    return value.item() if hasattr(value, "item") else value


@dataclass(frozen=True, eq=False)
class Written:
    """A column for people: its header, what its percentages are of, and its cells."""

    column: Col
    title: str
    of: str
    cells: list[str]


def for_people(frame: pd.DataFrame, table: Table, *, ascii: bool = False) -> list[Written]:
    """Every column with its header and cells as :mod:`tui.format` writes them."""
    out = []
    columns = described(frame, table)
    units = units_for(frame, table)
    for position, column in enumerate(columns):
        values = frame.iloc[:, position]
        unit = units.get(column.name, "us")
        write = writer(column.format, unit, ascii)
        if str(values.dtype) == "category":
            texts = [write(value) for value in values.cat.categories.tolist()]
            missing = write(None)
            cells = [texts[code] if code >= 0 else missing for code in values.cat.codes.tolist()]
        else:
            cells = [write(value) for value in values.tolist()]
        out.append(Written(column, header(column, unit, ascii=ascii), of(column, ascii=ascii), cells))
    return out
