"""A table without rows says why: that nothing was recorded yet, or what it means that a recording has none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tests.tui.driving import drive, settle
from tui.app import KernelscopeApp
from tui.widgets.line_table import LineTable


def said(root: Path, tab: str) -> list[str]:
    """What stands in place of the rows of a tab."""
    found: list[str] = []

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        app.main.action_tab(tab)
        await settle(pilot, app)
        table = app.main.pane.query_one(LineTable)
        assert table.grid is None or not len(table.grid.frame)
        found.append(table.empty)

    drive(root, look)
    return found


def test_a_recording_that_has_none(root: Path, make_run: Any) -> None:
    make_run()
    assert said(root, "fusion") == [
        "Nothing was compiled: --backend inductor runs through torch.compile and says what it fuses."
    ]


def test_a_run_before_its_first_window(root: Path, make_run: Any) -> None:
    make_run(state="warming", windows=0)
    assert said(root, "fusion")[0].startswith("No window yet.")


def test_a_run_that_recorded_nothing(root: Path, make_run: Any) -> None:
    make_run(state="failed", windows=0, cause="out of memory")
    assert said(root, "fusion") == ["No window was recorded."]
