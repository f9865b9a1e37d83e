"""``kernelscope run train.py`` without a screen: its output passes through, and its exit code is the command's."""

from __future__ import annotations

from pathlib import Path

import pytest

from profilers.runs.folder import RunFolder, runs_root
from profilers.runs.spec import Spec
from profilers.runs.status import Status
from tui.cli.results import print_results
from tui.cli.waiting import _Output, wait

SCRIPT = """
import sys

import torch

weight = torch.zeros(8, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for number in range(24):
    (weight * 2).sum().backward()
    optimizer.step()
sys.stdout.write("epoch 1\\rhalf\\rall of it \\x1b[31mred\\n")
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", [0, 5])
def test_output_and_exit_code_are_the_scripts(cli, tmp_path: Path, code: int) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = (f"{tmp_path}/train.py", "--device", "cpu", "--windows", "1", "--no-tui", "--", str(code))
    done = cli("run", *words)
    assert done.code == code
    assert "all of it \\x1b[31mred" in done.lines, "the newest state of a line, its control characters visible"
    assert "to stderr" in done.lines
    assert not any("half" in line for line in done.lines)
    assert "note: steps: optimizer steps" in done.lines
    assert "summary" in done.out and "epoch" not in done.out, "tables alone go to stdout"


def ended(code: int | None, state: str, target: str = "script") -> RunFolder:
    run = RunFolder.create(runs_root(), Spec(name="x", workload="x.py", target=target))
    run.write_status(Status(state=state, exit_code=code))
    return run


def test_signals_and_other_ends(cli) -> None:
    from tui.cli.parser import parse

    args = parse(["run", "x"])
    assert print_results([ended(-9, "died")], args) == 137
    assert print_results([ended(None, "died")], args) == 1
    assert print_results([ended(-15, "stopped")], args) == 0
    assert print_results([ended(3, "failed", target="callable")], args) == 1
    assert print_results([ended(3, "failed"), ended(0, "finished")], args) == 3, "of several, some failed"


def test_a_log_is_told_by_the_line(tmp_path: Path) -> None:
    run = ended(0, "finished")
    output = _Output(run)
    assert output.news() == []
    log = run.path / "worker.log"
    log.write_text("one\ntw")
    assert output.news() == ["one"]
    log.write_text("one\ntwo\r\n\nthree")
    assert output.news() == ["two", ""]
    assert output.news() == []
    assert output.news(last=True) == ["three"]


def test_of_several_runs_no_output_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    run = ended(0, "finished")
    (run.path / "worker.log").write_text("secret\n")
    wait([run])
    assert "secret" not in capsys.readouterr().err
    wait([run], output=True)
    assert "secret" in capsys.readouterr().err
