"""The main screen: runs at the left, the selected run at the right. It shows snapshots and says what it wants to be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input, Static

from profilers.analysis.options import WhatIf
from tui.headers import SHARED_QUERIES, shares_of, strip_of_view, telemetry_words
from tui.messages import SnapshotArrived, Wanted
from tui.panes import PANES, Pane
from tui.panes.whatif import Sliders, with_whatif
from tui.snapshot import Query, RunView, Snapshot
from tui.widgets.chrome import Headline, KeyLine, TabLine, TitleLine
from tui.widgets.line_table import LineTable
from tui.widgets.run_list import RunList
from tui.widgets.shares import ShareBars
from tui.widgets.state_strip import StateStrip
from tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from tui.app import KernelscopeApp

NARROW, WIDE, SHORT = 100, 160, 32
SMALLEST = (60, 18)


class MainScreen(Screen[None]):
    """Shows :class:`Snapshot` values. Owns which run and which tab are selected; reads no file and computes nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "app.new_run", "New run", id="run.new", tooltip="Pick models and devices, start profiling"),
        Binding("o", "app.open_file", "Open", id="file.open", tooltip="Open a recording"),
        Binding(
            "slash",
            "filter",
            "Filter",
            key_display="/",
            id="table.filter",
            tooltip="Show only rows with these words (!word: without)",
        ),
        Binding("c", "app.compare", "Compare", id="run.compare", tooltip="Compare this run with another"),
        Binding("w", "tab('whatif')", "What-if", id="tab.whatif", tooltip="What would a change buy?"),
        Binding("e", "app.export", "Export", id="table.export", tooltip="Write this table, as it is shown, to a file"),
        Binding("y", "app.copy", "Copy", id="table.copy", tooltip="Copy the row (Y: the table)"),
        Binding(
            "Y",
            "app.copy(True)",
            "Copy table",
            show=False,
            id="table.copy-all",
            tooltip="Copy the table as it is shown",
        ),
        Binding("x", "app.stop_run", "Stop", id="run.stop", tooltip="Stop this run (asks)"),
        Binding("p", "app.pause_run", "Pause", id="run.pause", tooltip="Let this run rest between steps, or go on"),
        Binding("f", "app.run_first", "First", id="run.first", tooltip="Put this waiting run before the others"),
        Binding("d", "app.delete_run", "Delete", id="run.delete", tooltip="Delete this finished run (asks)"),
        Binding("left_square_bracket", "run(-1)", "Previous run", key_display="[", show=False, id="run.previous"),
        Binding("right_square_bracket", "run(1)", "Next run", key_display="]", show=False, id="run.next"),
        Binding("left,h", "step(-1)", "Previous tab", show=False, id="tab.previous"),
        Binding("right,l", "step(1)", "Next tab", show=False, id="tab.next"),
        *[Binding(str((i + 1) % 10), f"tab_at({i})", f"Tab {i + 1}", show=False, id=f"tab.{i + 1}") for i in range(10)],
        Binding(
            "a",
            "app.toggle_attention",
            "Attention as GEMM",
            show=False,
            id="option.attention",
            tooltip="Count fused attention as GEMM, or on its own",
        ),
        Binding("escape", "clear", "Back", show=False, id="table.clear"),
        Binding(
            "question_mark,f1",
            "app.help",
            "Help",
            key_display="?",
            id="app.help",
            tooltip="Help for what has the focus",
        ),
        Binding("q", "app.leave", "Quit", id="app.quit", tooltip="Leave; runs go on"),
    ]

    app: KernelscopeApp  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = Snapshot()
        self.selected = ""
        self.tab = PANES[0].name_
        self._tab_chosen = False
        self._stale: set[str] = set()
        self._pictured: tuple[object, ...] = ()
        self._clickable: dict[str, tuple[DOMNode, str]] = {}

    def compose(self) -> ComposeResult:
        yield TitleLine()
        with Horizontal(id="body"):
            left = Vertical(RunList(id="runs"), id="left")
            left.border_title = "Runs"
            left.border_subtitle = "GEMM % of kernel time"
            yield left
            with Vertical(id="right") as right:
                right.border_title = "Run"
                yield Welcome(id="welcome")
                yield Headline()
                yield ShareBars(id="shares")
                yield StateStrip(id="strip")
                yield TabLine()
                with ContentSwitcher(id="panes", initial=f"pane-{self.tab}"):
                    for kind in PANES:
                        yield kind(id=f"pane-{kind.name_}")
                yield Input(
                    id="filter", placeholder="words that a row must have, !word: must not · enter keeps, escape clears"
                )
        yield KeyLine()
        yield Static(id="too-small")

    def on_mount(self) -> None:
        self._show_tabs()
        self.add_class("-empty")
        self.query_one(RunList).focus()
        self.refresh_keys()

    # -- sizes -------------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        wide, high = event.size.width, event.size.height
        self.set_class(wide < NARROW, "-narrow")
        self.set_class(wide >= WIDE, "-wide")
        self.set_class(high < SHORT, "-short")
        small = wide < SMALLEST[0] or high < SMALLEST[1]
        self.set_class(small, "-too-small")
        if small:
            need = f"kernelscope needs {SMALLEST[0]}x{SMALLEST[1]} cells; this terminal has {wide}x{high}."
            self.query_one("#too-small", Static).update(need + "\nMake it larger, or use: kernelscope show RUN TABLE")
        self._show_headline()
        self._leave_folded_list()
        self.refresh_keys()

    def _leave_folded_list(self) -> None:
        """Where the run list is folded away, the arrows and the sort keys belong to the table."""
        hidden = self.has_class("-narrow") and self.snapshot.runs
        if hidden and self.focused is not None and self.focused.id == "runs":
            self.pane.focus_inside()

    # -- snapshots ---------------------------------------------------------------------------------------------------

    @on(SnapshotArrived)
    def _arrived(self, message: SnapshotArrived) -> None:
        self.show(message.snapshot)

    def show(self, snapshot: Snapshot) -> None:
        """Show a newer snapshot."""
        before, self.snapshot = self.snapshot, snapshot
        view = snapshot.view
        if view is not None and not self.selected:
            self.selected = view.key
        if self.selected and all(row.key != self.selected for row in snapshot.runs):
            self.selected = snapshot.runs[0].key if snapshot.runs else ""
        self.set_class(not snapshot.runs, "-empty")
        self.query_one(RunList).show(snapshot.runs, self.selected)
        self._show_title()
        if not snapshot.runs:
            welcome = self.query_one(Welcome)
            welcome.looked = bool(snapshot.root or snapshot.error)
            welcome.redraw()
            self.refresh_keys()
            return
        if view is None or view.key != self.selected:
            self.want()
            return
        first_sight = before.view is None or before.view.key != view.key
        if first_sight and not self._tab_chosen:
            self._open_fitting_tab(view)
        self.set_class(not view.windows, "-unread")
        self._show_headline()
        # Most snapshots bring only progress and telemetry: the pictures are made anew when their tables are.
        pictured = (view.attention_as_gemm, *(view.tables.get(query) for query in SHARED_QUERIES))
        if len(pictured) != len(self._pictured) or any(
            a is not b for a, b in zip(pictured, self._pictured, strict=True)
        ):
            self._pictured = pictured
            self.query_one("#shares", ShareBars).show(shares_of(view))
            self.query_one("#strip", StateStrip).show(strip_of_view(view))
        self._stale = {kind.name_ for kind in PANES}
        self._show_pane()
        self._leave_folded_list()
        self.refresh_keys()

    def _open_fitting_tab(self, view: RunView) -> None:
        """A run that failed shows its cause and its log first; another run goes back to the kernels."""
        broken = view.status.state in ("failed", "died")
        wanted = "log" if broken else "kernels" if self.tab == "log" else self.tab
        if wanted != self.tab:
            self._open(wanted)

    def _show_title(self) -> None:
        title = self.query_one(TitleLine)
        runs = self.snapshot.runs
        live = sum(r.live and r.state != "queued" for r in runs)
        waiting = sum(r.state == "queued" for r in runs)
        words = [f"{live} running"] if live else []
        words += [f"{waiting} waiting"] if waiting else []
        title.counts = f" {self.app.palette.mark('dot')} ".join(words) or (
            f"{len(runs)} run{'s' if len(runs) != 1 else ''}" if runs else ""
        )
        title.machine = self.app.machine
        title.warning = self.snapshot.error
        view = self.snapshot.view
        title.telemetry = telemetry_words(view) if view is not None and view.status.live else ()
        title.redraw()

    def _show_headline(self) -> None:
        view = self.snapshot.view
        if view is None or not self.is_mounted:
            return
        place = ""
        if self.has_class("-narrow"):
            keys = [row.key for row in self.snapshot.runs]
            at = keys.index(self.selected) + 1 if self.selected in keys else 0
            place = f"run {at}/{len(keys)} [ ]"
        self.query_one(Headline).show(view, place)

    # -- tabs --------------------------------------------------------------------------------------------------------

    @property
    def pane(self) -> Pane:
        """The pane on screen."""
        return self.query_one(f"#pane-{self.tab}", Pane)

    def _show_tabs(self) -> None:
        self.query_one(TabLine).show([(kind.name_, kind.title) for kind in PANES], self.tab)

    def _open(self, name: str) -> None:
        had_focus = self.focused is not None and self.focused.id != "runs"
        self.tab = name
        self.query_one("#panes", ContentSwitcher).current = f"pane-{name}"
        self._show_tabs()
        self._show_filter()
        self.want()
        self._show_pane()
        if had_focus:
            self.pane.focus_inside()
        self.refresh_keys()

    def _show_pane(self) -> None:
        view = self.snapshot.view
        if view is None or view.key != self.selected or self.tab not in self._stale:
            return
        missing = [q for q in self.pane.queries() if q not in view.tables and q not in view.problems]
        if missing and view.windows:
            return  # the watcher has been asked; its next snapshot holds them
        self._stale.discard(self.tab)
        self.pane.show(view)

    def wanted(self) -> tuple[Query, ...]:
        """The tables that are on screen."""
        return (*SHARED_QUERIES, *self.pane.queries())

    def want(self) -> None:
        self.post_message(Wanted())

    def action_tab(self, name: str) -> None:
        self._tab_chosen = True
        self._open(name)
        self.pane.focus_inside()

    def action_tab_at(self, place: int) -> None:
        if place < len(PANES):
            self.action_tab(PANES[place].name_)

    def action_step(self, by: int) -> None:
        names = [kind.name_ for kind in PANES]
        self._tab_chosen = True
        self._open(names[(names.index(self.tab) + by) % len(names)])

    @on(TabLine.Picked)
    def _tab_picked(self, message: TabLine.Picked) -> None:
        self.action_tab(message.name)

    # -- runs --------------------------------------------------------------------------------------------------------

    def select(self, key: str) -> None:
        """Show this run."""
        self.selected = key
        self.query_one(RunList).show(self.snapshot.runs, key)
        self._tab_chosen = False
        self.want()

    @on(RunList.Selected)
    def _run_selected(self, message: RunList.Selected) -> None:
        self.select(message.key)

    def action_run(self, step: int) -> None:
        self.query_one(RunList).step(step)

    # -- filter ------------------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        if self.pane.filterable() is None:
            self.notify("This tab has no table to filter.", severity="warning")
            return
        box = self.query_one("#filter", Input)
        box.add_class("shown")
        box.focus()

    @on(Input.Changed, "#filter")
    def _filtering(self, event: Input.Changed) -> None:
        table = self.pane.filterable()
        if table is not None:
            table.set_filter(event.value)
            self._describe()

    @on(Input.Submitted, "#filter")
    def _filtered(self) -> None:
        self.query_one("#filter", Input).set_class(bool(self.query_one("#filter", Input).value), "shown")
        self.pane.focus_inside()

    def _show_filter(self) -> None:
        """The filter belongs to the table: another tab shows its own."""
        table = self.pane.filterable()
        box = self.query_one("#filter", Input)
        text = table.filter if table is not None else ""
        with self.prevent(Input.Changed):
            box.value = text
        box.set_class(bool(text), "shown")

    def action_clear(self) -> None:
        box = self.query_one("#filter", Input)
        table = self.pane.filterable()
        if box.has_class("shown") or (table is not None and table.filter):
            box.value = ""
            box.remove_class("shown")
            if table is not None:
                table.set_filter("")
            self._describe()
            self.pane.focus_inside()

    def _describe(self) -> None:
        describe = getattr(self.pane, "describe", None)
        if describe is not None:
            describe()

    # -- rows --------------------------------------------------------------------------------------------------------

    @on(LineTable.Chosen)
    def _row_chosen(self, message: LineTable.Chosen) -> None:
        self.app.drill(message.sender.table, message.row)

    @on(Sliders.Changed)
    def _factors(self, message: Sliders.Changed) -> None:
        chosen: WhatIf = message.whatif
        self.app.set_options(with_whatif(self.app.options, chosen))

    # -- keys --------------------------------------------------------------------------------------------------------

    def refresh_keys(self) -> None:
        """The line of keys: only those that do something now."""
        if not self.is_mounted:
            return
        keys: list[tuple[str, str]] = []
        seen = set()
        self._clickable.clear()
        for active in self.active_bindings.values():
            binding = active.binding
            if not binding.show or not active.enabled or binding.action in seen or not self.applies(binding.action):
                continue
            seen.add(binding.action)
            shown = self.app.get_key_display(binding)
            keys.append((shown, binding.description))
            self._clickable[shown] = (active.node, binding.action)
        order = {text: i for i, text in enumerate(_KEY_ORDER)}
        keys.sort(key=lambda k: order.get(k[1], 50))
        self.query_one(KeyLine).show(keys)

    @on(KeyLine.Clicked)
    async def _key_clicked(self, message: KeyLine.Clicked) -> None:
        node, action = self._clickable.get(message.key, (self, ""))
        if action:
            await self.app.run_action(action, node)

    def applies(self, action: str) -> bool:
        """Whether a key does something now. A key that does not is left out of the line of keys; pressed, it says why."""
        view = self.snapshot.view
        if action in ("app.export", "app.copy", "filter", "app.compare", "tab('whatif')"):
            return bool(self.snapshot.runs)
        if action == "app.run_first":
            return bool(view and view.status.state == "queued")
        if action in ("app.stop_run", "app.pause_run"):
            return bool(view and view.status.live)
        if action == "app.delete_run":
            return bool(view and not view.status.live)
        return True

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.refresh_keys()


_KEY_ORDER = (
    "New run",
    "Open",
    "Filter",
    "Sort",
    "Drill",
    "Compare",
    "What-if",
    "Less",
    "More",
    "Export",
    "Copy",
    "Pause",
    "First",
    "Stop",
    "Delete",
    "Palette",
    "Quit",
    "Help",
)
