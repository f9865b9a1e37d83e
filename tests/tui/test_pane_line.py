"""The line above a table names what did not fit, also when the run has long ended and nothing comes after the first view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.driving import drive, settle, until
from tui.app import KernelscopeApp
from tui.widgets.chrome import PaneLine
from tui.widgets.line_table import LineTable


@pytest.mark.parametrize("tab", ["1", "2"])
def test_hidden_columns_are_named(root: Path, make_run: Any, tab: str) -> None:
    make_run()

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await pilot.press(tab)
        await settle(pilot, app)
        table = app.main.pane.query_one(LineTable)
        line = app.main.pane.query_one(PaneLine)
        await until(pilot, lambda: table.grid is not None and table.grid.hidden)
        await until(pilot, lambda: any(part.startswith("hidden: ") for part in line.right))

    drive(root, look)
