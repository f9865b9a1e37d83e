"""run: from the words to queued runs, and what comes out at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from profilers.runs.folder import RunFolder, list_runs, runs_root
from profilers.runs.spec import Spec
from profilers.runs.status import Status
from tests.cli.support import Done, recording

Cli = Callable[..., Done]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """No process is started: a run of gpt2 ends well at once, any other fails."""
    seen: list[Spec] = []

    def launch(specs: Sequence[Spec], root: Path | None = None) -> list[RunFolder]:
        folders = []
        for spec in specs:
            folder = RunFolder.create(root or runs_root(), spec)
            if spec.name == "gpt2":
                folder.write_window(1, recording())
                folder.write_status(Status(state="finished", windows_done=1))
            else:
                (folder.path / "worker.log").write_text("first\nRuntimeError: boom\x1b[2J\n")
                folder.write_status(Status(state="failed", cause="RuntimeError: boom"))
            seen.append(spec)
            folders.append(folder)
        return folders

    monkeypatch.setattr("profilers.runs.launch.launch", launch)
    return seen


def test_a_run_without_a_terminal_ends_in_its_tables(cli: Cli, launched: list[Spec]) -> None:
    done = cli("run", "gpt2", "--device", "cpu", "--windows", "1")
    assert done.code == 0
    (folder,) = list_runs()
    for table in ("summary", "shares", "groups", "kernels"):
        assert f"{folder.id}: {table}" in done.out
    assert "G matmul" in done.out
    assert f"started {folder.id}" in done.err
    assert "finished" in done.err
    assert launched[0].device == "cpu"


def test_a_failed_run_shows_its_cause_and_log_on_stderr(cli: Cli, launched: list[Spec]) -> None:
    done = cli("run", "bert-base", "--device", "cpu")
    assert done.code == 1
    assert done.out == ""
    assert "failed: RuntimeError: boom" in done.err
    assert "  | RuntimeError: boom\\x1b[2J" in done.err


def test_one_of_two_failed_is_exit_code_3(cli: Cli, launched: list[Spec]) -> None:
    assert cli("run", "gpt2", "bert-base", "--device", "cpu").code == 3
    assert [spec.name for spec in launched] == ["gpt2", "bert-base"]


def test_detached_runs_print_their_ids_and_nothing_else(cli: Cli, launched: list[Spec]) -> None:
    done = cli("run", "gpt2", "--device", "cpu", "--batch", "1,2", "--detach")
    assert done.code == 0
    assert done.out.splitlines() == [run.id for run in reversed(list_runs())]
    assert [spec.batch for spec in launched] == [1, 2]


def test_nothing_is_started_when_one_word_is_wrong(cli: Cli, launched: list[Spec]) -> None:
    assert cli("run", "gpt2", "gpt22", "--device", "cpu").code == 2
    assert launched == []


def test_the_screen_opens_on_the_first_run_where_there_is_a_terminal(
    cli: Cli, launched: list[Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str | None] = []
    monkeypatch.setattr("tui.cli.commands.run.has_terminal", lambda: True)
    monkeypatch.setattr("tui.cli.commands.run.require_screen", lambda: None)
    monkeypatch.setattr("tui.cli.screen.open_screen", lambda args, run=None: opened.append(run) or 0)
    assert cli("run", "gpt2", "--device", "cpu", "--batch", "1,2").code == 0
    assert opened == [list_runs()[-1].id]
    assert cli("run", "gpt2", "--device", "cpu", "--no-tui").code == 0
    assert len(opened) == 1


def test_an_unwritable_runs_folder_is_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cli("run", "gpt2", "--size", "tiny", "--device", "cpu", "--runs", str(tmp_path / "file"))
    assert done.code == 1
    assert len(done.lines) == 1, done.err
    assert "cannot write to the runs folder" in done.err


def test_a_replay_is_a_run_of_the_file(cli: Cli, launched: list[Spec], tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("{}")
    cli("replay", str(tmp_path / "trace.json"), "--speed", "10", "--detach")
    assert (launched[0].target, launched[0].workload, launched[0].speed) == (
        "replay",
        str(tmp_path / "trace.json"),
        10.0,
    )


@pytest.mark.slow
def test_a_real_tiny_run_from_the_command_to_its_tables(cli: Cli) -> None:
    done = cli("run", "gpt2", "--size", "tiny", "--device", "cpu", "--windows", "2", "--no-tui")
    assert done.code == 0, done.err
    (folder,) = list_runs()
    assert f"{folder.id}: kernels" in done.out
    assert "G matmul" in done.out
    assert f"gpt2 {folder.id[-4:]} · finished · step " in done.err
