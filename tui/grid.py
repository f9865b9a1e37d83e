"""A table as the screen holds it: a frame, what it is sorted by, what it is filtered by, and which columns fit.

No Textual here: the widget draws what this says, exports write what this says, tests assert on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from profilers.analysis.registry import Col, Table
from profilers.rules.names import short_names
from tui import format as fmt
from tui.cells import GAP
from tui.cells import width as cells_of

MIN_NAME = 18
FAIR_NAME = 28
GOOD_NAME = 40
MAX_NAME = 64
BAR_MAX = 24


@dataclass(frozen=True)
class Shown:
    """A column as laid out: where it starts, how wide it is, and its header text."""

    column: Col
    width: int
    right: bool
    unit: str


@dataclass
class Grid:
    """The state of one table on screen. ``frame`` is never changed; ``order`` says which rows are shown, in which order."""

    table: Table
    frame: pd.DataFrame
    sort: str = ""
    descending: bool = True
    filter: str = ""
    ascii: bool = False
    order: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    hidden: tuple[str, ...] = ()
    columns: tuple[Shown, ...] = ()
    bar_width: int = 0
    _short: dict[str, dict[str, str]] = field(default_factory=dict)
    _widths: dict[str, int] = field(default_factory=dict)
    _units: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.sort and self.table.sort:
            self.sort, self.descending = self.table.sort, self.table.descending
        self.replace(self.frame)

    # -- data --------------------------------------------------------------------------------------------------------

    def replace(self, frame: pd.DataFrame) -> None:
        """Take a newer frame of the same table; sort, filter and column widths stay as they are."""
        self.frame = frame
        self._units = fmt.units_for(frame, self.table)
        self.rearrange()

    def rearrange(self) -> None:
        """Apply the filter and the sort to the frame."""
        keep = matching(self.frame, self.table.columns, self.filter)
        rows = np.flatnonzero(keep) if keep is not None else np.arange(len(self.frame))
        if self.sort and self.sort in self.frame.columns:
            values = self.frame[self.sort].iloc[rows] if keep is not None else self.frame[self.sort]
            if isinstance(values.dtype, pd.CategoricalDtype):
                ranks = np.argsort(np.argsort(np.asarray(values.cat.categories.astype(str))))
                values = pd.Series(np.append(ranks, -1)[values.cat.codes.to_numpy()])
            places = values.argsort(kind="stable").to_numpy() if values.dtype == object else _argsort(values.to_numpy())
            if self.descending:
                places = _reversed_stable(places, values.to_numpy())
            rows = rows[places]
        self.order = rows

    @property
    def visible(self) -> pd.DataFrame:
        """The frame as shown: filtered and sorted. What an export writes."""
        return self.frame.iloc[self.order].reset_index(drop=True)

    def row(self, place: int) -> pd.Series | None:
        """The shown row at a place, or None."""
        return self.frame.iloc[self.order[place]] if 0 <= place < len(self.order) else None

    def sort_by(self, name: str) -> None:
        """Sort by a column; the same column again turns the order round. Numbers begin with the largest, texts with the first."""
        if name == self.sort:
            self.descending = not self.descending
        else:
            self.sort, self.descending = name, self.table.column(name).format in fmt.RIGHT
        self.rearrange()

    def sort_next(self, step: int = 1) -> None:
        """Sort by the next visible column."""
        names = [shown.column.name for shown in self.columns] or [column.name for column in self.table.columns]
        place = names.index(self.sort) if self.sort in names else -step
        self.sort = ""
        self.sort_by(names[(place + step) % len(names)])

    # -- layout ------------------------------------------------------------------------------------------------------

    def lay_out(self, width: int, *, bars: bool = True) -> None:
        """Choose the columns that fit in ``width`` cells and how wide each is. What does not fit is named in ``hidden``."""
        names_of = {column.name for column in self.table.columns if column.format == "name"}
        measured = {column.name: self._measure(column) for column in self.table.columns}
        chosen = list(self.table.columns)
        hidden: list[str] = []

        def need(columns: Sequence[Col], name: int = MIN_NAME) -> int:
            widths = (min(measured[c.name], name) if c.name in names_of else measured[c.name] for c in columns)
            return sum(widths) + GAP * (len(columns) - 1)

        # A column that is only nice to have must not cost the names their legibility.
        for droppable, name in (
            (lambda c: c.wide, GOOD_NAME),
            (lambda c: c.format == "us" and c.name not in _KEPT, FAIR_NAME),
            (lambda c: c.name == "cum_pct", FAIR_NAME),
            (lambda c: c.name not in _KEPT and c.format not in ("name", "state"), MIN_NAME),
            (lambda c: True, MIN_NAME),
        ):
            for column in reversed(self.table.columns):
                if need(chosen, name) <= width:
                    break
                if len(chosen) > 1 and column in chosen and column is not self.table.columns[0] and droppable(column):
                    chosen.remove(column)
                    hidden.append(column.title)
        spare = max(width - need(chosen), 0)
        widths = {}
        for column in chosen:
            if column.name in names_of:
                grow = min(spare, max(measured[column.name] - MIN_NAME, 0))
                widths[column.name] = min(measured[column.name], MIN_NAME) + grow
                spare -= grow
            else:
                widths[column.name] = measured[column.name]
        timed = any(c.name == "time_us" for c in self.table.columns)
        share = next((c for c in chosen if c.format == "pct" and c.name in ("pct", "time_pct", "pct_of_roof")), None)
        self.bar_width = min(spare - GAP, BAR_MAX) if bars and timed and share is not None and spare - GAP >= 6 else 0
        self.hidden = tuple(reversed(hidden))
        self.columns = tuple(
            Shown(column, widths[column.name], column.format in fmt.RIGHT, self.unit(column)) for column in chosen
        )

    def unit(self, column: Col) -> str:
        return self._units.get(column.name, "us")

    def _measure(self, column: Col) -> int:
        """Cells needed: header and the first rows; widths only grow, so that live tables do not jump."""
        header = fmt.header(column, self.unit(column), ascii=self.ascii)
        need = cells_of(header) + (2 if column.name == self.sort else 0)
        head = self.frame[column.name].iloc[self.order[:200]]
        for value in head if column.format != "name" else self._shorten(column.name, head):
            need = max(need, cells_of(value if column.format == "name" else self.text(value, column)))
        cap = MAX_NAME if column.format == "name" else 40
        need = max(min(need, cap), self._widths.get(column.name, 0))
        self._widths[column.name] = need
        return need

    # -- text --------------------------------------------------------------------------------------------------------

    def text(self, value: Any, column: Col) -> str:
        """A cell for people; names are shortened, unique within the table."""
        if column.format == "name":
            missing = "-" if self.ascii else fmt.MISSING
            return self._shorten(column.name, [value])[0] if str(value) else missing
        return fmt.cell(value, column, unit=self.unit(column), ascii=self.ascii)

    def _shorten(self, name: str, values: Sequence[Any] | pd.Series) -> list[str]:
        held = self._short.setdefault(name, {})
        wanted = [str(value) for value in values]
        if any(value not in held for value in wanted):
            series = self.frame[name]
            if isinstance(series.dtype, pd.CategoricalDtype):
                every = [str(value) for value in series.cat.categories]
            else:
                every = list(dict.fromkeys(str(value) for value in series))
            held.clear()
            held.update(zip(every, short_names(every), strict=True))
        return [held.get(value, value) for value in wanted]

    def share(self, place: int) -> float:
        """The row's percentage for its bar, 0-100 (NaN where it has none)."""
        for name in ("pct", "time_pct", "pct_of_roof"):
            if name in self.frame.columns:
                return float(self.frame[name].iloc[self.order[place]])
        return float("nan")


