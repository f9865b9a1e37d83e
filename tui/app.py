"""The Textual program: it owns the watcher, the options and the screens; panes only draw what it hands them."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.filter import LineFilter
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.theme import Theme
from textual.worker import Worker, WorkerState

from profilers.analysis.options import Options
from profilers.analysis.registry import Table
from profilers.runs.folder import RunFolder, RunsError, runs_root
from tui.messages import Opened, Problem, RunsStarted, SnapshotArrived, Wanted
from tui.palette import DARK, LIGHT, palette
from tui.palette_commands import Commands
from tui.plain_filter import PlainCells
from tui.screens.main import MainScreen
from tui.snapshot import Query, RunView, Snapshot
from tui.themes import THEMES
from tui.watcher import Watcher

if TYPE_CHECKING:
    import pandas as pd


class KernelscopeApp(App[str]):
    """``run``: the run to show first; ``root``: the runs folder; ``ascii``: plain characters; ``colour``: False sends none."""

    CSS_PATH = "kernelscope.tcss"
    TITLE = "kernelscope"
    COMMANDS: ClassVar[set[type[Provider]]] = {Commands}  # type: ignore[assignment]
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+p", "command_palette", "Palette", key_display="^p", id="app.palette", tooltip="Every command by name"
        ),
        Binding("ctrl+c", "leave", "Quit", show=False, id="app.interrupt"),
        Binding("ctrl+q", "leave", "Quit", show=False, id="app.quit-2"),
    ]

    def __init__(
        self,
        run: str | None = None,
        root: Path | None = None,
        *,
        ascii: bool = False,
        theme: str | None = None,
        colour: bool = True,
    ) -> None:
        chosen = theme or ("ansi-dark" if not colour else "kernelscope-dark")
        super().__init__(ansi_color=True if "ansi" in chosen else None)
        self.register_theme(_theme("kernelscope-dark", True))
        self.register_theme(_theme("kernelscope-light", False))
        self.theme = chosen if chosen in THEMES else THEMES[0]
        self.ascii, self.colour = ascii, colour
        self._plain = PlainCells()
        self.palette = palette(self.theme, ascii=ascii, colour=colour)
        self.root = root or runs_root()
        self.options = Options()
        self.machine = ""
        self.first_run = run or ""
        if ascii:
            self.add_class("-ascii")
            ScrollBar.renderer = PlainScrollBar
        self.main = MainScreen()
        self.watcher = Watcher(self.root, self._deliver)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and with ``--ascii`` one that lets nothing else through."""
        found = super().get_line_filters()
        return [*found, self._plain] if self.ascii else found

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """``$quiet``, the colour of borders, for themes that are not ours."""
        return {"quiet": "ansi_bright_black"}

    # -- life --------------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._theme_changed)
        self.push_screen(self.main)
        if self.first_run:
            self.main.selected = self.first_run
        # The first frame is painted before the thread begins: it imports pandas, which takes longer than the frame.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.main.want()
        self.run_worker(
            self.watcher.run, thread=True, group="watch", description="watching the runs folder", exit_on_error=False
        )
        self.look_at_machine()

    def _deliver(self, snapshot: Snapshot) -> None:
        self.main.post_message(SnapshotArrived(snapshot))

    @work(thread=True, group="machine", description="looking at this machine's devices", exit_on_error=False)
    def look_at_machine(self) -> None:
        from tui.machine import machine_line

        line = machine_line()
        self.call_from_thread(self._know_machine, line)

    def _know_machine(self, line: str) -> None:
        self.machine = line
        self.main._show_title()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A background task that failed says what it was about; it never takes the screen down."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            what = event.worker.description or event.worker.name
            self.notify(
                f"{type(error).__name__}: {error}".splitlines()[0],
                title=f"Failed: {what}",
                severity="error",
                timeout=20,
            )

    def _theme_changed(self, theme: Theme) -> None:
        self.palette = palette(theme.name, ascii=self.ascii, colour=self.colour)
        for screen in self.screen_stack:
            for widget in screen.walk_children():
                redraw = getattr(widget, "on_resize", None)
                if redraw is not None and hasattr(widget, "palette"):
                    redraw()
        self.refresh()

    # -- what the watcher is asked -----------------------------------------------------------------------------------

    @on(Wanted)
    def _wanted(self) -> None:
        queries: list[Query] = list(self.main.wanted())
        for screen in self.screen_stack:
            more = getattr(screen, "extra_queries", None)
            if more is not None:
                queries += more()
        self.watcher.want(self.main.selected, queries, self.options)

    def set_options(self, options: Options) -> None:
        self.options = options
        self.main.want()

    @property
    def view(self) -> RunView | None:
        """The selected run's newest view."""
        view = self.main.snapshot.view
        return view if view is not None and view.key == self.main.selected else None

    # -- actions -----------------------------------------------------------------------------------------------------

    def action_new_run(self) -> None:
        from tui.screens.new_run import NewRunScreen

        self.push_screen(NewRunScreen())

    @on(RunsStarted)
    def _started(self, message: RunsStarted) -> None:
        if message.keys:
            self.main.select(message.keys[0])
        self.watcher.nudge()

    def action_open_file(self) -> None:
        from tui.screens.open_file import OpenScreen

        self.push_screen(OpenScreen())

    @on(Opened)
    def _opened(self, message: Opened) -> None:
        self.main.select(message.key)
        self.watcher.nudge()

    @on(Problem)
    def _problem(self, message: Problem) -> None:
        self.notify(message.text, title=message.title, severity="error", timeout=15)

    def drill(self, table: Table, row: pd.Series) -> None:
        """Show what a row is made of, where there is more to show."""
        from tui.screens.drill import DrillScreen, drillable

        if drillable(table) is None:
            self.notify("There is nothing below this row.")
            return
        self.push_screen(DrillScreen(table, row))

    def action_export(self) -> None:
        from tui.screens.export import ExportScreen

        exported = self._exported()
        self.push_screen(ExportScreen(exported, self._export_name(exported)))

    def _exported(self) -> tuple[Table, pd.DataFrame] | None:
        source = getattr(self.screen, "exported", None)
        return source() if source is not None else self.main.pane.exported()

    def _export_name(self, exported: tuple[Table, pd.DataFrame] | None) -> str:
        view = self.view
        run = "".join(c if c.isalnum() or c in "-_." else "-" for c in (view.title if view else "kernelscope"))
        return f"{run}-{exported[0].name}" if exported else run

    def action_copy(self, whole: bool = False) -> None:
        from tui.clipboard import copy_text, rows_as_text

        exported = self._exported()
        if exported is None:
            self.notify("There is no table here to copy.", severity="warning")
            return
        table, frame = exported
        lines = self.main.pane.filterable()
        row = lines.row if lines is not None and not whole else None
        text = (
            rows_as_text(table, frame if row is None else frame.iloc[[min(lines.cursor, len(frame) - 1)]])
            if lines is not None
            else rows_as_text(table, frame)
        )
        what = f"{len(frame):,} rows" if row is None else "the row"
        self.notify(copy_text(self, text, what))

    def action_stop_run(self) -> None:
        view = self.view
        if view is None or not view.status.live:
            self.notify("This run is not going on: there is nothing to stop.", severity="warning")
            return
        from tui.screens.confirm import ConfirmScreen

        question = f"Stop {view.title}? Its {view.windows} finished windows stay."
        self.push_screen(ConfirmScreen(question, "Stop it"), self._stop_answer(view.key))

    def _stop_answer(self, key: str):  # type: ignore[no-untyped-def]
        def answered(yes: bool | None) -> None:
            if yes:
                self.stop_run(key)

        return answered

    @work(thread=True, group="stop", description="stopping the run", exit_on_error=False)
    def stop_run(self, key: str) -> None:
        from profilers.runs.launch import stop

        try:
            stop(RunFolder.open(self.root / key))
        except (RunsError, OSError) as problem:
            self.post_message(Problem(str(problem), "Not stopped"))
        self.watcher.nudge()

    def action_pause_run(self) -> None:
        """Pause the run, or let it go on. Nothing is lost by it, so nothing is asked."""
        view = self.view
        if view is None or not view.status.live:
            self.notify("This run is not going on: there is nothing to pause.", severity="warning")
            return
        from profilers.collectors.protocol import NO_STEP
        from profilers.runs.launch import is_paused, pause, resume

        try:
            folder = RunFolder.open(self.root / view.key)
            if is_paused(folder):
                resume(folder)
                self.notify(f"{view.title} goes on.")
            else:
                pause(folder)
                sliced = any(note.startswith(NO_STEP) for note in view.status.notes)
                rests = "has no steps to rest between: it goes on, unrecorded" if sliced else "rests at its next step"
                self.notify(f"{view.title} {rests}; its device stays reserved. p: go on")
        except RunsError as problem:
            self.post_message(Problem(str(problem), "Not paused"))
        self.watcher.nudge()

    def action_run_first(self) -> None:
        """Put a waiting run before all others of this user on its device."""
        view = self.view
        if view is None or view.status.state != "queued":
            self.notify("This run does not wait: only waiting runs have an order.", severity="warning")
            return
        from profilers.runs.launch import first_in_queue

        try:
            said = first_in_queue(RunFolder.open(self.root / view.key))
            self.notify(f"{view.title} {said}.")
        except RunsError as problem:
            self.post_message(Problem(str(problem), "Not moved"))
        self.watcher.nudge()

    def action_delete_run(self) -> None:
        view = self.view
        if view is None:
            return
        if view.status.live:
            self.notify("This run goes on: stop it first (x).", severity="warning")
            return
        from tui.screens.confirm import ConfirmScreen

        def answered(yes: bool | None) -> None:
            if yes:
                try:
                    RunFolder.open(self.root / view.key).delete()
                except (RunsError, OSError) as problem:
                    self.post_message(Problem(str(problem), "Not deleted"))
                self.watcher.nudge()

        self.push_screen(
            ConfirmScreen(f"Delete {view.title} and its {view.windows} windows for good?", "Delete"), answered
        )

    def action_toggle_attention(self) -> None:
        on_now = not self.options.attention_as_gemm
        self.set_options(dataclasses.replace(self.options, attention_as_gemm=on_now))
        self.notify("Fused attention counts as GEMM." if on_now else "Fused attention counts on its own, not as GEMM.")

    def action_set_theme(self, name: str) -> None:
        self.theme = name

    def action_compare(self) -> None:
        from tui.screens.compare import CompareScreen

        view = self.view
        others = [row for row in self.main.snapshot.runs if view is not None and row.key != view.key]
        if view is None or not others:
            self.notify("Comparing needs a second run or recording: start one (n) or open one (o).", severity="warning")
            return
        self.push_screen(CompareScreen(view.key, view.title, tuple(others)))

    def action_help(self) -> None:
        from tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self.screen, self.main.pane))

    def action_leave(self) -> None:
        """Leave. Runs go on in their own processes; say which, and how to come back."""
        live = [row for row in self.main.snapshot.runs if row.live]
        self.watcher.stop()
        self.exit(farewell(live))

    async def action_quit(self) -> None:
        self.action_leave()

    def on_unmount(self) -> None:
        self.watcher.stop()


