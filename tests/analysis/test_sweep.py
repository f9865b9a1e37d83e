"""Sweeps: idle share and turn by hand, and which runs belong together."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tables_maker import US, kernel, recording, step

from profilers.analysis.options import Options
from profilers.analysis.sweep import Point, find_turn, idle_pct, sweep
from profilers.collectors.spec import Spec
from profilers.runs.folder import RunFolder, RunsError
from profilers.runs.sweeps import alike, groups, runs_of_launch
from profilers.tables import Device, Recording


def made(busy_us: int, step_us: int, device: str = "cuda:0") -> Recording:
    """Two steps, each with so much kernel time, a quarter of it GEMM."""
    rows = []
    for number in range(2):
        start = number * step_us * US
        rows.append(kernel(start, busy_us * US // 4, "g", "matmul", device=device, step=number))
        rows.append(kernel(start + busy_us * US // 4, busy_us * US * 3 // 4, "e", device=device, step=number))
    steps = [step(number, number * step_us * US, step_us * US) for number in range(2)]
    return recording(rows, steps=steps, devices=[Device(device)])


def point(batch: int, busy_us: int, step_us: int, unprofiled_us: float = math.nan, **more: Any) -> Point:
    return Point(more.get("workload", "m"), batch, more.get("seq"), batch, unprofiled_us, made(busy_us, step_us))


def test_idle_is_of_the_unprofiled_step() -> None:
    assert idle_pct(point(1, 20, 100)) == pytest.approx(80.0)
    # The profiler stretched the step from 40 to 100 us: half of the real one is idle.
    assert idle_pct(point(1, 20, 100, 40.0)) == pytest.approx(50.0)
    assert idle_pct(point(1, 20, 100, 10.0)) == 0.0
    cpu = Point("m", 1, None, 1, math.nan, made(20, 100, "cpu"))
    assert math.isnan(idle_pct(cpu))


def test_the_table_and_its_mark() -> None:
    points = [point(4, 80, 100), point(1, 20, 100), point(2, 40, 100), point(8, 160, 165)]
    frame = sweep(points, Options())
    assert frame["batch"].tolist() == [1, 2, 4, 8]
    assert frame["idle_pct"].tolist() == pytest.approx([80, 60, 20, 100 * 5 / 165])
    assert frame["step_us"].tolist() == [100, 100, 100, 165] and frame["item_us"].tolist() == [100, 50, 25, 165 / 8]
    assert frame["gemm_pct"].tolist() == pytest.approx([25.0] * 4)
    assert frame["bound"].tolist() == ["launch-bound"] * 2 + ["device-bound"] * 2
    assert [bool(mark) for mark in frame["mark"]] == [False, False, True, False]


def test_on_a_cpu_the_step_time_alone_says_it() -> None:
    made_ = [
        Point("m", batch, None, batch, 1e3 * step_ms, made(20, 100, "cpu"))
        for batch, step_ms in ((1, 4), (2, 4.2), (8, 20))
    ]
    frame = sweep(made_, Options())
    assert frame["idle_pct"].isna().all()
    assert frame["bound"].tolist() == ["overhead-bound", "device-bound", "device-bound"]
    assert frame["item_us"].tolist() == [4000, 2100, 2500]


def test_two_workloads_turn_on_their_own() -> None:
    points = [point(1, 20, 100), point(2, 90, 100), point(1, 90, 100, workload="n"), point(2, 95, 100, workload="n")]
    frame = sweep(points, Options())
    assert frame["workload"].tolist() == ["m", "m", "n", "n"]
    assert [bool(mark) for mark in frame["mark"]] == [False, True, False, False]


def test_where_it_turns() -> None:
    # Half-way between 60 and 40 %: at the geometric mean of the sizes.
    turn = find_turn([4, 16], [1, 1], [60, 40])
    assert turn is not None and turn.how == "idle" and turn.size == pytest.approx(8) and turn.row == 1
    assert find_turn([1, 2, 4], [1, 1, 1], [90, 80, 70]) is None
    assert find_turn([1, 2, 4], [1, 2, 4], [10, 5, 1]) is None
    nan = math.nan
    knee = find_turn([1, 2, 4, 8, 16], [10, 10.1, 10.4, 18, 36], [nan] * 5)
    assert knee is not None and knee.how == "knee" and (knee.size, knee.row) == (4, 2)
    assert find_turn([1, 2, 4], [1, 2, 4], [nan] * 3) is None
    assert find_turn([1], [1], [nan]) is None and find_turn([], [], []) is None


def spec(batch: int = 1, **more: Any) -> Spec:
    return Spec(workload="gpt2", batch=batch, **{"name": "m", "device": "cuda:0", "launch": "L1", **more})


@pytest.mark.parametrize(
    ("others", "same"),
    [
        ([spec(2)], True),
        ([spec(2, device="cuda:1", device_uuid="x", name="other")], True),
        ([spec(1, seq=128)], True),
        ([spec(1)], False),
        ([spec(2, dtype="bf16")], False),
        ([spec(2, backend="inductor")], False),
        ([spec(2, device="cpu")], False),
        ([spec(2, target="import")], False),
        ([], False),
    ],
)
def test_what_is_a_sweep(others: list[Spec], same: bool) -> None:
    assert alike([spec(), *others]) is same


def launched(root: Path) -> list[RunFolder]:
    runs = []
    for batch, dtype, busy in ((1, "fp32", 20), (4, "fp32", 90), (1, "bf16", 10), (4, "bf16", 30)):
        run = RunFolder.create(root, spec(batch, dtype=dtype, target="catalogue"))
        run.write_window(1, made(busy, 100))
        runs.append(run)
    return runs


def test_runs_of_a_launch(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    runs = launched(root)
    assert {run.id for run in runs_of_launch(root, "L1")} == {run.id for run in runs}
    assert len(runs_of_launch(root, runs[0].id)) == 4
    assert [len(part) for part in groups(runs)] == [2, 2]
    alone = RunFolder.create(root, spec(9, launch="L2"))
    alone.write_window(1, made(1, 2))
    with pytest.raises(RunsError, match="two or more"):
        runs_of_launch(root, "L2")


def test_the_command(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    runs = launched(root)

    def cli(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-P", "-m", "tui.cli", "--runs", str(root), "compare", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    done = cli("--sweep", "L1", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["workload"], row["batch"]) for row in rows] == [
        ("gpt2 infer fp32", 1), ("gpt2 infer fp32", 4), ("gpt2 infer bf16", 1), ("gpt2 infer bf16", 4),
    ]  # fmt: skip
    assert [bool(row["mark"]) for row in rows] == [False, True, False, False]
    assert "idle" in cli(runs[0].id, runs[1].id).stdout
    assert "turns" not in cli(runs[0].id, runs[2].id).stdout  # precision differs: no sweep
    wrong = cli("--sweep", "nothing-like-it")
    assert wrong.returncode != 0 and wrong.stderr.count("\n") == 1
    assert cli("--sweep", "L1", runs[0].id).returncode == 2