# Columns without which a row does not say what it is: these stay however narrow the screen.
_KEPT = frozenset(
    {"pct", "time_us", "group", "class", "state", "count", "names", "device_speedup", "share", "cause", "code"}
)


def matching(frame: pd.DataFrame, columns: Sequence[Col], query: str) -> np.ndarray | None:
    """Rows whose texts contain every word of the query (``!word``: none contains it); None when all match.

    Case does not matter. Words look at names, groups, states and texts, at the short name as well, and at the beginnings
    of classes.
    """
    words = query.lower().split()
    if not words or not len(frame):
        return None
    texts = [c for c in columns if c.format not in fmt.RIGHT and c.name in frame.columns]
    keep = np.ones(len(frame), bool)
    for word in words:
        negate, needle = (True, word[1:]) if word.startswith("!") and len(word) > 1 else (False, word)
        hit = np.zeros(len(frame), bool)
        for column in texts:
            series = frame[column.name]
            if not isinstance(series.dtype, pd.CategoricalDtype):
                series = series.astype("category")
            names = [str(value) for value in series.cat.categories]
            # "gemm" must not find "nongemm": a class is known by how it begins.
            whole = column.format == "class"
            lower = [name.lower() for name in names]
            found = np.array([name.startswith(needle) if whole else needle in name for name in lower] + [False], bool)
            if column.format == "name" and not found.all():
                shorts = short_names(names)
                found |= np.array([needle in short.lower() for short in shorts] + [False], bool)
            hit |= found[series.cat.codes.to_numpy()]
        keep &= ~hit if negate else hit
    return keep


def _argsort(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "OUST":
        return np.argsort(values.astype(str), kind="stable")
    return np.argsort(values, kind="stable")


def _reversed_stable(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Descending order in which NaN comes last and equal rows keep their order."""
    if values.dtype.kind == "f":
        return np.argsort(np.where(np.isnan(values), np.inf, -values), kind="stable")
    if values.dtype.kind in "iub":
        return np.argsort(-values.astype(np.int64), kind="stable")
    return places[::-1]