def farewell(live: list) -> str:  # type: ignore[type-arg]
    """What is said after the screen is gone."""
    if not live:
        return ""
    names = ", ".join(row.title for row in live[:3]) + (" …" if len(live) > 3 else "")
    many = f"{len(live)} runs go" if len(live) > 1 else "1 run goes"
    return f"{many} on without the screen ({names}). Come back: kernelscope attach   Stop: kernelscope stop RUN"


class PlainScrollBar(ScrollBarRender):
    """A scroll bar of whole cells: partial blocks are not ASCII."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8


def _theme(name: str, dark: bool) -> Theme:
    base = DARK if dark else LIGHT
    return Theme(
        name=name,
        primary=base.groups["matmul"],
        secondary=base.groups["elementwise"],
        accent=base.groups["matmul"],
        warning=base.groups["attention"],
        error=base.bad,
        success=base.good,
        foreground=base.text,
        background="#16181d" if dark else "#fbfbfa",
        surface="#1e2127" if dark else "#f0f0ee",
        panel="#262a31" if dark else "#e4e4e1",
        dark=dark,
        variables={"quiet": base.faint},
    )


def run_app(
    run: str | None = None, root: Path | None = None, ascii: bool = False, theme: str | None = None, mouse: bool = True
) -> int:
    """Open the screen; returns the process's exit code. Refuses terminals that cannot show it, with one line."""
    from tui.lifecycle import guard, refuse

    problem = refuse(os.environ, sys.stdin.isatty() and sys.stderr.isatty())
    if problem:
        print(problem, file=sys.stderr)
        return 1
    colour = not os.environ.get("NO_COLOR")
    plain = ascii or not _unicode()
    app = KernelscopeApp(run, root, ascii=plain, theme=theme or os.environ.get("KERNELSCOPE_THEME"), colour=colour)
    with guard(app):
        words = app.run(mouse=mouse)
    if words:
        print(words, file=sys.stderr)
    return app.return_code or 0


def _unicode() -> bool:
    """Whether the stream that is drawn on takes the glyphs (Textual draws on stderr)."""
    encoding = (getattr(sys.__stderr__, "encoding", "") or "").lower().replace("-", "")
    return encoding.startswith("utf")
