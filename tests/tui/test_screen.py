"""The screen through Textual's Pilot: what it shows is the data, what it exports is what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from profilers.analysis.registry import TABLES
from profilers.runs.folder import RunFolder
from tests.tui.driving import SIZES, drawn, drive, lines_of, settle, until
from tui.app import KernelscopeApp
from tui.panes import PANES
from tui.screens.confirm import ConfirmScreen
from tui.screens.drill import DrillScreen
from tui.screens.export import ExportScreen
from tui.screens.help import HelpScreen
from tui.widgets.chrome import Headline, KeyLine, PaneLine, TabLine, TitleLine
from tui.widgets.line_table import LineTable
from tui.widgets.run_list import RunList
from tui.widgets.shares import ShareBars
from tui.widgets.state_strip import StateStrip
from tui.widgets.welcome import Welcome

# -- first start ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_first_start_says_what_to_do(root: Path, size: tuple[int, int]) -> None:
    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        text = "\n".join(lines_of(app.main.query_one(Welcome)))
        assert "No runs yet." in text
        assert "pick models and devices" in text
        assert app.main.query_one(Welcome).display
        keys = lines_of(app.main.query_one(KeyLine))[0]
        assert "New run" in keys
        assert "Export" not in keys  # there is nothing to export yet
        await pilot.press("e")
        await pilot.pause()
        assert isinstance(app.screen, ExportScreen)  # the screen itself can still be written

    drive(root, look, size=size)


def test_an_unreadable_runs_folder_is_named(root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    root.write_text("a file, not a folder")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        assert "cannot read" in app.main.snapshot.error
        assert "cannot read" in lines_of(app.main.query_one(TitleLine))[0]

    drive(root, look)


# -- a finished run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_headline_shares_strip_and_table(root: Path, make_run: Any, size: tuple[int, int]) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        headline = lines_of(app.main.query_one(Headline))
        assert headline[0].startswith("gpt2  infer · bf16 · b8 · s256 · cuda:0")
        assert "step 24.8 ±0.300 ms" in headline[0]
        bars = lines_of(app.main.query_one(ShareBars))
        assert [line.split()[0] for line in bars[:3]] == ["device", "operator", "wall"]
        assert all(" % " in line and "of " in line for line in bars[:3])  # never a percentage without its "of what"
        assert len(app.main.query_one(StateStrip).data.cells) > 0
        table = app.main.pane.query_one(LineTable)
        rows = drawn(table)
        assert rows[0].startswith("kernel")
        assert "matmul" in rows[1]
        assert all(len(line) <= table.size.width for line in rows)

    drive(root, look, size=size)


def test_shares_on_screen_are_the_analysis_own_numbers(root: Path, make_run: Any) -> None:
    run = make_run("gpt2")
    shares = TABLES["shares"].compute(run.recording())

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        for share in app.main.query_one(ShareBars).shares:
            part = shares[shares["share"] == share.name]
            assert part["pct"].sum() == pytest.approx(100.0)
            expected = part.loc[part["class"].isin(["gemm", "attention"]), "pct"].sum()
            assert share.gemm_pct == pytest.approx(expected)
            assert f"{share.gemm_pct:.1f} %" in "\n".join(lines_of(app.main.query_one(ShareBars)))

    drive(root, look)


@pytest.mark.parametrize("kind", PANES, ids=lambda kind: kind.name_)
@pytest.mark.parametrize("size", SIZES)
def test_every_tab_opens_at_every_size(root: Path, make_run: Any, kind: Any, size: tuple[int, int]) -> None:
    make_run("gpt2", samples=30, log="line one\nline two\n")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        app.main.action_tab(kind.name_)
        await settle(pilot, app)
        assert app.main.tab == kind.name_
        assert kind.title in lines_of(app.main.query_one(TabLine))[0]
        view = app.view
        assert view is not None
        assert view.problems == {}
        assert lines_of(app.main.pane.query_one(PaneLine))[0].strip()
        exported = app.main.pane.exported()
        table = app.main.pane.filterable()
        if table is not None:
            assert exported is not None
            computed = view.tables[app.main.pane.queries()[0]]
            assert sorted(exported[1].columns) == sorted(computed.columns)
            assert len(exported[1]) == len(computed)

    drive(root, look, size=size)


def test_sort_filter_and_cursor(root: Path, make_run: Any) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        table = app.main.pane.query_one(LineTable)
        table.focus()
        await pilot.press("down", "down")
        kept = str(table.row["name"])
        table.show(table.grid.frame.iloc[::-1].reset_index(drop=True))  # newer data in another order
        assert str(table.row["name"]) == kept
        await pilot.press("slash")
        await pilot.press(*"memory")
        await pilot.press("enter")
        await pilot.pause()
        assert len(table.grid.order) == 1
        assert "1 of 5 rows match" in lines_of(app.main.pane.query_one(PaneLine))[0]
        await pilot.press("escape")
        await pilot.pause()
        assert len(table.grid.order) == 5
        first = table.grid.sort
        await pilot.press("s")
        assert table.grid.sort != first
        await pilot.press("r")
        assert not table.grid.descending or table.grid.sort in ("name", "group", "state")

    drive(root, look)


def test_drill_from_a_kernel_to_its_operators_and_back(root: Path, make_run: Any) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        table = app.main.pane.query_one(LineTable)
        table.focus()
        await pilot.press("enter")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, DrillScreen)
        operators = screen.query_one("#drill-kernel-operators", LineTable)
        occurrences = screen.query_one("#drill-kernel-occurrences", LineTable)
        await until(pilot, lambda: operators.grid is not None and occurrences.grid is not None)
        assert operators.grid.frame["operator"].tolist() == ["aten::addmm"]
        assert "3072" in operators.grid.frame["shapes"].iloc[0]
        assert len(occurrences.grid.frame) == 2 * 2 * 6  # windows x steps x layers
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.main

    drive(root, look)


# -- export --------------------------------------------------------------------------------------------------------------


def test_export_writes_exactly_what_is_shown(root: Path, make_run: Any, tmp_path: Path) -> None:
    make_run("gpt2")
    target = tmp_path / "shown.csv"

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        table = app.main.pane.query_one(LineTable)
        table.set_filter("elementwise")
        table.grid.sort_by("calls")
        await pilot.press("e")
        await pilot.pause()
        assert isinstance(app.screen, ExportScreen)
        app.screen.query_one("#path", Input).value = str(target)
        app.screen.action_write()
        await until(pilot, target.exists)
        written = pd.read_csv(target)
        shown = table.grid.visible
        assert written.columns.tolist() == [c.name for c in table.table.columns]
        for column in written.columns:
            assert written[column].astype(str).tolist() == shown[column].astype(str).tolist() or written[
                column
            ].tolist() == pytest.approx(shown[column].tolist())
        # A second time asks before it replaces.
        await pilot.press("e")
        await pilot.pause()
        app.screen.query_one("#path", Input).value = str(target)
        before = target.read_bytes()
        target.write_bytes(b"mine")
        app.screen.action_write()
        assert target.read_bytes() == b"mine"
        app.screen.action_write()
        assert target.read_bytes() == before

    drive(root, look)


def test_export_of_the_screen_as_svg(root: Path, make_run: Any, tmp_path: Path) -> None:
    make_run("gpt2")
    target = tmp_path / "screen.svg"

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await pilot.press("e")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, ExportScreen)
        await pilot.press("left")  # the last format: svg
        await pilot.pause()
        screen.query_one("#path", Input).value = str(target)
        screen.action_write()
        text = target.read_text()
        assert text.startswith("<svg")
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
        assert "kernelscope" in text
        assert "matmul" in text
        assert "ctrl+s" not in text  # the screen below the dialog, not the dialog

    drive(root, look)


def test_export_to_nowhere_is_one_line(root: Path, make_run: Any, tmp_path: Path) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await pilot.press("e")
        await pilot.pause()
        app.screen.query_one("#path", Input).value = str(tmp_path / "no" / "such" / "x.csv")
        app.screen.action_write()
        await pilot.pause()
        assert isinstance(app.screen, ExportScreen)
        assert "there is no folder" in str(app.screen.query_one("#export-error").render())

    drive(root, look)


# -- runs that go on, fail, end ------------------------------------------------------------------------------------------


def test_a_growing_run_is_followed(root: Path, make_run: Any, recording: Any) -> None:
    run: RunFolder = make_run("gpt2", state="profiling", windows=1)

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        assert "window 1/4" in lines_of(app.main.query_one(Headline))[1]
        assert "14 s left" in lines_of(app.main.query_one(Headline))[1]
        calls = int(app.main.pane.query_one(LineTable).grid.frame["calls"].max())
        run.write_window(2, recording())
        status = run.status()
        status.windows_done = 2
        run.write_status(status)
        await until(pilot, lambda: int(app.main.pane.query_one(LineTable).grid.frame["calls"].max()) == 2 * calls)
        assert "window 2/4" in lines_of(app.main.query_one(Headline))[1]
        row = app.main.query_one(RunList).rows[0]
        assert row.live
        assert row.progress == 0.5

    drive(root, look)


def test_a_failed_run_shows_its_cause_and_log_first(root: Path, make_run: Any) -> None:
    make_run(
        "llama",
        state="failed",
        windows=0,
        cause="CUDA out of memory: 14.0 GB asked for",
        log="building\nRuntimeError: CUDA out of memory\n",
    )

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        assert app.main.tab == "log"
        assert "failed: CUDA out of memory" in lines_of(app.main.query_one(Headline))[1]
        assert "CUDA out of memory" in app.main.query_one(RunList).rows[0].subtitle

    drive(root, look)


def test_died_processes_are_seen(root: Path, make_run: Any) -> None:
    run = make_run("gpt2", state="profiling", windows=1)
    status = run.status()
    status.supervisor_pid, status.supervisor_start = 2**22 - 1, 1.0
    run.write_status(status)

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        row = app.main.query_one(RunList).rows[0]
        assert row.state == "died"
        assert not row.live
        view = app.view
        assert view is not None
        assert view.windows == 1  # what was recorded stays

    drive(root, look)


def test_stop_and_delete_ask_first(root: Path, make_run: Any) -> None:
    run = make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await pilot.press("x")
        await pilot.pause()
        assert app.screen is app.main  # a finished run has nothing to stop; a toast says so
        await pilot.press("d")
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("n")
        await pilot.pause()
        assert run.path.exists()
        await pilot.press("d")
        await pilot.pause()
        await pilot.press("y")
        await until(pilot, lambda: not run.path.exists())
        await until(pilot, lambda: not app.main.snapshot.runs)

    drive(root, look)


def test_quit_says_what_goes_on(root: Path, make_run: Any) -> None:
    make_run("gpt2", state="profiling", windows=1)

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await pilot.press("q")

    app = drive(root, look)
    assert "1 run goes on without the screen (gpt2)" in (app.return_value or "")
    assert "kernelscope attach" in (app.return_value or "")


def test_live_runs_stand_first_and_all_are_reached_at_80_columns(root: Path, make_run: Any) -> None:
    make_run("bert")
    make_run("gpt2", state="profiling", windows=1)
    make_run("vit", state="queued", windows=0)

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        assert [row.title for row in app.main.snapshot.runs] == ["gpt2", "vit", "bert"]
        assert not app.main.query_one("#left").display
        assert "run 1/3 [ ]" in lines_of(app.main.query_one(Headline))[0]
        await pilot.press("right_square_bracket", "right_square_bracket")
        await settle(pilot, app)
        assert "run 3/3" in lines_of(app.main.query_one(Headline))[0]
        assert app.view is not None
        assert app.view.title == "bert"

    drive(root, look, size=(80, 24))


# -- looks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["kernelscope-dark", "kernelscope-light", "ansi-dark", "ansi-light"])
def test_themes(root: Path, make_run: Any, theme: str) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        assert "matmul" in "\n".join(drawn(app.main.pane.query_one(LineTable)))

    drive(root, look, theme=theme)


def test_ascii_is_ascii(root: Path, make_run: Any) -> None:
    make_run("gpt2", samples=30)

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        for widget in (Headline, ShareBars, StateStrip, TabLine, TitleLine):
            for line in lines_of(app.main.query_one(widget)):
                assert line.isascii(), (widget, line)
        for kind in PANES:
            app.main.action_tab(kind.name_)
            await settle(pilot, app)
            for table in app.main.pane.query(LineTable):
                assert all(line.isascii() for line in drawn(table)), kind
            for line in lines_of(app.main.pane.query_one(PaneLine)):
                assert line.isascii(), (kind, line)

    drive(root, look, size=(160, 50), ascii=True)


def test_a_terminal_too_small_says_what_it_needs(root: Path, make_run: Any) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        text = str(app.main.query_one("#too-small").render())
        assert "needs 60x18" in text
        assert "40x12" in text

    drive(root, look, size=(40, 12))


def test_help_is_for_what_has_the_focus(root: Path, make_run: Any) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        app.main.pane.query_one(LineTable).focus()
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        what = {text for _, text, _ in app.screen.keys}
        assert "What this row is made of" in what
        assert "Sort by the next column" in what

    drive(root, look)


def test_every_key_has_an_id_and_every_pane_its_help() -> None:
    from tui.screens.main import MainScreen

    for kind in PANES:
        assert kind.help.strip(), kind
    ids = [binding.id for binding in MainScreen.BINDINGS]  # type: ignore[union-attr]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_control_characters_in_names_never_reach_the_screen(root: Path, make_run: Any) -> None:
    run = make_run("evil\x1b[2J\x07name", log="\x1b]52;c;aGVsbG8=\x07 printed\n")
    assert run

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        text = "\n".join(
            [*lines_of(app.main.query_one(Headline)), *(line.text for line in app.main.query_one(RunList)._drawn)]
        )
        assert "\x1b" not in text
        assert "\x07" not in text
        app.main.action_tab("log")
        await settle(pilot, app)
        log = app.main.pane.query_one("LogLines")
        assert all("\x1b" not in log.render_line(y).text for y in range(log.size.height))

    drive(root, look)


def test_where_the_list_is_folded_the_keys_are_the_tables(root: Path, make_run: Any) -> None:
    make_run("gpt2")
    make_run("bert")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await settle(pilot, app)
        selected = app.main.selected
        assert isinstance(app.main.focused, LineTable)
        before = app.main.pane.query_one(LineTable).grid.sort
        await pilot.press("down", "s")
        await settle(pilot, app)
        assert app.main.selected == selected and app.main.pane.query_one(LineTable).grid.sort != before
        await pilot.resize_terminal(120, 34)
        await settle(pilot, app)
        assert isinstance(app.main.focused, LineTable)

    drive(root, look, size=(80, 24))
