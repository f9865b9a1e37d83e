"""What a pane is: one table, and where people would rather look, one picture from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from profilers.analysis.registry import TABLES, Table
from tui import format as fmt
from tui.snapshot import Query, RunView
from tui.widgets.chrome import PaneLine
from tui.widgets.line_table import LineTable
from tui.widgets.lines import Lines

if TYPE_CHECKING:
    import pandas as pd

    from tui.grid import Grid


class Pane(Vertical):
    """A tab. ``queries`` says which tables it needs, ``show`` takes the newest view, ``exported`` is what ``e`` writes."""

    name_: ClassVar[str] = ""
    title: ClassVar[str] = ""
    help: ClassVar[str] = ""

    def queries(self) -> tuple[Query, ...]:
        return ()

    def show(self, view: RunView) -> None:
        """Show a run's newest view. Called only while the pane is on screen."""
        raise NotImplementedError

    def exported(self) -> tuple[Table, pd.DataFrame] | None:
        """The table as it is on screen: filter and sort included."""
        return None

    def filterable(self) -> LineTable | None:
        """The table that ``/`` filters."""
        return None

    def focus_inside(self) -> None:
        table = self.filterable()
        if table is not None:
            table.focus()


class TablePane(Pane):
    """A pane with one registry table. ``picture`` may return a widget that stands beside it where the screen is wide."""

    table_name: ClassVar[str] = ""
    empty: ClassVar[str] = "No rows."
    """What stands in place of rows once windows have been read and the table has none."""

    def compose(self) -> ComposeResult:
        yield PaneLine()
        with Horizontal(classes="pane-body"):
            yield LineTable(self.table)
            picture = self.picture()
            if picture is not None:
                yield picture

    def picture(self) -> Lines | None:
        return None

    @property
    def table(self) -> Table:
        return TABLES[self.table_name]

    def queries(self) -> tuple[Query, ...]:
        return (Query(self.table_name),)

    def show(self, view: RunView) -> None:
        query = self.queries()[0]
        lines = self.query_one(LineTable)
        lines.say_empty(self.empty if view.windows else nothing_yet(view))
        frame = view.tables.get(query)
        if frame is not None:
            lines.show(self.prepare(frame, view))
            self.show_picture(view)
        elif lines.grid is not None and not view.windows:
            lines.show(lines.grid.frame.iloc[:0])
        self.describe(view.problems.get(query, ""))

    def prepare(self, frame: pd.DataFrame, view: RunView) -> pd.DataFrame:
        """The rows to show of the table."""
        return frame

    def show_picture(self, view: RunView) -> None:
        """Give the picture its data."""

    def describe(self, alert: str = "") -> None:
        """The line above the table: the question, the order, the filter, and what is hidden."""
        lines = self.query_one(LineTable)
        self.query_one(PaneLine).show(self.table.question, remarks(lines.grid), alert)

    def exported(self) -> tuple[Table, pd.DataFrame] | None:
        grid = self.query_one(LineTable).grid
        return (self.table, grid.visible) if grid is not None else None

    def filterable(self) -> LineTable | None:
        return self.query_one(LineTable)

    @on(LineTable.Moved)
    @on(LineTable.Arranged)
    def _changed(self) -> None:
        self.describe()


def nothing_yet(view: RunView) -> str:
    """Why there are no tables: what comes before the first window, or that none was recorded."""
    if view.kind in ("recording", "replay"):
        return "The recording is being read."
    if view.status.live:
        return "No window yet. Building the model, warming up and timing plain steps come first."
    return "No window was recorded."


def remarks(grid: Grid | None) -> list[str]:
    """How many rows of how many, the filter, percentages' base, and which columns had no room."""
    if grid is None:
        return []
    out = []
    total, shown = len(grid.frame), len(grid.order)
    out.append(f"{shown:,} of {total:,} rows match “{grid.filter}”" if grid.filter else f"{total:,} rows")
    bases = dict.fromkeys(fmt.of(s.column) for s in grid.columns if s.column.format == "pct")
    out += [f"% {base}" for base in bases if base][:1]
    if grid.hidden:
        out.append("hidden: " + ", ".join(grid.hidden[:3]) + ("…" if len(grid.hidden) > 3 else "") + " (e: all)")
    if grid.ascii:
        out = [fmt.ascii_text(text) for text in out]
    return out
