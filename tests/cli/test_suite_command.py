"""``kernelscope suite``: which runs are meant, what they are called, and in which form the tables come."""

from __future__ import annotations

import json

import msgspec
import pytest

from profilers.runs.folder import RunFolder, runs_root
from profilers.runs.spec import Spec
from profilers.runs.status import Status
from tests.cli.support import recording
from tui.cli.commands.suite import names_of


def finished(name: str, launch: str, windows: int = 1, **changes: object) -> RunFolder:
    spec = Spec(name=name, workload=name, device="cuda:0", dtype="bf16", launch=launch)
    folder = RunFolder.create(runs_root(), msgspec.structs.replace(spec, **changes))
    for number in range(1, windows + 1):
        folder.write_window(number, recording())
    folder.write_status(Status(state="finished", windows_done=windows, step_ms=2.0, created=1.0))
    return folder


@pytest.fixture
def launched() -> list[RunFolder]:
    finished("old", "launch-1")
    return [finished("gpt2", "launch-2", batch=1), finished("gpt2", "launch-2", batch=8), finished("bert", "launch-2")]


def test_the_newest_launch_is_meant(launched, cli) -> None:
    done = cli("suite", "--format", "json")
    rows = json.loads(done.out)
    assert done.code == 0
    assert [row["workload"] for row in rows] == ["gpt2 b1", "gpt2 b8", "bert", "geomean", "mean"]
    assert rows[0]["gemm_pct"] == pytest.approx(60.0)
    assert rows[0]["step_ms"] == 2.0


def test_a_launch_is_named_by_its_id_or_by_any_of_its_runs(launched, cli) -> None:
    by_run = cli("suite", launched[1].id.rpartition("-")[2], "--format", "csv").out
    assert by_run == cli("suite", "launch-2", "--format", "csv").out
    assert cli("suite", "launch-1", "--format", "csv").out.count("\n") == 2


def test_runs_named_one_by_one(launched, cli) -> None:
    letters = [run.id.rpartition("-")[2] for run in launched[:2]]
    rows = json.loads(cli("suite", *letters, "--format", "json", "--table", "operators").out)
    assert [row["first"] for row in rows] == ["aten::addmm", "aten::addmm"]


def test_as_text_all_three_tables_come(launched, cli) -> None:
    out = cli("suite").out
    assert "What do these workloads consist of" in out
    assert "Which three operators" in out
    assert "before most of every workload is covered" in out
    assert "geomean" in out


def test_runs_without_windows_are_named_and_left_out(cli) -> None:
    finished("full", "launch-9")
    finished("hollow", "launch-9", windows=0)
    done = cli("suite", "--format", "json")
    assert [row["workload"] for row in json.loads(done.out)] == ["full"]
    assert "hollow" in done.err and "no window" in done.err


def test_mistakes_are_one_line(cli) -> None:
    assert cli("suite").code != 0
    finished("full", "launch-9")
    done = cli("suite", "nothing-like-it")
    assert done.code == 2
    assert len(done.lines) == 1


def test_names_tell_runs_apart() -> None:
    one, two = finished("m", "x", dtype="fp16"), finished("m", "x", dtype="bf16", device="cuda:1")
    assert names_of([one, two]) == ["m fp16 cuda:0", "m bf16 cuda:1"]
    assert names_of([one]) == ["m"]
