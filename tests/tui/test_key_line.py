"""The line of keys at the bottom: a click does what the key does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.driving import drive, lines_of
from tui.app import KernelscopeApp
from tui.screens.drill import DrillScreen
from tui.screens.export import ExportScreen
from tui.screens.help import HelpScreen
from tui.screens.new_run import NewRunScreen
from tui.widgets.chrome import KeyLine
from tui.widgets.line_table import LineTable


@pytest.mark.parametrize(
    ("words", "size", "opens"),
    [
        ("New run", (80, 24), NewRunScreen),
        ("Drill", (80, 24), DrillScreen),
        ("Export", (200, 60), ExportScreen),
        ("more", (80, 24), HelpScreen),
    ],
)
def test_a_click_is_the_key(root: Path, make_run: Any, words: str, size: tuple[int, int], opens: type[object]) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        app.main.pane.query_one(LineTable).focus()
        await pilot.pause()
        line = lines_of(app.main.query_one(KeyLine))[0]
        await pilot.click(KeyLine, offset=(line.index(words), 0))
        await pilot.pause()
        assert isinstance(app.screen, opens)

    drive(root, look, size=size)


def test_a_click_beside_the_keys_does_nothing(root: Path, make_run: Any) -> None:
    make_run("gpt2")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await pilot.click(KeyLine, offset=(0, 0))
        await pilot.pause()
        assert app.screen is app.main

    drive(root, look)
