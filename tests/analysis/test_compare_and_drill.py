"""Recordings side by side, and from a row to what is under it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tables_maker import kernel, operator, recording, step

from profilers.analysis.compare import CompareError, compare, summary_block
from profilers.analysis.coverage import coverage_union
from profilers.analysis.drill import kernels_of_operator, occurrences, operators_of_kernel
from profilers.tables import Recording


def made(gemm: int, add: int, extra: str = "", steps: int = 0) -> Recording:
    operators = [operator(0, 0, 100, "aten::mm", group="matmul"), operator(1, 100, 100, "aten::add")]
    in_step = {"step": 0} if steps else {}
    rows = [kernel(0, gemm, "g", "matmul", op_id=0, **in_step), kernel(5_000, add, "a", op_id=1, **in_step)]
    if extra:
        rows.append(kernel(9_000, 40, extra, "memory", **in_step))
    return recording(rows, operators, [step(n, n * 10_000, 10_000) for n in range(steps)])


def test_rows_are_matched_by_name() -> None:
    frame = compare([made(100, 50, "only_a"), made(60, 70, "only_b")], ["x", "y"]).set_index("name")
    assert frame.loc["g", ["a_us", "b_us", "ratio", "delta_us"]].tolist() == pytest.approx([0.1, 0.06, 0.6, -0.04])
    assert frame.loc["only_a", "ratio"] == 0 and math.isinf(frame.loc["only_b", "ratio"])
    assert frame.loc["only_b", "group"] == "memory"
    assert frame["delta_us"].abs().is_monotonic_decreasing
    by_operator = compare([made(100, 50), made(60, 70)], ["x", "y"], by="operator").set_index("name")
    assert by_operator.loc["aten::mm", "b_us"] == pytest.approx(0.06)
    by_group = compare([made(100, 50), made(60, 70)], ["x", "y"], by="group").set_index("name")
    assert by_group.loc["elementwise", "delta_us"] == pytest.approx(0.02)


def test_times_are_per_step_only_where_all_have_steps() -> None:
    frame = compare([made(100, 50, steps=2), made(100, 50, steps=1)], ["x", "y"])
    assert frame.attrs["per"] == "step" and frame.set_index("name").loc["g", "ratio"] == pytest.approx(2)
    assert compare([made(100, 50, steps=2), made(100, 50)], ["x", "y"]).attrs["per"] == "recording"


def test_summary_of_three() -> None:
    block = summary_block([made(200, 0), made(100, 0), made(50, 0)], ["x", "y", "z"]).set_index("quantity")
    assert block.loc["kernel time a recording", ["a", "b", "c", "change"]].tolist() == pytest.approx(
        [0.2, 0.1, 0.05, 4]
    )
    assert block.loc["kernel time: geomean speed-up over a", "change"] == pytest.approx(math.sqrt(8))
    assert block.loc["gemm (of kernel time)", "a"] == pytest.approx(100)


def test_appeared_and_vanished() -> None:
    block = summary_block([made(100, 50, "old"), made(100, 50, "new")], ["x", "y"]).set_index("quantity")["change"]
    assert block["kernel names that appeared"] == block["kernel names that vanished"] == 1
    assert block["time in names that appeared"] == pytest.approx(0.04)
    assert block["gemm (of kernel time)"] == 0


def test_nothing_in_common_and_nothing_at_all() -> None:
    frame = compare([recording(), made(10, 10)], ["x", "y"])
    assert np.isinf(frame["ratio"]).all() and len(frame) == 2
    assert len(compare([recording(), recording()], ["x", "y"])) == 0
    assert len(summary_block([recording(), recording()], ["x", "y"]))


@pytest.mark.parametrize("names", [["x"], ["x", "y", "z"]])
def test_what_cannot_be_compared(names: list[str]) -> None:
    with pytest.raises(CompareError):
        compare([made(1, 1)] * min(len(names), 2), names)


def test_the_union_of_coverage_is_the_studys_count() -> None:
    one = recording(
        [kernel(0, 50, "g1", "matmul"), kernel(60, 20, "g2", "matmul"), kernel(100, 25, "a"), kernel(200, 5, "b")]
    )
    two = recording([kernel(0, 90, "c"), kernel(100, 9, "g1", "matmul"), kernel(200, 1, "d")])
    row = coverage_union([one, two]).iloc[0]
    assert row.tolist() == [90.0, 4, 2, 2]


def _drilled() -> Recording:
    more = {"input_shapes": "[[8,8],[8,8]]", "module": "Linear"}
    operators = [
        operator(0, 0, 100, "aten::linear"),
        operator(1, 10, 50, "aten::mm", 0, 1, **more),
        operator(2, 200, 50, "aten::mm", input_shapes="[[4,4],[4,4]]"),
    ]
    rows = [
        kernel(500, 30, "g", "matmul", op_id=1, step=1),
        kernel(600, 10, "g", "matmul", op_id=2, step=2),
        kernel(700, 10, "copy", "memory", op_id=0),
        kernel(100, 50, "g", "matmul", launch_ns=-1),
    ]
    return recording(rows, operators)


def test_from_a_kernel_to_its_operators() -> None:
    frame = operators_of_kernel(_drilled(), "g")
    assert list(frame.columns) == ["operator", "shapes", "module", "calls", "time_us", "pct"]
    assert frame["operator"].tolist() == ["", "aten::mm", "aten::mm"]
    assert frame["shapes"].tolist() == ["", "[[8,8],[8,8]]", "[[4,4],[4,4]]"]
    assert frame["pct"].sum() == pytest.approx(100)
    assert len(operators_of_kernel(_drilled(), "no such kernel")) == 0


def test_from_a_kernel_to_its_occurrences() -> None:
    frame = occurrences(_drilled(), "g")
    assert list(frame.columns) == ["start_us", "dur_us", "step", "device", "stream", "operator"]
    assert frame["start_us"].tolist() == [0.1, 0.5, 0.6] and frame["operator"].tolist() == ["", "aten::mm", "aten::mm"]


def test_from_an_operator_to_its_kernels() -> None:
    frame = kernels_of_operator(_drilled(), "aten::linear")
    assert list(frame.columns) == ["kernel", "group", "class", "calls", "time_us", "pct"]
    assert frame["kernel"].tolist() == ["g", "copy"] and frame["pct"].tolist() == pytest.approx([75, 25])
    assert len(kernels_of_operator(_drilled(), "aten::nothing")) == 0
    assert len(kernels_of_operator(recording(), "aten::mm")) == 0
