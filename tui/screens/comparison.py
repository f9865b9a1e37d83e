"""Runs side by side: how much faster, where the time went, and the rows that explain most of the difference first."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from profilers.analysis.compare_tables import rows_table, summary_table
from profilers.analysis.registry import Table
from profilers.rules.taxonomy import GROUPS
from tui import bars
from tui import format as fmt
from tui.cells import fit, width
from tui.comparing import VIEWS, Compared, compared
from tui.palette import Palette
from tui.panes.base import remarks
from tui.widgets.chrome import PaneLine
from tui.widgets.line_table import LineTable
from tui.widgets.lines import Lines
from tui.widgets.shares import Share, legend

if TYPE_CHECKING:
    import pandas as pd

    from tui.app import KernelscopeApp

SHORT = 32


class PairedBars(Lines):
    """One bar a run, all on one scale, kernel time by group with GEMM first; the legend below."""

    def __init__(self) -> None:
        super().__init__(id="compare-bars")
        self.data: Compared | None = None

    def show(self, data: Compared) -> None:
        self.data = data
        self.redraw()

    def build(self, cells: int) -> list[list[Segment]]:
        p, data = self.palette, self.data
        if data is None:
            return []
        frame = data.rows["group"]
        totals = [float(frame[f"{letter}_us"].sum()) for letter in data.letters]
        milli = fmt.unit_for(totals) == "ms"
        unit = "ms" if milli else p.mark("micro") + "s"
        texts = [f"{fmt.significant(total / (1000 if milli else 1))} {unit}" for total in totals]
        room = max(width(text) for text in texts)
        labels = [fmt.ascii_text(label) if p.ascii else label for label in map(data.label, range(len(totals)))]
        named = min(max(map(width, labels)), max(cells // 3, 12))
        bar = max(cells - named - room - 3, 8)
        parts = [_parts(frame, f"{letter}_us") for letter in data.letters]
        out = []
        for index in range(len(totals)):
            slices = [
                bars.Slice(time, p.group(name), GROUPS[name].letter if name in GROUPS else "?")
                for name, time in parts[index]
            ]
            out.append(
                [
                    Segment(fit(labels[index], named, ellipsis=p.mark("ellipsis")), p.style(p.text)),
                    Segment(" "),
                    *bars.stacked(slices, bar, p, max(max(totals), 1e-9)),
                    Segment(" " + fit(texts[index], room, True), p.style(p.text, bold=True)),
                ]
            )
        shares = tuple(Share(letter, tuple(part), 0.0) for letter, part in zip(data.letters, parts, strict=True))
        out.append(legend(shares, cells - named - 1, p, named + 1))
        return out


class SweepLine(Lines):
    """The idle share of the step over the sizes of a sweep, and where it turns device-bound. Nothing where it is no sweep."""

    def __init__(self) -> None:
        super().__init__(id="compare-sweep")
        self.frame: pd.DataFrame | None = None

    def show(self, frame: pd.DataFrame | None) -> None:
        self.frame = frame
        self.display = frame is not None
        self.redraw()

    def build(self, cells: int) -> list[list[Segment]]:
        p, frame = self.palette, self.frame
        if frame is None:
            return []
        out = []
        for row in frame.to_dict("records"):
            size = f"b{row['batch']}" + (f" s{row['seq']}" if row["seq"] > 0 else "")
            step, item, idle = float(row["step_us"]), float(row["item_us"]), float(row["idle_pct"])
            words = fit(size, 12) + fit(_known(step / 1000, "ms", p), 10, True)
            words += "  " + fit(_known(item / 1000, "ms an item", p), 20, True)
            words += "  " + fit("" if idle != idle else f"idle {idle:3.0f} %", 10)
            bar = max(min(cells - width(words) - 16, 40), 0)
            out.append(
                [
                    Segment(words + " ", p.style(p.text)),
                    *bars.single(idle, 100.0, bar, p.muted, p, p.cursor),
                    Segment(f" {row['bound']}", p.style(p.text, bold=bool(row["mark"]))),
                ]
            )
        nowhere = "It does not turn from launch-bound to device-bound in between."
        mark = next((str(mark) for mark in frame["mark"] if mark), nowhere)
        out.append([Segment(fit(mark, cells, ellipsis=p.mark("ellipsis")), p.style(p.muted))])
        return out


def _known(value: float, unit: str, palette: Palette) -> str:
    return palette.mark("dash") if value != value else f"{fmt.significant(value)} {unit}"


def _parts(frame: pd.DataFrame, column: str) -> list[tuple[str, float]]:
    """Groups and their times, matrix multiply and attention first, then the largest."""
    rank = {"gemm": 0, "attention": 1}
    rows = [(str(name), float(time)) for name, time in zip(frame["group"], frame[column], strict=True) if time > 0]
    return sorted(rows, key=lambda r: (rank.get(GROUPS[r[0]].cls, 2) if r[0] in GROUPS else 3, -r[1]))


class ComparisonScreen(ModalScreen[None]):
    """The comparison of runs ``keys``, the first one the base."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="comparison.back"),
        Binding("b", "turn", "By kernel, operator or group", id="comparison.by"),
        Binding("e", "app.export", "Export", id="comparison.export"),
        Binding("y", "copy", "Copy", id="comparison.copy"),
        Binding("slash", "filter", "Filter", key_display="/", id="comparison.filter"),
    ]
    app: KernelscopeApp  # type: ignore[assignment]

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.keys = keys
        self.by = VIEWS[0]
        self.data: Compared | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="comparison") as box:
            box.border_title = "Compare"
            box.border_subtitle = (
                "[@click=screen.turn]b operators, groups[/] · tab summary · [@click=screen.filter]/ filter[/] · "
                "[@click=app.export]e export[/] · [@click=screen.back]escape back[/]"
            )
            yield PaneLine(id="compare-line")
            yield PairedBars()
            yield SweepLine()
            letters = string.ascii_lowercase[: len(self.keys)]
            yield LineTable(summary_table(letters), empty="", id="compare-summary")
            yield PaneLine(id="compare-rows-line")
            for by in VIEWS:
                yield LineTable(rows_table(letters, by), empty="", id=f"compare-{by}")
            yield Input(id="compare-filter", placeholder="words that a row must have, !word: must not")

    def on_mount(self) -> None:
        for by in VIEWS[1:]:
            self.query_one(f"#compare-{by}").display = False
        self._wait("comparing")
        self.compute()

    def _wait(self, what: str) -> None:
        ellipsis = self.app.palette.mark("ellipsis")
        self.query_one("#compare-line", PaneLine).show(f"{what} {ellipsis}", ())

    @work(thread=True, group="compare", description="comparing", exit_on_error=False)
    def compute(self) -> None:
        from profilers.analysis.compare import CompareError
        from profilers.readers.errors import ReadError
        from profilers.runs.folder import RunsError

        def say(text: str) -> None:
            self.app.call_from_thread(self._wait, text)

        try:
            data = compared(self.app.root, self.keys, self.app.options, say)
        except (CompareError, ReadError, RunsError, OSError) as problem:
            self.app.call_from_thread(self._failed, str(problem))
            return
        self.app.call_from_thread(self._show, data)

    def _failed(self, text: str) -> None:
        if self.is_mounted:
            self.query_one("#compare-line", PaneLine).show("", (), f"Not compared: {text}")

    def _show(self, data: Compared) -> None:
        if not self.is_mounted:
            return
        self.data = data
        self.query_one(PairedBars).show(data)
        self.query_one(SweepLine).show(data.sweep)
        summary = self.query_one("#compare-summary", LineTable)
        room = 11 if self.app.size.height >= SHORT else 4 if data.sweep is not None else 7
        summary.styles.height = min(len(data.summary) + 1, room)
        summary.show(data.summary)
        for by in VIEWS:
            self.query_one(f"#compare-{by}", LineTable).show(data.rows[by])
        self.query_one("#compare-line", PaneLine).show(self._verdict(), data.notes)
        self._turn_to(self.by)

    def _verdict(self) -> str:
        """The change in one line: the last against the first."""
        assert self.data is not None
        rows = {
            str(q): float(c) for q, c in zip(self.data.summary["quantity"], self.data.summary["change"], strict=True)
        }
        times = "x" if self.app.palette.ascii else "×"
        words = []
        for quantity, label in (
            ("unprofiled step time (median)", "unprofiled steps"),
            ("step time (mean)", "recorded"),
            (f"kernel time a {self.data.per}", "kernels"),
        ):
            change = rows.get(quantity, float("nan"))
            if change == change:
                words.append(f"{label} {change:.2f}{times}")
        return f"{self.data.letters[-1]} over a: " + (", ".join(words) or "no times to compare")

    # -- the rows ----------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> LineTable:
        return self.query_one(f"#compare-{self.by}", LineTable)

    def action_turn(self) -> None:
        if self.data is not None:
            self._turn_to(VIEWS[(VIEWS.index(self.by) + 1) % len(VIEWS)])

    def _turn_to(self, by: str) -> None:
        self.by = by
        for name in VIEWS:
            self.query_one(f"#compare-{name}", LineTable).display = name == by
        with self.prevent(Input.Changed):
            self.query_one("#compare-filter", Input).value = self.rows.filter
        self.rows.focus()
        self._describe()

    @on(LineTable.Moved)
    @on(LineTable.Arranged)
    def _describe(self) -> None:
        if self.data is None:
            return
        frame = self.data.rows[self.by]
        counts = frame["sign"].value_counts()
        new, gone = int(counts.get("appeared", 0)), int(counts.get("vanished", 0))
        plural = f"{len(frame):,} {self.by}{'s' if len(frame) != 1 else ''}"
        right = [f"{new:,} appeared", f"{gone:,} vanished", *remarks(self.rows.grid)[1:]]
        line = f"{plural} a {self.data.per}, largest change first"
        self.query_one("#compare-rows-line", PaneLine).show(line, right)

    def action_filter(self) -> None:
        if self.data is not None:
            box = self.query_one("#compare-filter", Input)
            box.add_class("shown")
            box.focus()

    @on(Input.Changed, "#compare-filter")
    def _filtering(self, event: Input.Changed) -> None:
        self.rows.set_filter(event.value)
        self._describe()

    @on(Input.Submitted, "#compare-filter")
    def _filtered(self) -> None:
        self.rows.focus()

    def action_back(self) -> None:
        """First out of the filter, then out of the screen."""
        box = self.query_one("#compare-filter", Input)
        if box.has_class("shown"):
            box.value = ""
            box.remove_class("shown")
            self.rows.focus()
            return
        self.dismiss()

    def exported(self) -> tuple[Table, pd.DataFrame] | None:
        """The table that has the focus, else the rows."""
        if self.data is None:
            return None
        lines = self.focused if isinstance(self.focused, LineTable) else self.rows
        return (lines.table, lines.grid.visible) if lines.grid is not None else None

    def action_copy(self) -> None:
        from tui.clipboard import copy_text, rows_as_text

        exported = self.exported()
        if exported is not None:
            self.app.notify(copy_text(self.app, rows_as_text(*exported), f"{len(exported[1]):,} rows"))
