"""Dialogs over the main screen: plain characters where those are asked for, and figures that grow with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tests.tui.conftest import gpu_recording
from tests.tui.driving import drive, until
from tui.app import KernelscopeApp
from tui.plain_filter import plain_cells
from tui.screens.drill import DrillScreen
from tui.widgets.line_table import LineTable


def test_plain_cells_keep_their_number() -> None:
    assert plain_cells("a · b … 2×") == "a | b ~ 2x"
    assert plain_cells("模型.py") == "????.py"
    assert plain_cells("╭─│▔▄") == "+-|-#"


@pytest.mark.parametrize("key", ["n", "o", "e", "question_mark", "d", "enter", "ctrl+p"])
def test_ascii_is_ascii_in_dialogs_too(root: Path, make_run: Any, key: str) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        app.main.pane.query_one(LineTable).focus()
        await pilot.press(key)
        await pilot.pause()
        assert app.screen is not app.main
        app.screen.refresh()
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert [line for line in lines if not line.isascii()] == []
        assert not any("??" in line for line in lines), "nothing of ours is without a plain sign"
        assert {len(line) for line in lines} == {120}

    drive(root, look, ascii=True)


def test_what_a_drill_says_of_its_row_grows_with_the_run(root: Path, make_run: Any) -> None:
    run = make_run("gpt2", state="profiling")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        app.main.pane.query_one(LineTable).focus()
        await pilot.press("enter")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, DrillScreen)
        facts = screen.query_one("#drill-facts", Static)
        assert "calls: 24 " in str(facts.render())
        run.write_window(3, gpu_recording())
        await until(pilot, lambda: "calls: 36 " in str(facts.render()))
        occurrences = screen.query_one("#drill-kernel-occurrences", LineTable)
        await until(pilot, lambda: occurrences.grid is not None and len(occurrences.grid.frame) == 36)

    drive(root, look)
