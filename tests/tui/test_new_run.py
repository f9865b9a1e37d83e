"""The launch screen: what is picked is a command, and the command is what is started."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from profilers.runs.folder import list_runs
from tests.tui.driving import drive, settle, until
from tui.app import KernelscopeApp
from tui.cli.parser import parse
from tui.screens.new_run import NewRunScreen
from tui.screens.own_code import understand
from tui.widgets.choices import Choices, window
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


def test_own_code_is_typed_into_the_search(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "my train.py"
    script.write_text("print(1)")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app)
        models = screen.query_one("#models", PickList)
        screen.query_one("#search", Input).value = f"'{script}' --epochs 2"
        await pilot.pause()
        models.focus()
        await pilot.press("space")
        screen.query_one("#search", Input).value = "qwen3"
        await pilot.pause()
        assert "qwen3-4b" in [item.key.rpartition("/")[2] for item in models.shown]
        screen.query_one("#search", Input).value = ""
        await pilot.pause()
        assert models.shown[1].text == f"'{script}' --epochs 2", "what is picked stays in sight"
        argv = screen.argv()
        assert argv[:2] == ["run", str(script)]
        assert argv[-3:] == ["--", "--epochs", "2"]
        args = parse(argv)
        assert (args.workloads, args.script_args) == ([str(script)], ["--epochs", "2"])
        screen.query_one("#search", Input).value = "gone.py"
        await pilot.pause()
        assert models.current is not None
        assert models.current.disabled == "there is no such file"

    drive(root, look)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bert base", None),
        ("casio/nerf", None),
        ("", None),
        ("'open quote.py", None),
        ("org/model", "Hugging Face id"),
        ("model.py:build", "function that builds a model"),
        ("./folder", "model folder"),
        ("train.py -- --lr 1", "script, run as it is"),
        ("torchrun", None),
        ("torchrun --nproc-per-node 2 train.py", "script in ranks, run as it is"),
        ("python -m package.train --lr 1", "script, run as it is"),
    ],
)
def test_what_is_own_code(text: str, kind: str | None) -> None:
    own = understand(text, ("casio", "core"))
    assert (own.kind if own else None) == kind


def test_ranks_are_typed_as_torchrun_takes_them(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    own = understand(f"torchrun --nproc-per-node=2 {script} --lr 1")
    assert own is not None and not own.problem
    assert (own.words, own.arguments) == (("--nproc", "2", str(script)), ("--lr", "1"))
    refused = understand(f"torchrun --nnodes 2 {script}")
    assert refused is not None and "--nnodes 2" in refused.problem


def test_options_that_do_not_fit_leave_a_sign() -> None:
    options = ("one", "two", "three", "four")
    assert window(options, "one", 40, "…") == [("[one]", True), (" two ", False), (" three ", False), (" four ", False)]
    for chosen in options:
        for room in range(9, 24):
            texts = [text for text, _ in window(options, chosen, room, "…")]
            assert f"[{chosen}]" in texts
            assert len("".join(texts)) <= room
            assert (texts[0] == "…") == (options[0] not in "".join(texts))
            assert (texts[-1] == "…") == (options[-1] not in "".join(texts))


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


def test_the_mouse_picks_an_option_and_starts(root: Path) -> None:
    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app)
        screen.query_one("#models", PickList).focus()
        await pilot.press("space")
        choices = screen.query_one("#choices", Choices)
        row = [choice.name for choice in choices.choices].index("dtype")
        line = "".join(segment.text for segment in choices.build(choices.size.width)[row])
        await pilot.click(choices, offset=(line.index("fp16"), row))
        await pilot.pause()
        assert "--dtype fp16" in shlex.join(screen.argv())
        await pilot.click(choices, offset=(line.index("[default]") + 1, row))
        await pilot.pause()
        assert "--dtype" not in screen.argv()
        started: list[list[str]] = []
        screen.start = lambda argv: started.append(argv)  # type: ignore[assignment,method-assign,return-value]
        box = screen.query_one("#new-run")
        words = "space picks · a: whole suite · enter goes on · ctrl+s starts · ctrl+y copies"
        left = box.region.right - 3 - len(words)
        await pilot.click(offset=(left + words.index("ctrl+s"), box.region.bottom - 1))
        await pilot.pause()
        assert started == [screen.argv()]

    drive(root, look)


def test_the_mouse_turns_towards_options_that_are_cut(root: Path) -> None:
    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app)
        choices = screen.query_one("#choices", Choices)
        row = [choice.name for choice in choices.choices].index("backend")
        first, second = choices.choices[row].options[:2]
        line = "".join(segment.text for segment in choices.build(choices.size.width)[row])
        await pilot.click(choices, offset=(line.index("…"), row))
        await pilot.pause()
        assert (first, choices.value("backend")) == ("eager", second)

    drive(root, look, size=(80, 24))


def test_a_script_is_offered_what_it_understands(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)")

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app)
        models, choices = screen.query_one("#models", PickList), screen.query_one("#choices", Choices)
        choices.focus()
        await pilot.press("right")  # mode: train, chosen before the script was picked
        screen.query_one("#search", Input).value = str(script)
        await pilot.pause()
        models.focus()
        await pilot.press("space")
        await pilot.pause()
        assert [choice.name for choice in choices.choices] == ["windows"]
        choices.focus()
        await pilot.press(*"12")
        await pilot.pause()
        assert screen.argv()[-2:] == ["--windows", "12"]
        assert "--mode" not in screen.argv()
        models.focus()
        await pilot.press("space")
        await pilot.pause()
        assert "mode" in [choice.name for choice in choices.choices]
        assert choices.value("windows") == "12"

    drive(root, look)
