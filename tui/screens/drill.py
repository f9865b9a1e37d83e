"""Into a row: the whole name, which operators launch it with which shapes, when it ran; or an operator's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from profilers.analysis.registry import Table
from profilers.rules.names import visible
from tui import format as fmt
from tui.drill import DRILLS
from tui.messages import SnapshotArrived, Wanted
from tui.snapshot import Query
from tui.widgets.line_table import LineTable

if TYPE_CHECKING:
    import pandas as pd

    from tui.app import KernelscopeApp

_BELOW = {
    "kernels": ("name", ("kernel-operators", "kernel-occurrences")),
    "roofline": ("name", ("kernel-operators", "kernel-occurrences")),
    "communication": ("name", ("kernel-operators", "kernel-occurrences")),
    "operators": ("name", ("operator-kernels",)),
    "expansion": ("operator", ("operator-kernels",)),
    "groups": ("top_name", ("kernel-operators", "kernel-occurrences")),
    "kernel-operators": ("operator", ("operator-kernels",)),
    "operator-kernels": ("kernel", ("kernel-operators", "kernel-occurrences")),
}


def drillable(table: Table) -> tuple[str, tuple[str, ...]] | None:
    """The column that names what is below a row of this table, and the tables that show it."""
    return _BELOW.get(table.name)


class DrillScreen(ModalScreen[None]):
    """Over the main screen; escape goes back to the row one came from, enter goes further down."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "dismiss", "Back", id="drill.back"),
        Binding("e", "app.export", "Export", id="drill.export"),
        Binding("y", "copy_name", "Copy name", id="drill.copy"),
    ]
    app: KernelscopeApp  # type: ignore[assignment]

    def __init__(self, table: Table, row: pd.Series) -> None:
        super().__init__()
        self.table, self.row = table, row
        self._seen: pd.DataFrame | None = None
        below = drillable(table)
        assert below is not None
        self.name_ = str(row[below[0]])
        self.tables = below[1]
        self.is_operator = self.tables == ("operator-kernels",)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="drill") as box:
            box.border_title = "Operator" if self.is_operator else "Kernel"
            box.border_subtitle = (
                "[@click=screen.dismiss]escape back[/] · enter further · [@click=app.export]e export[/] · "
                "[@click=screen.copy_name]y copy the name[/]"
            )
            yield Static(visible(self.name_), id="drill-name", markup=False)
            yield Static(self._facts(), classes="hint", markup=False, id="drill-facts")
            for name in self.tables:
                yield Static(DRILLS[name].question, classes="table-title")
                yield LineTable(DRILLS[name], empty=_EMPTY[name], id=f"drill-{name}")

    def _facts(self) -> str:
        if self.table.name not in ("kernels", "operators"):
            return ""
        parts = []
        for column in self.table.columns[1:]:
            value = self.row[column.name]
            unit = fmt.unit_for([value]) if column.format == "us" else "us"
            text = fmt.cell(value, column, unit=unit, ascii=self.app.palette.ascii)
            parts.append(f"{fmt.header(column, unit, ascii=self.app.palette.ascii)}: {text}")
        return "   ".join(parts)

    def on_mount(self) -> None:
        self.query_one(LineTable).focus()
        self.post_message(Wanted())
        self.app._wanted()
        self.set_interval(0.25, self._take)

    def extra_queries(self) -> list[Query]:
        return [Query(name, self.name_) for name in self.tables]

    def on_unmount(self) -> None:
        self.app.main.want()

    def _take(self) -> None:
        """Take the tables from the newest view, once for each version of it."""
        view = self.app.view
        if view is None:
            return
        self._follow(view.tables.get(Query(self.table.name)))
        for query in self.extra_queries():
            lines = self.query_one(f"#drill-{query.table}", LineTable)
            frame = view.tables.get(query)
            if frame is not None and (lines.grid is None or lines.grid.frame is not frame):
                lines.show(frame)
            elif query in view.problems:
                lines.say_empty(view.problems[query])

    def _follow(self, frame: pd.DataFrame | None) -> None:
        """The row that this screen is about, as it is by now: the tables below it grow with a run that goes on."""
        if frame is None or frame is self._seen or self.table.name not in ("kernels", "operators"):
            return
        self._seen = frame
        rows = frame[frame[self.table.columns[0].name] == self.name_]
        if len(rows) == 1:
            self.row = rows.iloc[0]
            self.query_one("#drill-facts", Static).update(self._facts())

    def exported(self) -> tuple[Table, pd.DataFrame] | None:
        focused = self.focused if isinstance(self.focused, LineTable) else self.query_one(LineTable)
        return (focused.table, focused.grid.visible) if focused.grid is not None else None

    def action_copy_name(self) -> None:
        from tui.clipboard import copy_text

        self.app.notify(copy_text(self.app, self.name_, "the name"))

    @on(LineTable.Chosen)
    def _further(self, message: LineTable.Chosen) -> None:
        if drillable(message.sender.table) is not None:
            self.app.push_screen(DrillScreen(message.sender.table, message.row))

    @on(SnapshotArrived)
    def _arrived(self) -> None:
        self._take()


_EMPTY = {
    "kernel-operators": "No launching operator was recorded for this kernel.",
    "kernel-occurrences": "It did not run.",
    "operator-kernels": "It launches no kernel: its time is on the host.",
}
