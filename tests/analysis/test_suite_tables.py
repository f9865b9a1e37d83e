"""A suite's tables against sums done by hand and against the tables of each recording alone."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from profilers.analysis.options import Options
from profilers.analysis.suite import Member, geometric_mean, suite, top_operators, union
from profilers.analysis.suite_tables import SUITE, TABLES, TOP, UNION
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Origin, Recording


def recording(*kernels: tuple[str, str, str, int], steps: int = 1) -> Recording:
    """Per step each (operator, kernel, class, us), one after the other, in 1,000 us of wall time."""
    ops, rows, walls = [], [], []
    for step in range(steps):
        begin = step * 1_000_000
        at = begin
        walls.append({"step": step, "start_ns": begin, "dur_ns": 1_000_000, "thread_id": 1})
        for operator, kernel, cls, us in kernels:
            number = len(ops)
            ops.append(
                {
                    "op_id": number,
                    "name": operator,
                    "start_ns": at,
                    "dur_ns": 10,
                    "self_ns": 10,
                    "thread_id": 1,
                    "step": step,
                }
            )
            rows.append(
                {
                    "kind": "kernel", "name": kernel, "device": "cuda:0", "start_ns": at, "dur_ns": us * 1000, "op_id": number,
                    "launch_ns": at, "step": step, "class": cls, "threads": 100_000, "sm_pct": 50.0, "dram_pct": 5.0, "source": "ncu",
                }
            )  # fmt: skip
            at += us * 1000
    return Recording(
        OPERATORS.conform(pd.DataFrame(ops)),
        KERNELS.conform(pd.DataFrame(rows)),
        STEPS.conform(pd.DataFrame(walls)),
        RUNTIME.empty(),
        devices=(Device("cuda:0", "Test"),),
        origin=Origin("kineto"),
    )


A = recording(
    ("aten::mm", "gemm_a", "gemm", 500), ("aten::add", "add_k", "nongemm", 200), ("aten::sort", "sort_1", "nongemm", 50),
    ("aten::sort", "sort_2", "nongemm", 50), steps=2,
)  # fmt: skip
B = recording(("aten::mm", "gemm_b", "gemm", 100), ("aten::add", "add_k", "nongemm", 300))
MEMBERS = [Member("a", A, 2.0), Member("b", B, 8.0)]


def test_one_row_a_workload_then_the_means() -> None:
    frame = suite(MEMBERS).set_index("workload")
    assert list(frame.index) == ["a", "b", "geomean", "mean"]
    a, b = frame.loc["a"], frame.loc["b"]
    assert (a["operators"], a["operator_calls"], a["kernels"], a["kernel_calls"]) == (3, 4, 4, 4)
    assert (b["operators"], b["kernels"]) == (2, 2)
    assert a["gemm_pct"] == pytest.approx(62.5)
    assert b["gemm_pct"] == pytest.approx(25.0)
    assert a["idle_pct"] == pytest.approx(20.0)
    assert b["idle_pct"] == pytest.approx(60.0)
    assert a["gemm_2x"] == pytest.approx(800 / 550)
    assert b["gemm_10x"] == pytest.approx(400 / 310)
    assert a["top_state"] == "HML"
    assert a["top_state_pct"] == pytest.approx(100)
    assert a["run_length"] == 8
    assert b["run_length"] == 2


def test_means_are_of_what_they_can_be_of() -> None:
    frame = suite(MEMBERS).set_index("workload")
    geomean, mean = frame.loc["geomean"], frame.loc["mean"]
    assert geomean["step_ms"] == pytest.approx(4.0)
    assert geomean["run_length"] == pytest.approx(4.0)
    assert geomean["kernels"] == pytest.approx(math.sqrt(8))
    assert geomean["gemm_2x"] == pytest.approx(math.sqrt(800 / 550 * 400 / 350))
    assert math.isnan(geomean["gemm_pct"])
    assert mean["gemm_pct"] == pytest.approx((62.5 + 25) / 2)
    assert math.isnan(mean["step_ms"])
    assert geometric_mean(np.array([4.0, np.nan, 0.0, 9.0])) == pytest.approx(6.0)
    assert math.isnan(geometric_mean(np.array([0.0])))


def test_shares_of_every_row_sum_to_a_hundred() -> None:
    for attention_as_gemm in (True, False):
        frame = suite(MEMBERS, Options(attention_as_gemm=attention_as_gemm)).iloc[:2]
        total = frame[["gemm_pct", "nongemm_pct", "communication_pct", "unclassified_pct"]].sum(axis=1)
        assert total.tolist() == pytest.approx([100, 100])


def test_the_three_operators_that_take_most() -> None:
    frame = top_operators(MEMBERS)
    a, b = frame.iloc[0], frame.iloc[1]
    assert (a["first"], a["second"], a["third"]) == ("aten::mm", "aten::add", "aten::sort")
    assert (a["first_pct"], a["second_pct"], a["third_pct"]) == pytest.approx((62.5, 25.0, 12.5))
    assert a["other_pct"] == pytest.approx(0.0)
    assert (b["first"], b["third"], b["third_pct"]) == ("aten::add", "", 0.0)


def test_names_that_cover_every_workload() -> None:
    frame = union(MEMBERS).set_index("pct")
    # a: gemm lumped 1,000 us, add 400, sorts 100 and 100 of 1,600; b: add 300, gemm 100 of 400.
    assert frame.loc[50.0, ["names", "gemm_names", "other_names"]].tolist() == [3, 2, 1]
    assert frame.loc[90.0, ["names", "gemm_names", "other_names"]].tolist() == [4, 2, 2]
    assert frame.loc[99.0, "other_names"] == 3
    assert set(frame["all_kernels"]) == {5}
    assert set(frame["all_operators"]) == {3}


def test_columns_are_those_of_the_tables() -> None:
    assert list(suite(MEMBERS).columns) == [column.name for column in SUITE.columns]
    assert list(top_operators(MEMBERS).columns) == [column.name for column in TOP.columns]
    assert list(union(MEMBERS).columns) == [column.name for column in UNION.columns]
    assert set(TABLES) == {"suite", "suite-operators", "suite-union"}


def test_one_workload_has_no_mean_and_an_empty_one_no_figure() -> None:
    assert suite([MEMBERS[0]])["workload"].tolist() == ["a"]
    empty = Recording(OPERATORS.empty(), KERNELS.empty(), STEPS.empty(), RUNTIME.empty())
    row = suite([Member("nothing", empty)]).iloc[0]
    assert (row["kernels"], row["gemm_pct"], row["idle_pct"]) == (0, 0.0, 0.0)
    assert top_operators([Member("nothing", empty)]).iloc[0]["first"] == ""
