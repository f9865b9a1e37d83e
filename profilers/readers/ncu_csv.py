"""The tables in a CSV of Nsight Compute, with numbers in base units.

A file holds one or more tables, each after whatever the profiled program and ncu itself printed. Two shapes occur: the
``raw`` page (a row a kernel, a column a metric, a row of units below the header) and the ``details`` page or
``--metrics`` (a row a metric of a kernel). Both become the same thing here: one row a kernel, metrics by name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.readers.errors import ReadError
from profilers.readers.sniff import NCU_HEADER
from profilers.readers.text_source import Source
from profilers.tables import Note

Floats = npt.NDArray[np.float64]

_ROW = re.compile(rb'^"?\d+"?,')
_UNITS = re.compile(rb'^(?:"")?,')
_FIXED = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Function Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
_LONG = ("Metric Name", "Metric Unit", "Metric Value")
_PREFIX = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "µ": 1e-6,
    "m": 1e-3,
    "K": 1e3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
}
_TIME = re.compile(r"^(n|u|µ|m|)(?:s|second)$")
_BYTES = re.compile(r"^([KkMGTP]?)(?:byte|B)(?:/block)?$")
_COUNT = re.compile(r"^([KMGTP]?)(?:inst|op|ops|thread|block|register/thread|register|warp|sector|cycle|##|)(?:/\w+)?$")
_LEADING = r"^\s*([-+]?[0-9][0-9.,'\u00a0\u202f]*(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf))"
_POINT = r"\.\d{1,2}$|\.\d{4,}$"
_COMMA = r",\d{1,2}$|,\d{4,}$"


@dataclass(frozen=True)
class Metric:
    """One metric of every kernel: text values and units as printed (equally long)."""

    values: pd.Series
    units: pd.Series


@dataclass
class Table:
    """One table of the file. ``fixed`` has a row a kernel, text columns; ``lost`` counts lines that could not be read."""

    fixed: pd.DataFrame
    metric: Callable[[str, str], Metric | None]
    names: frozenset[str]
    lost: int = 0


def tables(path: Path) -> tuple[list[Table], list[Note]]:
    """All tables of the file, and what was odd about its text. Raises ReadError where no table has a kernel."""
    text, notes = _text(path)
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if b"Process ID" in line and NCU_HEADER.match(line)]
    if not headers:
        raise ReadError(f"{path}: no table of ncu in it; get one with: ncu --import FILE.ncu-rep --csv --page raw")
    found = []
    for begin, end in zip(headers, [*headers[1:], len(lines)], strict=True):
        table = _table(lines[begin], lines[begin + 1 : end])
        if table is not None:
            found.append(table)
    if not found:
        raise ReadError(f"{path}: a table of ncu without a kernel: none was profiled (wrong filter, or no permission)")
    return found, notes


def numbers(values: pd.Series, *, comma: bool = False) -> Floats:
    """Printed values as numbers: thousands separators dropped, NaN where there is none. ``comma``: decimal commas."""
    text = values.astype("string").str.extract(_LEADING, expand=False).str.replace(r"['\u00a0\u202f]", "", regex=True)
    if comma:
        text = text.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    else:
        text = text.str.replace(",", "", regex=False)
    return pd.to_numeric(text, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def uses_decimal_comma(values: pd.Series) -> bool:
    """Whether values are printed as in ``1.234,5``: some can only be read so, and none can only be read otherwise."""
    text = values.astype("string").fillna("")
    return bool(text.str.contains(_COMMA).any() and not text.str.contains(_POINT).any())


def factors(units: pd.Series, quantity: str) -> Floats:
    """What each value is to be multiplied with: seconds for ``time``, bytes for ``bytes``, 1 for ``pct`` and counts.

    NaN where the unit does not belong to the quantity.
    """
    codes, distinct = pd.factorize(units.astype("string").fillna("").to_numpy(object))
    known = np.array([_factor(str(unit).strip(), quantity) for unit in distinct], np.float64)
    return known[codes] if len(distinct) else np.empty(0, np.float64)


def _factor(unit: str, quantity: str) -> float:
    if quantity == "pct":
        return 1.0 if unit in {"%", ""} else np.nan
    pattern = {"time": _TIME, "bytes": _BYTES, "count": _COUNT}[quantity]
    found = pattern.match(unit)
    return _PREFIX[found[1]] if found else np.nan


def _text(path: Path) -> tuple[bytes, list[Note]]:
    """The file as UTF-8 (a shell may have written UTF-16, a person may have packed it), and what was odd about it."""
    try:
        with path.open("rb") as file:
            source = Source(file, str(path), path.stat().st_size)
            return b"".join(source.pieces()), source.notes
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error


def _table(header: bytes, lines: list[bytes]) -> Table | None:
    rows = [line for line in lines if _ROW.match(line)]
    if not rows:
        return None
    units = lines[0] if _UNITS.match(lines[0]) else None
    names = ["ID", *(name.strip() for name in _cells(header)[1:])]
    body = _csv(rows, len(names))
    body = body.reindex(columns=range(len(names)), fill_value="").set_axis(_unique(names), axis=1)
    lost = len(rows) - len(body)
    if not len(body):
        return None
    if set(_LONG) <= set(names):
        return _long(body, lost)
    unit_row = _cells(units) if units is not None else []
    return _wide(body, dict(zip(_unique(names), unit_row, strict=False)), lost)


def _csv(lines: list[bytes], width: int) -> pd.DataFrame:
    """Quoted fields as text, ``width`` columns of them. Lines with more (a program's output within) are left out."""
    try:
        frame = _parsed(lines, width)
    except pd.errors.ParserError:
        frame = None
    if frame is None or len(frame) != len(lines):
        # A stray quote swallows the lines after it: line by line, only the damaged ones are lost.
        fields = [row for row in map(_cells, lines) if len(row) == width]
        frame = pd.DataFrame(fields, columns=range(width), dtype=str)
    return frame.fillna("")


def _cells(line: bytes) -> list[str]:
    """The fields of one line; none where it is not CSV."""
    try:
        return next(csv.reader([line.decode("utf-8", "replace")], skipinitialspace=True), [])
    except csv.Error:
        return []


def _parsed(lines: list[bytes], width: int) -> pd.DataFrame:
    return pd.read_csv(
        io.BytesIO(b"\n".join(lines)),
        header=None,
        names=range(width),
        dtype=str,
        keep_default_na=False,
        encoding="utf-8",
        encoding_errors="replace",
        on_bad_lines="skip",
        skipinitialspace=True,
    )


def _unique(names: list[str]) -> list[str]:
    """Column names made distinct (a metric that is listed twice keeps its first column)."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return result


def _wide(body: pd.DataFrame, units: dict[str, str], lost: int) -> Table:
    body = body[body["ID"].str.fullmatch(r"\s*\d+\s*")].reset_index(drop=True)

    def metric(name: str, _section: str = "") -> Metric | None:
        if name not in body.columns or name in _FIXED:
            return None
        return Metric(body[name], pd.Series([str(units.get(name, ""))] * len(body)))

    return Table(_fixed(body), metric, frozenset(body.columns) - set(_FIXED), lost)


def _long(body: pd.DataFrame, lost: int) -> Table:
    keys = body["ID"] + "\0" + (body["Process ID"] if "Process ID" in body.columns else "")
    kernel, distinct = pd.factorize(keys)
    first = np.unique(kernel, return_index=True)[1]
    sections = body["Section Name"] if "Section Name" in body.columns else pd.Series([""] * len(body))
    groups = {str(name): np.asarray(rows) for name, rows in body.groupby("Metric Name", sort=False).indices.items()}

    def metric(name: str, section: str = "") -> Metric | None:
        rows = groups.get(name)
        if rows is not None and section:
            rows = rows[(sections.iloc[rows] == section).to_numpy()]
        if rows is None or not len(rows):
            return None
        part = pd.DataFrame(
            {
                "value": body["Metric Value"].to_numpy()[rows],
                "unit": body["Metric Unit"].to_numpy()[rows],
                "kernel": kernel[rows],
            }
        )
        part = part.drop_duplicates("kernel").set_index("kernel").reindex(range(len(distinct)))
        return Metric(part["value"], part["unit"])

    return Table(_fixed(body.iloc[first].reset_index(drop=True)), metric, frozenset(groups), lost)


def _fixed(body: pd.DataFrame) -> pd.DataFrame:
    return body[[name for name in _FIXED if name in body.columns]]
