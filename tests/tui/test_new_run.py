"""The launch screen: what is picked is a command, and the command is what is started."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from profilers.runs.folder import list_runs
from tests.tui.test_screen import drive, settle, until
from tui.app import KernelscopeApp
from tui.cli.parser import parse
from tui.screens.new_run import NewRunScreen
from tui.widgets.choices import Choices
from tui.widgets.pick_list import PickList


async def opened(pilot: Pilot[Any], app: KernelscopeApp) -> NewRunScreen:
    """The launch screen, once it knows the devices."""
    await pilot.press("n")
    await pilot.pause()
    screen = app.screen
    assert isinstance(screen, NewRunScreen)
    await until(pilot, lambda: screen.devices)
    return screen


@pytest.mark.parametrize("size", [(80, 24), (120, 34), (200, 60)])
def test_what_is_picked_is_a_command(root: Path, size: tuple[int, int]) -> None:
    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app)
        assert "Pick a model" in str(screen.query_one("#command", Static).render())
        screen.query_one("#search", Input).value = "bert base"
        await pilot.pause()
        models = screen.query_one("#models", PickList)
        models.focus()
        await pilot.press("space")
        choices = screen.query_one("#choices", Choices)
        choices.focus()
        await pilot.press("right")  # mode: train
        await pilot.press("down", "down", *"1,8")
        await pilot.pause()
        command = str(screen.query_one("#command", Static).render())
        assert command.startswith("kernelscope run bert-base")
        args = parse(shlex.split(command)[1:])
        assert (args.workloads, args.mode, args.batch) == (["bert-base"], "train", [1, 8])

    drive(root, look, size=size)


def test_a_whole_suite_with_one_key(root: Path) -> None:
    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app)
        screen.query_one("#models", PickList).focus()
        await pilot.press("a")
        await pilot.pause()
        assert screen.argv()[1:7] == ["gpt2", "bert-base", "resnet-50", "vit-b-16", "swin-t", "llama-1b"]
        await pilot.press("a")
        await pilot.pause()
        assert screen._picked() == []

    drive(root, look)


def test_a_refusal_is_one_line_and_starts_nothing(root: Path) -> None:
    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app)
        await pilot.press("ctrl+s")
        assert "Pick at least one model" in str(screen.query_one("#new-error", Static).render())
        models = screen.query_one("#models", PickList)
        models.focus()
        await pilot.press("space")
        choices = screen.query_one("#choices", Choices)
        choices.focus()
        await pilot.press("down", "down", *"999999")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "batch" in str(screen.query_one("#new-error", Static).render()))
        assert app.screen is screen
        assert not root.exists() or not list_runs(root)

    drive(root, look)


@pytest.mark.slow
def test_a_run_from_the_screen_to_its_tables(root: Path) -> None:
    """The main job: pick, start, watch it end, with the real worker on the CPU."""

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app)
        screen.query_one("#models", PickList).focus()
        await pilot.press("space")
        devices = screen.query_one("#devices", PickList)
        devices.picked.clear()
        devices.picked["cpu"] = None
        choices = screen.query_one("#choices", Choices)
        choices.focus()
        await pilot.press("down", "down", "down", "down", "right", "down", "down", "down", "down", "2")
        await pilot.pause()
        assert screen.argv() == ["run", "gpt2", "--device", "cpu", "--size", "tiny", "--windows", "2"]
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main, 60)
        await until(pilot, lambda: app.view is not None and app.view.status.state == "finished", 120)
        await settle(pilot, app)
        view = app.view
        assert view is not None
        assert view.windows == 2
        assert view.status.step_ms
        shares = app.main.query_one("#shares").shares
        assert [share.name for share in shares] == ["device", "operator", "wall"]

    drive(root, look)
