"""Pausing a run and moving it to the front of its queue, from the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from profilers.collectors import files, protocol
from profilers.collectors.spec import encode
from profilers.runs.folder import RunFolder
from profilers.runs.jobs import launch_file, order_file
from profilers.runs.launch import queue
from tests.tui.driving import drive, until
from tui.app import KernelscopeApp
from tui.panes.log import LogLines
from tui.widgets.chrome import Headline


def test_p_pauses_and_lets_go_on(root: Path, make_run: Any) -> None:
    run = make_run("gpt2", state="profiling", windows=1)

    async def look(pilot: Any, app: KernelscopeApp) -> None:
        assert app.main.applies("app.pause_run") and not app.main.applies("app.run_first")
        await pilot.press("p")
        await until(pilot, lambda: (run.path / protocol.PAUSE).exists())
        status = run.status()
        status.phase = "paused"  # the worker's answer
        run.write_status(status)
        head = app.main.query_one(Headline)
        await until(pilot, lambda: "paused" in "".join(s.text for s in head.build(100)[1]))
        await pilot.press("p")
        await until(pilot, lambda: not (run.path / protocol.PAUSE).exists())
        await pilot.press("f")  # it does not wait: a toast says so
        await pilot.pause()
        assert app.screen is app.main

    drive(root, look)


def test_p_does_nothing_to_a_finished_run(root: Path, make_run: Any) -> None:
    run = make_run("gpt2")

    async def look(pilot: Any, app: KernelscopeApp) -> None:
        assert not app.main.applies("app.pause_run")
        await pilot.press("p")
        await pilot.pause()
        assert not (run.path / protocol.PAUSE).exists()

    drive(root, look)


def test_p_on_a_run_that_was_removed_meanwhile(root: Path, make_run: Any) -> None:
    run = make_run("gpt2", state="profiling", windows=1)

    async def look(pilot: Any, app: KernelscopeApp) -> None:
        run.discard()
        app.action_pause_run()  # before the watcher has seen it: a toast says so, and the screen stays
        await pilot.pause()
        assert app.screen is app.main

    drive(root, look)


def waiting(root: Path, make_run: Any, name: str) -> RunFolder:
    run: RunFolder = make_run(name, state="queued", windows=0)
    files.write_atomic(run.path / protocol.SPEC, encode(msgspec.structs.replace(run.spec(), launch="one")))
    return run


def test_f_puts_a_waiting_run_first(root: Path, make_run: Any) -> None:
    runs = [waiting(root, make_run, name) for name in ("a", "b", "c")]
    launch_file(root, "one").parent.mkdir()
    files.write_atomic(launch_file(root, "one"), msgspec.json.encode([run.id for run in runs]))
    assert queue(root, "one") == runs

    async def look(pilot: Any, app: KernelscopeApp) -> None:
        view = app.view
        assert view is not None
        assert app.main.applies("app.run_first")
        await pilot.press("f")
        await until(pilot, lambda: order_file(root, "one").exists())
        chosen = root / view.key
        assert queue(root, "one") == [RunFolder(chosen), *(run for run in runs if run.path != chosen)]

    drive(root, look)


def test_the_log_ends_with_what_was_noted(root: Path, make_run: Any) -> None:
    run = make_run("gpt2", state="profiling", windows=1)
    status = run.status()
    status.notes = ("no step for 60 s: rank 0 at a.py:1 (in backward), rank 1 at b.py:2",)
    status.phase, status.eta_s = status.notes[0], None
    run.write_status(status)
    (run.path / protocol.LOG).write_text("[rank 0] hello\n")

    async def look(pilot: Any, app: KernelscopeApp) -> None:
        await pilot.press("0")
        lines = app.main.query_one(LogLines)
        await until(pilot, lambda: lines.lines == ("[rank 0] hello", f"note: {status.notes[0]}"))
        head = app.main.query_one(Headline)
        text = "".join(s.text for s in head.build(80)[1]).rstrip()
        assert text == status.phase, "whole, where it leaves no room for the windows"
        assert "".join(s.text for s in head.build(120)[1]).startswith("window 1/")

    drive(root, look)
