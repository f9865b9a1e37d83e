"""The roofs that kernels are measured against, and the rates of whole groups: sums made by hand, and the same as per kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tables_maker import US, kernel, operator, recording

from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks
from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.analysis.roofline import roofline, roofline_groups
from profilers.analysis.roofs import MEMORY, NO_PEAK, roofs
from profilers.readers import read
from profilers.tables import Device, Recording

PEAKS = Peaks("made up", fp32=10.0, bf16=100.0, memory_gb_s=1_000.0, source="given", cite="by hand")


def small() -> Recording:
    """A bf16 matrix multiply with 2 GFLOP and 1 MB in 100 us, and copies, of one of which the bytes are not known."""
    shapes = {"input_shapes": "[[8,8],[8,8]]", "input_dtypes": '["c10::BFloat16","c10::BFloat16"]'}
    rows = [
        kernel(0, 100 * US, "mm", "matmul", op_id=0, flops=2e9, bytes=1e6),
        kernel(100 * US, 10 * US, "copy", "memory", op_id=1, bytes=5e6),
        kernel(110 * US, 30 * US, "copy2", "memory", op_id=1),
    ]
    operators = [operator(0, 0, 50 * US, "aten::mm", group="matmul", **shapes), operator(1, 50 * US, 50 * US)]
    return recording(rows, operators, devices=[Device("cuda:0", "Mystery 9000")])


def test_roofs_are_the_peaks_of_the_types_that_occur() -> None:
    frame = roofs(small(), Options(peaks={"cuda:0": PEAKS}))
    assert frame["roof"].tolist() == [MEMORY, "fp32", "bf16"]
    assert frame["gb_per_s"].iloc[0] == 1_000.0 and frame["tflops_per_s"].iloc[1:].tolist() == [10.0, 100.0]
    assert np.isnan(frame["tflops_per_s"].iloc[0]) and np.isnan(frame["gb_per_s"].iloc[1:]).all()
    assert set(frame["source"]) == {"given"} and set(frame["cite"]) == {"by hand"}


def test_a_device_that_nothing_is_known_of_says_so() -> None:
    frame = roofs(small(), Options())
    assert frame["devices"].tolist() == ["cuda:0"] and frame["source"].tolist() == ["none"]
    assert frame["cite"].tolist() == [NO_PEAK] and frame["roof"].tolist() == [""]


def test_a_missing_figure_is_a_dash_and_has_no_source() -> None:
    bare = Peaks("bare", fp32=10.0, source="table", cite="a sheet", unchecked=("fp32",))
    frame = roofs(small(), Options(peaks={"cuda:0": bare})).set_index("roof")
    assert np.isnan(frame.loc["bf16", "tflops_per_s"]) and frame.loc["bf16", "source"] == ""
    assert np.isnan(frame.loc[MEMORY, "gb_per_s"]) and frame.loc[MEMORY, "source"] == ""
    assert frame.loc["fp32", "source"] == "unchecked"


def test_groups_add_up_what_is_known() -> None:
    frame = roofline_groups(small(), Options(peaks={"cuda:0": PEAKS})).set_index("group")
    matmul, memory = frame.loc["matmul"], frame.loc["memory"]
    assert matmul["intensity"] == pytest.approx(2_000) and matmul["tflops_per_s"] == pytest.approx(20)
    assert matmul["pct_of_roof"] == pytest.approx(20) and matmul["known_pct"] == 100
    # 5 MB in 10 us: the rate is of the kernel whose bytes are known, which is a quarter of the group's time.
    assert memory["gb_per_s"] == pytest.approx(500) and memory["known_pct"] == pytest.approx(25)
    assert memory["calls"] == 2 and memory["time_us"] == 40 and np.isnan(memory["intensity"])


def test_in_a_real_recording_groups_are_the_sum_of_their_kernels(traces: Path) -> None:
    made = prepare(read(traces / "kineto" / "h100_owlv2.json.gz"))
    groups, names = roofline_groups(made, Options()), roofline(made, Options())
    totals = TABLES["groups"].compute(made).set_index("group")
    assert groups.set_index("group")["time_us"].to_dict() == pytest.approx(totals["time_us"].to_dict())
    assert groups.set_index("group")["calls"].to_dict() == totals["calls"].to_dict()
    matmul = names[names["group"] == "matmul"]
    assert matmul["tflops_per_s"].notna().all()
    work = (matmul["tflops_per_s"] * matmul["time_us"]).sum() / matmul["time_us"].sum()
    assert groups.set_index("group").loc["matmul", "tflops_per_s"] == pytest.approx(work)
    assert set(groups["known_pct"].between(0, 100 + 1e-9)) == {True}
    found = roofs(made, Options())
    assert found["model"].unique().tolist() == ["H100 SXM"] and found["roof"].tolist() == [MEMORY, "fp32", "bf16"]
