"""From a reader's tables to tables that every analysis can use: CPU rows, costs, estimates, and real runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tables_maker import kernel, operator, recording
from test_properties import check

from profilers.analysis.peaks import Peaks
from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.readers import kineto
from profilers.tables import KERNELS, OPERATORS, Device, Note, Recording

MM = {"input_shapes": "[[64,64],[64,64]]", "input_dtypes": '["float","float"]'}
CPU = (Device("cpu", "a cpu", kind="cpu"),)
PEAKS = {"cpu": Peaks("a cpu", fp32=1.0, memory_gb_s=10.0, source="given")}


def cpu_run() -> Recording:
    operators = [
        operator(0, 0, 1_000, "aten::linear", self_ns=100, step=0),
        operator(1, 50, 900, "aten::mm", 0, 1, self_ns=900, step=0, **MM),
        operator(2, 2_000, 500, "aten::view", self_ns=0),
    ]
    return recording(operators=operators, devices=CPU)


def test_a_cpu_run_gets_a_row_for_every_call_with_time_of_its_own() -> None:
    made = prepare(cpu_run(), peaks=PEAKS)
    assert not KERNELS.problems(made.kernels) and not OPERATORS.problems(made.operators)
    rows = made.kernels
    assert rows["name"].tolist() == ["aten::linear", "aten::mm"] and rows["dur_ns"].tolist() == [100, 900]
    assert set(rows["device"]) == {"cpu"} and rows["op_id"].tolist() == [0, 1] and rows["stream"].tolist() == [1, 1]
    assert rows["class"].tolist() == ["gemm", "gemm"] and rows["threads"].tolist()[1] == 64 * 64
    assert rows["flops"].tolist()[1] == 2 * 64**3
    # 524,288 operations in 900 ns on 1 TFLOP/s; 49,152 bytes on 10 GB/s are more than there is.
    assert rows["sm_pct"].iloc[1] == pytest.approx(100 * 2 * 64**3 / 900e-9 / 1e12)
    assert rows["dram_pct"].iloc[1] == 100
    assert rows["source"].iloc[1] == "estimate"
    assert {note.code for note in made.notes} >= {"utilization_estimated"}


def test_busy_and_wall_of_a_cpu_run_are_those_of_its_operators() -> None:
    made = prepare(cpu_run(), peaks=PEAKS)
    row = TABLES["summary"].compute(made).iloc[0]
    # The call of no time of its own is no kernel, and covers nothing.
    assert row["busy_us"] == pytest.approx(1.0) and row["kernel_time_us"] == pytest.approx(1.0)
    assert row["unlaunched_kernels"] == 0


def test_preparing_twice_changes_nothing() -> None:
    for made in (cpu_run(), recording([kernel(0, 100, "k", op_id=0)], [operator(0, 0, 10, "aten::mm", **MM)])):
        once = prepare(made, peaks=PEAKS)
        twice = prepare(once, peaks=PEAKS)
        pd.testing.assert_frame_equal(once.kernels, twice.kernels, check_categorical=False)
        pd.testing.assert_frame_equal(once.operators, twice.operators, check_categorical=False)
        assert once.notes == twice.notes


def test_no_peak_no_estimate() -> None:
    made = prepare(recording([kernel(0, 100, op_id=0)], [operator(0, 0, 10, "aten::mm", **MM)], devices=()))
    assert np.isnan(made.kernels["sm_pct"]).all() and set(made.kernels["source"]) == {"none"}
    assert "utilization_unknown" in {note.code for note in made.notes}


def test_bytes_that_no_cache_delivers_are_taken_back_and_counted() -> None:
    """A write into a cache of keys has the whole cache among its inputs, and touches a few rows of it."""
    peaks = {"cuda:0": Peaks("a gpu", fp32=1.0, memory_gb_s=1_000.0, source="given")}
    cache = {"input_shapes": "[[64,128],[100000,64,128]]", "input_dtypes": '["float","float"]'}
    operators = [operator(0, 0, 10, "vllm::reshape_and_cache", **cache), operator(1, 20, 10, "aten::mm", **MM)]
    rows = [kernel(100, 5_000, "cache", op_id=0), kernel(6_000, 5_000, "sgemm", op_id=1)]
    made = prepare(recording(rows, operators), peaks=peaks)
    held = made.kernels.set_index("name")
    assert np.isnan(held.loc["cache", ["bytes", "sm_pct", "dram_pct"]].astype(float)).all()
    assert held.loc["cache", "source"] == "none" and held.loc["sgemm", "source"] == "estimate"
    assert held.loc["sgemm", "bytes"] == 3 * 64 * 64 * 4
    assert {note.code: note.count for note in made.notes}["bytes_unknown"] == 1
    # With memory fast enough it could be.
    fast = {"cuda:0": Peaks("a gpu", fp32=1.0, memory_gb_s=1e6, source="given")}
    assert prepare(recording(rows, operators), peaks=fast).kernels["bytes"].notna().all()


def test_a_kernel_of_no_length_has_no_rate() -> None:
    peaks = {"cuda:0": Peaks("a gpu", fp32=1.0, memory_gb_s=1_000.0, source="given")}
    made = prepare(recording([kernel(0, 0, op_id=0)], [operator(0, 0, 10, "aten::mm", **MM)]), peaks=peaks)
    assert np.isnan(made.kernels["sm_pct"]).all() and np.isnan(made.kernels["dram_pct"]).all()
    assert "bytes_unknown" not in {note.code for note in made.notes}


def test_launches_without_activity_are_not_taken_for_a_cpu_run() -> None:
    launch = {"name": "cudaLaunchKernel", "kind": "launch", "thread_id": 1, "start_ns": 10, "dur_ns": 3}
    made = prepare(recording(operators=[operator(0, 0, 100, "aten::mm", **MM)], runtime=[launch]))
    assert len(made.kernels) == 0 and "no_device_activity" in {note.code for note in made.notes}


def test_a_recording_of_a_gpu_that_was_cut_off_before_its_kernels_is_not_taken_for_a_cpu_run() -> None:
    cut = recording(operators=[operator(0, 0, 100, "aten::mm", **MM)], devices=(Device("cuda:0", "NVIDIA H100"),))
    cut = cut.with_notes(Note("no_device_activity", "cut off"))
    assert len(prepare(cut).kernels) == 0
    assert set(prepare(cut.replace(devices=())).kernels["device"]) == {"cpu"}, (
        "it names no GPU: the host is all there is"
    )


def test_counters_stay_and_gemm_kernels_have_the_operations_to_themselves() -> None:
    rows = [
        kernel(0, 300, "ampere_sgemm_128x64_nn", op_id=1),
        kernel(400, 100, "ampere_sgemm_128x64_nn", op_id=1),
        kernel(500, 100, "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >", op_id=1),
        kernel(700, 50, "void cudnn::winograd_nonfused", op_id=0, sm_pct=33.0, dram_pct=5.0, source="ncu", flops=7.0),
    ]
    operators = [operator(0, 0, 90, "aten::linear"), operator(1, 5, 50, "aten::mm", 0, 1, **MM)]
    made = prepare(recording(rows, operators)).kernels
    assert made["flops"].tolist()[:2] == [0.75 * 2 * 64**3, 0.25 * 2 * 64**3]
    assert np.isnan(made["flops"].iloc[2])
    assert made["bytes"].iloc[:3].sum() == pytest.approx(3 * 4 * 64 * 64)
    assert made["sm_pct"].iloc[3] == 33.0 and made["source"].iloc[3] == "ncu" and made["flops"].iloc[3] == 7.0


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """A tiny model trained for two recorded steps, and what the profiler itself adds up."""
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.LazyLinear(16), nn.LayerNorm(16)
    )
    x = torch.randn(4, 3, 32, 32)
    model(x)
    optimizer = torch.optim.AdamW(model.parameters())
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    seen: dict[str, float] = {}

    def ready(profiler: object) -> None:
        profiler.export_chrome_trace(str(path))  # type: ignore[attr-defined]
        for event in profiler.events():  # type: ignore[attr-defined]
            part = "annotation" if event.is_user_annotation else "operator"
            seen[part] = seen.get(part, 0.0) + event.self_cpu_time_total
        averages = profiler.key_averages()  # type: ignore[attr-defined]
        seen["averages"] = sum(e.self_cpu_time_total for e in averages if not e.is_user_annotation)

    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=plan, on_trace_ready=ready) as p:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            p.step()
    return path, seen


def test_a_real_cpu_run_adds_up_to_the_profilers_own_total(profiled: tuple[Path, dict[str, float]]) -> None:
    path, seen = profiled
    made = prepare(kineto.read(path))
    own = TABLES["operators"].compute(made)["self_us"].sum()
    assert own == pytest.approx(seen["averages"], rel=0.01)
    assert TABLES["summary"].compute(made)["kernel_time_us"].sum() == pytest.approx(seen["averages"], rel=0.01)


def test_the_wall_share_of_a_real_run_is_its_steps_wall_time(profiled: tuple[Path, dict[str, float]]) -> None:
    path, _ = profiled
    events = json.loads(path.read_text())["traceEvents"]
    steps = [
        event for event in events if event["name"].startswith("ProfilerStep") and event["cat"] == "user_annotation"
    ]
    assert len(steps) == 2
    made = prepare(kineto.read(path))
    shares = TABLES["shares"].compute(made)
    wall = shares[shares["share"] == "wall"]
    assert wall["time_us"].sum() == pytest.approx(sum(float(event["dur"]) for event in steps), rel=0.01)
    assert wall["pct"].sum() == pytest.approx(100)
    check(made)


def test_the_operator_share_of_a_real_run_is_the_time_of_its_outermost_operators(
    profiled: tuple[Path, dict[str, float]],
) -> None:
    made = prepare(kineto.read(profiled[0]))
    shares = TABLES["shares"].compute(made)
    top = made.operators[made.operators["depth"] == 0]
    found = shares[shares["share"] == "operator"]["time_us"].sum()
    assert found == pytest.approx(top["dur_ns"].sum() / 1e3)
    assert found == pytest.approx(TABLES["operators"].compute(made)["self_us"].sum(), rel=0.01)
    assert set(made.kernels["source"]) <= {"estimate", "none"}
