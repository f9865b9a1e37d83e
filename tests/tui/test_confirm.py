"""Questions before what is hard to undo: answered by a key or by the mouse, never by accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tests.tui.driving import drive
from tui.app import KernelscopeApp
from tui.screens.confirm import ConfirmScreen


@pytest.mark.parametrize(("word", "answer"), [("[stop] it", True), ("leave it", False)])
def test_the_answers_can_be_clicked(root: Path, word: str, answer: bool) -> None:
    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        answers: list[bool | None] = []
        app.push_screen(ConfirmScreen("Stop?", "[stop] it"), answers.append)
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen)
        hint = app.screen.query(Static).last()
        await pilot.click(hint, offset=(str(hint.render()).index(word), 0))
        await pilot.pause()
        assert answers == [answer]

    drive(root, look)
