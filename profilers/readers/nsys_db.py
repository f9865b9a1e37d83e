"""An Nsight Systems export as columns: read-only, tables and columns by name, and only those that hold measurements.

An export carries the recorded machine's environment and command lines beside the measurements. SQLite itself is told
to refuse every table but the listed ones, so that no query here, and no view inside a file, can reach them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from profilers.readers.errors import ReadError
from profilers.readers.nesting import Ints

CHUNK = 65_536
_PARAMETERS = 500

BROKEN = (sqlite3.Error, UnicodeError)
"""What a damaged file makes SQLite raise; names of columns in it need not be text."""

READABLE = frozenset(
    {
        "CUPTI_ACTIVITY_KIND_DRIVER",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "ENUM_CUDA_MEMCPY_OPER",
        "ENUM_CUDA_MEM_KIND",
        "EXPORT_META_DATA",
        "META_DATA_EXPORT",
        "NVTX_EVENTS",
        "STRINGIDS",
        "TARGET_INFO_CUDA_DEVICE",
        "TARGET_INFO_GPU",
        "TARGET_INFO_SESSION_START_TIME",
    }
)
"""Every table that may be read, in upper case and without the ``_V2`` that newer exports append."""

_FUNCTIONS = frozenset({"ifnull", "coalesce"})
_VERSION = re.compile(r"_V(\d+)$", re.IGNORECASE)


class Database:
    """One export, open for reading. ``damaged`` lists the tables that broke off, with the rows got from each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: list[tuple[str, int]] = []
        try:
            self._open(path)
        except BROKEN as error:
            raise ReadError(
                f"{path}: not a readable SQLite file ({error}); export it again with nsys export"
            ) from error

    def _open(self, path: Path) -> None:
        # Immutable: nothing is locked or written beside the file, which may lie on a read-only or network disk.
        self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            self._connection.execute("PRAGMA trusted_schema=OFF")
            rows = self._connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
            plain = [str(name) for name, sql in rows if not str(sql).upper().startswith("CREATE VIRTUAL")]
            self.all_tables = frozenset(plain)
            self._columns = {name: self._column_names(name) for name in plain if _readable(name)}
            self._connection.set_authorizer(_authorize)
        except BROKEN:
            self._connection.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def table(self, base: str) -> str | None:
        """The table's name in this file: ``base`` or its newest ``_V<n>``, one with rows before one without."""
        names = [name for name in self._columns if _base(name) == base.upper()]
        filled = [name for name in names if self._has_rows(name)]
        return max(filled or names, key=_version_of, default=None)

    def has(self, base: str, column: str) -> bool:
        """Whether the table is there and has that column."""
        name = self.table(base)
        return name is not None and column.lower() in self._columns[name]

    def count(self, base: str) -> int:
        """Rows of the table by its last row number: an estimate for progress, nothing else."""
        name = self.table(base)
        if name is None:
            return 0
        try:
            query = f"SELECT rowid FROM {_quoted(name)} ORDER BY rowid DESC LIMIT 1"  # noqa: S608
            row = self._connection.execute(query).fetchone()
        except BROKEN:
            return 0
        return int(row[0]) if row else 0

    def integers(
        self, base: str, columns: dict[str, int], tick: Callable[[int], None] | None = None, texts: Sequence[str] = ()
    ) -> dict[str, npt.NDArray[Any]]:
        """Columns of one table: ``columns`` maps each to the value for NULL and for a column the file lacks.

        ``texts`` are read as object columns of str or None. All have length 0 where there is no such table, or none of
        the columns. ``tick`` is called with the number of rows read since its last call.
        """
        name = self.table(base)
        have = self._columns[name] if name is not None else {}
        wanted = [column for column in columns if column.lower() in have]
        words = [column for column in texts if column.lower() in have]
        fields = [f"CAST(IFNULL({_quoted(have[column.lower()])}, {columns[column]}) AS INTEGER)" for column in wanted]
        fields += [f"CAST({_quoted(have[column.lower()])} AS TEXT)" for column in words]
        parts: dict[str, list[npt.NDArray[Any]]] = {column: [] for column in (*wanted, *words)}
        rows = 0
        for chunk in self._chunks(name, fields):
            values = list(zip(*chunk, strict=True))
            for column, numbers in zip(wanted, values, strict=False):
                parts[column].append(np.fromiter(numbers, np.int64, len(numbers)))
            for column, strings in zip(words, values[len(wanted) :], strict=True):
                parts[column].append(_objects(strings))
            rows += len(chunk)
            if tick is not None:
                tick(len(chunk))
        joined: dict[str, npt.NDArray[Any]] = {}
        for column, missing in columns.items():
            joined[column] = np.concatenate(parts[column]) if parts.get(column) else np.full(rows, missing, np.int64)
        for column in texts:
            joined[column] = np.concatenate(parts[column]) if parts.get(column) else np.full(rows, None, object)
        return joined

    def strings(self, ids: Ints) -> dict[int, str]:
        """The texts of these ids and of no other: the same table also holds what must not be shown."""
        name = self.table("StringIds")
        found: dict[int, str] = {}
        if name is None or not {"id", "value"} <= self._columns[name].keys():
            return found
        wanted = np.unique(ids).tolist()
        for begin in range(0, len(wanted), _PARAMETERS):
            part = wanted[begin : begin + _PARAMETERS]
            marks = ",".join("?" * len(part))
            query = f"SELECT id, CAST(value AS TEXT) FROM {_quoted(name)} WHERE id IN ({marks})"  # noqa: S608
            try:
                rows = self._connection.execute(query, part).fetchall()
            except BROKEN:
                self.damaged.append((name, len(found)))
                return found
            # A name ends at a NUL; what follows one is a dump of something else.
            found.update((int(key), str(text).split("\0", 1)[0]) for key, text in rows if isinstance(key, int))
        return found

    def pairs(self, base: str, names: tuple[str, ...]) -> dict[str, str]:
        """``name`` -> ``value`` for exactly these names of a metadata table."""
        table = self.table(base)
        if table is None or not {"name", "value"} <= self._columns[table].keys():
            return {}
        marks = ",".join("?" * len(names))
        query = f"SELECT CAST(name AS TEXT), CAST(value AS TEXT) FROM {_quoted(table)} WHERE name IN ({marks})"  # noqa: S608
        try:
            return {str(name): str(value) for name, value in self._connection.execute(query, names).fetchall()}
        except BROKEN:
            return {}

    def _chunks(self, name: str | None, fields: list[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of a table in pieces, until it ends or breaks off."""
        if name is None or not fields:
            return
        got = 0
        try:
            cursor = self._connection.execute(f"SELECT {', '.join(fields)} FROM {_quoted(name)}")  # noqa: S608
            while chunk := cursor.fetchmany(CHUNK):
                yield chunk
                got += len(chunk)
        except BROKEN:
            self.damaged.append((name, got))

    def _has_rows(self, name: str) -> bool:
        try:
            return self._connection.execute(f"SELECT 1 FROM {_quoted(name)} LIMIT 1").fetchone() is not None  # noqa: S608
        except BROKEN:
            return False

    def _column_names(self, table: str) -> dict[str, str]:
        """Lower-case column names with their spelling in the file."""
        rows = self._connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
        return {str(row[1]).lower(): str(row[1]) for row in rows}


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """What a statement may do: select, from the readable tables, with two functions."""
    if action == sqlite3.SQLITE_SELECT:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ and first is not None and _readable(first):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _readable(name: str) -> bool:
    return _base(name) in READABLE


def _base(name: str) -> str:
    return _VERSION.sub("", name).upper()


def _version_of(name: str) -> int:
    found = _VERSION.search(name)
    return int(found[1]) if found else 0


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _objects(values: tuple[Any, ...]) -> npt.NDArray[Any]:
    column = np.empty(len(values), object)
    column[:] = values
    return column
