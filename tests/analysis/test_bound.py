"""The least time of a step, against sums done by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from profilers.analysis import bound as module
from profilers.analysis.bound import MEMORY, bound
from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks, known_devices
from profilers.analysis.registry import TABLES
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Origin, Recording

FAST = Peaks("fast", fp32=1.0, bf16=10.0, memory_gb_s=100.0, memory_gb=24.0)
OLD = Peaks("old", fp32=1.0, memory_gb_s=50.0)


def recording(dtype: str = "c10::BFloat16", steps: int = 2, memory: str = "") -> Recording:
    """Per step a multiply of 2e9 operations and 1e6 bytes, and an addition of 4e6 bytes."""
    ops, kernels, walls = [], [], []
    for step in range(steps):
        begin = step * 1_000_000
        walls.append({"step": step, "start_ns": begin, "dur_ns": 900_000, "thread_id": 1})
        for place, (name, cls, flops, moved) in enumerate(
            (("aten::mm", "gemm", 2e9, 1e6), ("aten::add", "nongemm", math.nan, 4e6))
        ):
            number = 2 * step + place
            at = begin + 400_000 * place
            ops.append(
                {
                    "op_id": number, "name": name, "start_ns": at, "dur_ns": 100, "self_ns": 100, "thread_id": 1, "step": step,
                    "input_shapes": "[[1000,1000],[1000,1000]]", "input_dtypes": f'["{dtype}","{dtype}"]',
                }
            )  # fmt: skip
            kernels.append(
                {
                    "kind": "kernel", "name": name, "device": "cuda:0", "start_ns": at, "dur_ns": 300_000, "op_id": number,
                    "launch_ns": at, "step": step, "class": cls, "flops": flops, "bytes": moved,
                }
            )  # fmt: skip
    return Recording(
        OPERATORS.conform(pd.DataFrame(ops)),
        KERNELS.conform(pd.DataFrame(kernels)),
        STEPS.conform(pd.DataFrame(walls)),
        RUNTIME.empty(),
        devices=(Device("cuda:0", "Test"),),
        origin=Origin("run", extra={MEMORY: memory} if memory else {}),
    )


@pytest.fixture(autouse=True)
def two_devices(monkeypatch):
    monkeypatch.setattr(module, "known_devices", lambda: (OLD, FAST))


def test_the_bound_is_the_sum_over_kernels_of_the_slower_of_two():
    table = bound(recording(), Options())
    assert table["device"].tolist() == ["fast", "old"], "the fastest first, those without a bound last"
    fast = table.iloc[0]
    # 2e9 at 10 TFLOP/s: 0.2 ms, its bytes 0.01 ms; the addition: 4e6 at 100 GB/s: 0.04 ms.
    assert fast["bound_ms"] == pytest.approx(0.24)
    assert fast["compute_ms"] == pytest.approx(0.2)
    assert fast["memory_ms"] == pytest.approx(0.05)
    assert (fast["dtype"], fast["limit"]) == ("bf16", "compute")
    assert bound(recording(steps=5), Options()).iloc[0]["bound_ms"] == pytest.approx(0.24), "of one step"


def test_a_type_that_a_device_lacks_has_no_bound():
    old = bound(recording(), Options()).set_index("device").loc["old"]
    assert math.isnan(old["bound_ms"])
    assert old["limit"] == "no bf16"
    assert old["memory_ms"] == pytest.approx(0.1)
    fp32 = bound(recording("float"), Options()).set_index("device").loc["old"]
    assert fp32["bound_ms"] == pytest.approx(2.0 + 0.08)


def test_what_fits_is_known_only_where_memory_is():
    assert bound(recording(), Options())["fits"].tolist() == ["", ""]
    assert bound(recording(memory=str(20 * 10**9)), Options())["fits"].tolist() == ["yes", ""]
    # 5 % are for what an allocator cannot use.
    assert bound(recording(memory=str(23 * 10**9)), Options())["fits"].tolist() == ["no", ""]


def test_nothing_recorded_has_no_bound():
    empty = Recording(OPERATORS.empty(), KERNELS.empty(), STEPS.empty(), RUNTIME.empty())
    assert TABLES["bound"].compute(empty).empty


def test_without_shapes_there_is_no_bound():
    made = recording()
    blind = made.replace(kernels=made.kernels.assign(flops=math.nan, bytes=math.nan))
    assert bound(blind, Options()).empty
    copies_known = made.replace(kernels=made.kernels.assign(flops=math.nan))
    assert len(bound(copies_known, Options())) == 2


def test_the_table_of_devices_is_whole():
    devices = known_devices()
    assert len({peaks.name for peaks in devices}) == len(devices) > 30
    assert all(peaks.memory_gb_s > 0 and peaks.fp32 > 0 for peaks in devices)
