"""Exit codes, help, mistakes: everything that is answered before a command begins."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profilers.analysis.registry import TABLES
from tests.cli.support import ROOT, Done, process
from tui.cli.parser import COMMANDS, parse

Cli = Callable[..., Done]


def test_help_names_every_command_and_exit_code(cli: Cli) -> None:
    done = cli("--help")
    assert done.code == 0
    assert done.err == ""
    for word in (*COMMANDS, "130", "exit codes", "stdout", "stderr", "KERNELSCOPE_DEBUG"):
        assert word in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_fits_a_terminal(command: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = cli(command, "--help")
    assert done.code == 0
    assert "--runs DIR" in done.out
    assert max(map(len, done.out.splitlines())) <= 120


def test_the_help_of_show_names_every_table(cli: Cli) -> None:
    named = cli("show", "--help").out.partition("TABLE: ")[2].partition("With --follow")[0]
    assert set(re.findall(r"\w+", named)) >= {*TABLES, "samples"}


def test_version_is_the_distributions(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").out == f"kernelscope {version('kernelscope')}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shwo"], "no command is called 'shwo'; did you mean show?"),
        (["ls"], "required: models|suites|devices|runs"),
        (["ls", "model"], "did you mean models?"),
        (["ls", "models", "--format", "xml"], "invalid choice: 'xml'"),
        (["ls", "models", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["--theme", "dark"], "argument --theme: invalid choice: 'dark'"),
        (["ls", "models", "--forma", "csv"], "unrecognized arguments"),
        (["ls", "models", "--", "-x"], "'--' is for the arguments of a script"),
        (["show"], "required: RUN|FILE"),
        (["show", "last", "kernel"], "no table is called 'kernel'; did you mean kernels?"),
        (["show", "last", "states", "--why"], "--why explains groups"),
        (["run"], "required: WORKLOAD"),
        (["run", "gpt22", "--device", "cpu"], "no workload is called 'gpt22'; the nearest names are"),
        (["run", "gpt2", "--device", "tpu"], "no device is called 'tpu'; there are"),
        (["run", "gpt2", "--device", "cpu", "--mode", "fly"], "invalid choice: 'fly'"),
        (["run", "gpt2", "--device", "cpu", "--batch", "99999999"], "batch 99999999 is out of range"),
        (["run", "gpt2", "--device", "cpu", "--rules", "/nowhere.toml"], "/nowhere.toml: cannot read the rules"),
        (["run", __file__, "--device", "cpu", "--mode", "train"], "--mode says nothing to a script"),
        (["run", __file__, "--device", "meta"], "a script computes, so it cannot run on the meta device"),
        (["run", "gpt2", "--device", "cpu", "--nproc", "2"], "--nproc starts a script several times"),
        (["run", "gpt2", "--device", "cpu", "--weights", "pretrained"], "is built with random weights"),
        (["whatif", "last", "--gemm", "0"], "'0' is not a speed-up"),
        (["whatif", "last", "--group", "normalization"], "is not NAME=X"),
        (
            ["whatif", "last", "--group", "normalisation=2"],
            "no group is called 'normalisation'; did you mean normalization?",
        ),
        (["replay", "/nowhere.json"], "there is no file /nowhere.json"),
        (["attach", "--runs"], "expected one argument"),
        ([], "the screen needs a terminal"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], message: str, cli: Cli) -> None:
    done = cli(*words)
    assert done.code == 2, done.err
    assert done.out == ""
    assert len(done.lines) == 1, done.err
    assert done.lines[0].startswith("kernelscope: ")
    assert message in done.lines[0]


def test_a_file_in_place_of_a_command_is_understood(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("{}")
    assert f"kernelscope show {tmp_path}/trace.json" in cli(f"{tmp_path}/trace.json").err


def test_global_options_may_stand_on_both_sides(tmp_path: Path) -> None:
    args = parse(["--runs", str(tmp_path), "--rules", "a", "--ascii", "ls", "runs", "--rules", "b"])
    assert (args.runs, args.rules, args.ascii, args.no_color) == (tmp_path, [Path("a"), Path("b")], True, False)
    args = parse(["ls", "runs", "--runs", str(tmp_path), "--no-color"])
    assert (args.runs, args.rules, args.no_color) == (tmp_path, [], True)


def test_an_unexpected_error_is_one_line_and_says_how_to_see_more(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[object]:
        raise ZeroDivisionError("half a\nsentence")

    monkeypatch.setattr("apps.catalogue.entries", broken)
    done = cli("ls", "models")
    assert done.code == 1
    assert done.lines == [
        "kernelscope: ZeroDivisionError: half a sentence (unexpected; KERNELSCOPE_DEBUG=1 shows the traceback)"
    ]
    monkeypatch.setenv("KERNELSCOPE_DEBUG", "1")
    assert "Traceback" in cli("ls", "models").err


def test_a_dumb_terminal_is_pointed_to_no_tui(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr("tui.cli.screen.has_terminal", lambda: True)
    monkeypatch.setattr("tui.cli.commands.run.has_terminal", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    done = cli("run", "gpt2", "--device", "cpu")
    assert done.code == 2
    assert len(done.lines) == 1
    assert "--no-tui" in done.lines[0]


def test_data_to_stdout_talk_to_stderr(cli: Cli, tmp_path: Path) -> None:
    done = cli("ls", "suites", "--format", "csv")
    assert done.out.startswith("suite,title,workloads,names\n")
    assert done.err == ""
    done = cli("ls", "suites", "-o", str(tmp_path / "suites.csv"))
    assert done.out == ""
    assert "wrote" in done.err
    assert (tmp_path / "suites.csv").read_text().startswith("suite,title,")
    again = cli("ls", "suites", "-o", str(tmp_path / "suites.csv"))
    assert (again.code, len(again.lines)) == (1, 1)
    assert "--force" in again.err
    assert cli("ls", "suites", "-o", str(tmp_path / "suites.csv"), "--force").code == 0


def test_a_reader_that_had_enough_is_no_error() -> None:
    program = "import sys; from tui.cli import main; sys.exit(main())"
    command = f"{sys.executable} -P -c '{program}' ls models --format html | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_behind_stdout_is_told() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-c", "import sys; from tui.cli import main; sys.exit(main())", "ls", "models"],
            stdout=full, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["kernelscope: cannot write the output: No space left on device"]


def test_ctrl_c_is_130_without_a_trace() -> None:
    script = (
        "import sys, time, apps.catalogue as c\n"
        "def slow():\n    print('begun', flush=True); time.sleep(30)\n"
        "c.entries = slow\n"
        "from tui.cli import main; sys.exit(main())"
    )
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", script, "ls", "models"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        # Tests started in the background of a shell inherit an ignored SIGINT; a person's terminal never does that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (130, "", "")


def test_ascii_where_the_encoding_is_not_utf8() -> None:
    done = process("ls", "models", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "----" in done.stdout
