"""The GEMM study: which calls a recording holds, that each is called as it was, and what is said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profilers.analysis import flops as formulas
from profilers.analysis.calls import Call
from profilers.analysis.gemm_study import STUDY, Case, cases, study, sweep
from profilers.analysis.gemms import gemms
from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks
from profilers.analysis.prepare import prepare
from profilers.collectors import gemm_study as worker
from profilers.readers import read
from profilers.tables import Recording
from tui.cli.commands import gemms as command
from tui.cli.errors import CommandError

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A convolution, two linear layers, attention and a batched product on the CPU, as PyTorch's own profiler sees them."""
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    conv = torch.nn.Conv2d(4, 8, 3, stride=2, padding=1)
    first, second = torch.nn.Linear(64, 32), torch.nn.Linear(32, 16, bias=False)
    image, rows = torch.randn(2, 4, 16, 16), torch.randn(24, 64)
    q = torch.randn(1, 2, 8, 16)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(3):
            conv(image)
            second(first(rows))
            torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            torch.bmm(q[0], q[0].transpose(1, 2))
    path = tmp_path_factory.mktemp("study") / "trace.json"
    recorded.export_chrome_trace(str(path))
    return prepare(read(path))


def test_every_distinct_call_is_found_with_its_time(model: Recording) -> None:
    found, pct = cases(model)
    table = gemms(model, Options())
    shaped = table[table["shape"] != ""]  # the rest are wrappers (aten::linear over aten::addmm) with their own time
    assert sum(case.model_us for case in found) == pytest.approx(shaped["time_us"].sum())
    assert pct == pytest.approx(100 * shaped["time_us"].sum() / table["time_us"].sum())
    assert {case.label for case in found} == set(shaped["shape"])
    assert all(case.calls == 3 for case in found) and len(found) == 5
    assert all(0 < case.call_us <= case.model_us for case in found)
    assert [case.model_us for case in found] == sorted((case.model_us for case in found), reverse=True)


def test_calls_are_made_as_recorded(model: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "CPU_CACHE", 2**16)
    device = worker.Device("cpu")
    seen: dict[str, Any] = {}
    for case in cases(model)[0]:
        call = Call.parse(case.name, case.shapes, case.dtypes, case.values)
        op = worker.operator_of(call, case.name)
        made, named = worker.arguments(call, op, device.make)
        seen[call.name] = op(*made, **named)
        answer = worker.answer(device, case.question())
        assert answer["us"] > 0 and answer["times"] >= worker.LEAST_TIMES and answer["sets"] >= 2, answer
    shapes = {name: tuple((out[0] if isinstance(out, tuple) else out).shape) for name, out in seen.items()}
    assert shapes["addmm"] == (24, 32) and shapes["mm"] == (24, 16) and shapes["bmm"] == (2, 8, 8)
    convolution = next(shape for name, shape in shapes.items() if "conv" in name)
    assert convolution == (2, 8, 8, 8)  # stride and padding as recorded


def test_inputs_rotate_through_more_than_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "CPU_CACHE", 10 * 3 * 64 * 64 * 4)
    case = sweep("cpu", "fp32")[0]
    assert case.label == "m=64 n=64 k=64"
    answer = worker.answer(worker.Device("cpu"), case.question())
    # Two matrices of 16 KiB a set; the cache of 480 KiB twice: 30 sets.
    assert answer["sets"] == 30


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "why"),
    [
        ("aten::resize_", "[[2,2]]", '["float"]', "not an operator"),
        ("my::mm", "[[2,2],[2,2]]", '["float","float"]', "not an operator"),
        ("aten::__class__", "[[2,2]]", '["float"]', "not an operator"),
        ("aten::mm", "[[2,2]]", '["float"]', "mat2 is not recorded"),
        ("aten::mm", "[[2,2],[2,2]]", '["c10::Float8","c10::Float8"]', "inputs of type float8"),
        ("aten::mm", "[[2,3],[2,3]]", '["float","float"]', "cannot be multiplied"),
        ("aten::convolution", "[[1,2,4,4],[2,2,3,3],[2]]", '["float","float","float"]', "is not recorded"),
        ("aten::mm", "[[900000000000,9],[9,9]]", '["float","float"]', "not timed"),
    ],
)
def test_what_cannot_be_called_says_why(name: str, shapes: str, dtypes: str, why: str) -> None:
    question = {"name": name, "shapes": shapes, "dtypes": dtypes, "values": "", "dtype": "fp32"}
    answer = worker.answer(worker.Device("cpu"), question)
    assert why in answer["reason"] and "\n" not in answer["reason"] and "us" not in answer


def test_kernels_of_equal_calls() -> None:
    assert worker.per_call([1.0, 2.0, 3.0, 4.0], 2) == [3.0, 7.0]
    for lengths in ([], [1.0, 2.0, 3.0]):
        with pytest.raises(worker.NotReplayed, match="kernels were recorded for 2 calls"):
            worker.per_call(lengths, 2)


def test_the_table_by_hand() -> None:
    case = Case(
        "aten::mm",
        "[[1000,1000],[1000,1000]]",
        '["float","float"]',
        "",
        "m=1000 n=1000 k=1000",
        "fp32",
        2e9,
        12e6,
        4,
        800.0,
        200.0,
    )
    peaks = Peaks("x", fp32=40.0, memory_gb_s=1000.0)
    frame = study([case, case], [{"us": 100.0, "times": 40, "sets": 8}, {"reason": "not timed: no"}], peaks)
    assert list(frame.columns) == [column.name for column in STUDY.columns]
    row = frame.iloc[0]
    assert (row["model_us"], row["alone_us"], row["ratio"]) == (200.0, 100.0, 2.0)
    assert (row["tflops_per_s"], row["pct_of_peak"]) == pytest.approx((20.0, 50.0))
    assert row["intensity"] == pytest.approx(2e9 / 12e6) and row["bound"] == "compute"
    assert np.isnan(frame.iloc[1]["alone_us"]) and frame.iloc[1]["measured"] == "not timed: no"


def test_the_background_is_every_combination() -> None:
    made = sweep("cpu", "bf16")
    assert len(made) == 27 and len({case.label for case in made}) == 27 and all(case.calls == 0 for case in made)
    assert sweep("cpu", "int8") == []
    for case in made:
        work = formulas.work(Call.parse(case.name, case.shapes, case.dtypes, ""))
        assert work is not None and work.flops == case.flops


def test_the_command(model: Recording, tmp_path: Path) -> None:
    from profilers.runs.folder import RunFolder
    from profilers.runs.spec import Spec

    root = tmp_path / "runs"
    run = RunFolder.create(root, Spec(name="tiny", workload="tiny", device="cpu"))
    run.write_window(1, model)
    argv = [sys.executable, "-P", "-m", "tui.cli", "--runs", str(root), "gemms", run.id, "--device", "cpu"]
    done = subprocess.run([*argv, "--top", "2", "--format", "json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 2 and all(row["alone_us"] > 0 and row["calls"] == 3 for row in rows)
    assert "5 distinct calls, " in done.stderr
    wrong = subprocess.run([*argv, "--top", "0"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1


def test_a_timing_process_that_dies_is_one_line() -> None:
    with pytest.raises(CommandError, match="timing ended after 0 of 1"):
        command.timed("cuda:99", sweep("cpu", "fp32")[:1])
