"""Before anything is known, and while a long run is read: the screen says what it waits for, and nothing that is not so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.driving import drive, lines_of
from tui import analyst
from tui.app import KernelscopeApp
from tui.snapshot import Query, Snapshot
from tui.watcher import Watcher
from tui.widgets.welcome import Welcome


def test_no_runs_is_said_only_once_the_folder_was_looked_into(root: Path) -> None:
    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        app.main.show(Snapshot())
        text = "\n".join(lines_of(app.main.query_one(Welcome)))
        assert "looking for runs" in text and "No runs yet" not in text
        app.main.show(Snapshot(root=str(root)))
        assert "No runs yet" in "\n".join(lines_of(app.main.query_one(Welcome)))

    drive(root, look)


def test_many_small_windows_are_announced_among_the_runs(
    root: Path, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analyst, "SMALL_FILES", 3)
    run, other = make_run("gpt2", windows=3), make_run("bert")
    seen: list[Snapshot] = []
    watcher = Watcher(root, seen.append)
    watcher.want(run.id, [Query("kernels")])
    last = watcher.tick()
    assert last is not None and last.view is not None and not last.view.loading
    (first,) = seen
    assert first.root == str(root) and first.view is not None
    assert first.view.loading == "reading the recording"
    assert {row.key for row in first.runs} == {run.id, other.id}, "the list is there while the run is read"
