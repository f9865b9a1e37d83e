"""What the analyses say of recordings whose answers are known by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from tables_maker import kernel, operator, recording, step, sync

from profilers.analysis.options import Options, WhatIf
from profilers.analysis.registry import TABLES
from profilers.analysis.states import STATES, mean_run_length
from profilers.analysis.whatif import Model, WhatIfError, whatif, windowed
from profilers.tables import Recording


def table(made: Recording, name: str, options: Options | None = None) -> pd.DataFrame:
    return TABLES[name].compute(made, options)


def only(frame: pd.DataFrame, **where: object) -> pd.Series:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return frame.iloc[0]


# Two streams: 0-100 GEMM, 50-150 elementwise, 200-300 attention, 350-400 a copy, and one that is not believed.
MIXED = [
    kernel(0, 100, "gemm", "matmul"),
    kernel(50, 100, "add", "elementwise", stream=8),
    kernel(200, 100, "flash", "attention", launch_ns=-1),
    kernel(350, 50, "Memcpy HtoD", "memory", kind="memcpy"),
    kernel(10, 10**9, "broken", "matmul", flag="overflow"),
]


def test_summary_of_two_streams_a_copy_and_a_broken_event() -> None:
    row = table(recording(MIXED, steps=[step(0, 0, 500)]), "summary").iloc[0]
    assert (row["kernels"], row["distinct_kernels"], row["dropped_events"], row["steps"]) == (3, 3, 1, 1)
    assert row["unlaunched_kernels"] == 1
    assert row["kernel_time_us"] == pytest.approx(0.3)
    assert row["busy_us"] == pytest.approx(0.3) and row["span_us"] == pytest.approx(0.4)
    assert row["idle_us"] == pytest.approx(0.1)
    assert row["device_name"] == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(("as_gemm", "gemm"), [(True, 200 / 3), (False, 100 / 3)])
def test_attention_counts_as_gemm_unless_asked_otherwise(as_gemm: bool, gemm: float) -> None:
    row = table(recording(MIXED), "summary", Options(attention_as_gemm=as_gemm)).iloc[0]
    assert row["gemm_pct"] == pytest.approx(gemm) and row["attention_pct"] == pytest.approx(100 / 3)
    whole = row["gemm_pct"] + row["nongemm_pct"] + row["communication_pct"] + row["unclassified_pct"]
    assert whole + (0 if as_gemm else row["attention_pct"]) == pytest.approx(100)


def test_wall_share_divides_an_instant_among_its_kernels() -> None:
    shares = table(recording(MIXED, steps=[step(0, 0, 500)]), "shares")
    wall = shares[shares["share"] == "wall"].set_index("class")["time_us"]
    # 50 ns alone and 50 ns shared by two.
    assert wall["gemm"] == pytest.approx(0.075)
    # The same, and the copy.
    assert wall["nongemm"] == pytest.approx(0.125)
    assert wall["attention"] == pytest.approx(0.1) and wall["idle"] == pytest.approx(0.2)
    assert wall.sum() == pytest.approx(0.5)


def test_operator_share_is_host_and_device_time_below_the_step() -> None:
    operators = [
        operator(0, 0, 100, "aten::linear", group="matmul", device_ns=300),
        operator(1, 10, 50, "aten::addmm", 0, 1, group="matmul", device_ns=300),
        operator(2, 200, 100, "aten::relu", group="activation", device_ns=100),
    ]
    shares = table(recording(MIXED, operators), "shares")
    found = shares[shares["share"] == "operator"].set_index("class")
    assert found.loc["gemm", "time_us"] == pytest.approx(0.4) and found.loc["gemm", "pct"] == pytest.approx(200 / 3)
    assert found.loc["nongemm", "time_us"] == pytest.approx(0.2)


def test_a_kernel_table_row() -> None:
    made = [kernel(0, 10, "a", threads=10), kernel(20, 30, "a", threads=30), kernel(60, 60, "b", "matmul", threads=7)]
    kernels = table(recording(made), "kernels")
    assert kernels["name"].tolist() == ["b", "a"]
    row = only(kernels, name="a")
    assert (row["calls"], row["time_us"], row["mean_us"], row["min_us"], row["max_us"]) == (2, 0.04, 0.02, 0.01, 0.03)
    assert row["pct"] == pytest.approx(40) and row["cum_pct"] == pytest.approx(100) and row["threads_median"] == 20
    assert row["state"] == "L**"


def test_coverage_with_and_without_lumping() -> None:
    times = {"g1": 30, "g2": 20, "a": 25, "b": 15, "c": 10}
    made = [kernel(100 * i, t, n, "matmul" if n[0] == "g" else "memory") for i, (n, t) in enumerate(times.items())]
    coverage = table(recording(made), "coverage").set_index("pct")
    # 30 + 25 = 55; lumped: 50.
    assert coverage.loc[50.0].tolist() == [2, 1, 1, 1]
    # 30 + 25 + 20 + 15 = 90; lumped: 50 + 25 + 15 = 90.
    assert coverage.loc[90.0].tolist() == [4, 2, 2, 3]
    assert coverage.loc[99.0].tolist() == [5, 2, 3, 4]


def test_expansion_counts_by_the_outermost_operator() -> None:
    operators = [
        operator(0, 0, 100, "autograd::engine::evaluate_function: MmBackward0"),
        operator(1, 5, 90, "MmBackward0", 0, 1),
        operator(2, 10, 40, "aten::matmul", 1, 2),
        operator(3, 15, 20, "aten::mm", 2, 3),
        operator(4, 200, 50, "aten::matmul"),
    ]
    made = [
        kernel(0, 5, "k1", op_id=3),
        kernel(10, 5, "k2", op_id=3),
        kernel(20, 5, "k1", op_id=4),
        kernel(30, 5, "k3", op_id=1),
        kernel(40, 5, "k3"),
    ]
    expansion = table(recording(made, operators), "expansion").set_index("operator")
    assert expansion.loc["aten::matmul"].tolist() == [2, 3, 2]
    assert expansion.loc["MmBackward0"].tolist() == [1, 1, 1]
    assert expansion.loc["(no operator)"].tolist() == [0, 1, 1]
    assert expansion["kernels"].sum() == len(made)


@pytest.mark.parametrize(
    ("threads", "sm", "dram", "state"),
    [
        (3_999, 90, 90, "L**"),
        (3_999, math.nan, math.nan, "L**"),
        (4_000, 9.99, 10, "MLM"),
        (32_000, 10, 70, "MMM"),
        (32_001, 70, 70.01, "HMH"),
        (32_001, 70.01, 9.99, "HHL"),
        (50_000, math.nan, 80, "H?H"),
        (50_000, math.nan, math.nan, "H??"),
        (-1, 80, 20, "?HM"),
    ],
)
def test_state_edges(threads: int, sm: float, dram: float, state: str) -> None:
    made = recording([kernel(0, 10, threads=threads, sm_pct=sm, dram_pct=dram, source="ncu")])
    assert table(made, "states")["state"].tolist() == [state]
    assert state in STATES or "?" in state


def _sequence(text: str) -> Recording:
    """A: few threads, B: busy SM, C: busy DRAM; lower case is a second device; each kernel 10 ns."""
    look = {"A": (10, 0, 0), "B": (50_000, 90, 5), "C": (50_000, 5, 90)}
    rows = []
    for index, letter in enumerate(text):
        threads, sm, dram = look[letter.upper()]
        group = "matmul" if letter.upper() == "B" else "memory"
        more = {"threads": threads, "sm_pct": sm, "dram_pct": dram, "source": "ncu"}
        device = "cuda:0" if letter.isupper() else "cuda:1"
        rows.append(kernel(20 * index, 10, letter.upper(), group, device=device, **more))
    return recording(rows)


def test_runs_and_transitions_of_a_known_sequence() -> None:
    made = _sequence("AABBBCABcc")
    states = table(made, "states").set_index("state")
    assert len(STATES) == 19
    assert states.loc["HHL", ["kernels", "runs", "mean_run_length"]].tolist() == [4, 2, 2.0]
    assert states.loc["L**", ["kernels", "runs", "mean_run_length"]].tolist() == [3, 2, 1.5]
    assert states.loc["HLH", ["kernels", "runs", "mean_run_length"]].tolist() == [3, 2, 1.5]
    assert states["pct"].sum() == pytest.approx(100)
    assert states.loc["HHL", "gemm_pct"] == pytest.approx(40) and states.loc["HHL", "nongemm_pct"] == 0
    moves = {(row["from"], row["to"]): row["count"] for _, row in table(made, "transitions").iterrows()}
    assert moves == {("L**", "HHL"): 2, ("HHL", "HLH"): 1, ("HLH", "L**"): 1}
    lengths = table(made, "runlengths")
    assert only(lengths, state="HHL", length=3)["runs"] == 1 and only(lengths, state="HHL", length=1)["runs"] == 1
    assert lengths["time_us"].sum() == pytest.approx(0.1)
    assert mean_run_length(made, Options()) == pytest.approx(10 / 6)


def test_utilization_curve() -> None:
    made = [
        kernel(0, 60, sm_pct=10, dram_pct=24, source="ncu"),
        kernel(100, 30, sm_pct=80, dram_pct=5, tensor_pct=100, source="ncu"),
        kernel(200, 10, source="none"),
    ]
    curve = table(recording(made), "utilization").set_index("below_pct")
    assert curve.loc[20.0, "time_pct"] == 0 and curve.loc[25.0, "time_pct"] == pytest.approx(60)
    assert curve.loc[95.0, "time_pct"] == pytest.approx(60) and curve.loc[100.0, "time_pct"] == pytest.approx(90)
    assert set(curve["source"]) == {"ncu"}


def test_roofline_and_gemm_of_a_known_multiply() -> None:
    """4096 x 4096 x 4096 in bf16 in 200 us on an H100: 137.4 GFLOP, 100.7 MB."""
    shapes = {"input_shapes": "[[4096,4096],[4096,4096]]", "input_dtypes": '["c10::BFloat16","c10::BFloat16"]'}
    flops, moved = 2.0 * 4096**3, 3.0 * 2 * 4096**2
    operators = [operator(0, 0, 9, "aten::mm", group="matmul", flops=flops, bytes=moved, **shapes)]
    cost = {"flops": flops / 2, "bytes": moved / 2, "op_id": 0}
    made = recording(
        [kernel(0, 150_000, "g", "matmul", **cost), kernel(150_000, 50_000, "g", "matmul", **cost)], operators
    )
    row = only(table(made, "gemms"), op="aten::mm")
    assert (row["shape"], row["dtype"], row["calls"]) == ("m=4096 n=4096 k=4096", "bf16", 1)
    assert row["gflops"] == pytest.approx(flops / 1e9) and row["gbytes"] == pytest.approx(moved / 1e9)
    assert row["tflops_per_s"] == pytest.approx(flops / 200e-6 / 1e12)
    assert row["pct_of_peak"] == pytest.approx(100 * flops / 200e-6 / 989.4e12)
    assert row["intensity"] == pytest.approx(flops / moved) and row["bound"] == "compute"
    roof = only(table(made, "roofline"), name="g")
    assert roof["roof_tflops_per_s"] == pytest.approx(989.4)
    assert roof["pct_of_roof"] == pytest.approx(row["pct_of_peak"])
    assert roof["gb_per_s"] == pytest.approx(moved / 200e-6 / 1e9)


def test_roofline_under_the_ridge_is_bound_by_memory() -> None:
    made = recording([kernel(0, 1_000, "add", flops=1e6, bytes=2e6)])
    row = only(table(made, "roofline"), name="add")
    assert row["bound"] == "memory" and row["roof_tflops_per_s"] == pytest.approx(0.5 * 3.352)
    assert row["pct_of_roof"] == pytest.approx(100 * 2e6 / 1e-6 / 3352e9)
    assert row["pct_of_roof"] == pytest.approx(100 * row["tflops_per_s"] / row["roof_tflops_per_s"])


def test_whatif_identities() -> None:
    made = _sequence("AABBBCABCA")
    share = 0.4
    frame = whatif(made, Options()).set_index("case")["device_speedup"]
    assert frame["GEMM x2"] == pytest.approx(1 / (1 - share / 2))
    assert frame["others x2"] == pytest.approx(1 / (1 - (1 - share) / 2))
    assert frame["GEMM and others x2"] == pytest.approx(2)
    assert frame["GEMM x10"] == pytest.approx(1 / (1 - share * 0.9))
    assert frame["others free"] == pytest.approx(1 / share)
    # A|AB|B|BC|AB|CA: six windows of 10 ns for ten kernels.
    assert frame["window 2"] == pytest.approx(10 / 6)
    assert frame["GEMM and others x2, window 2"] == pytest.approx(2 * 10 / 6)


def test_wall_time_shrinks_only_where_the_device_is_busy() -> None:
    made = recording([kernel(0, 100, "gemm", "matmul"), kernel(200, 100, "add")], steps=[step(0, 0, 400)])
    frame = whatif(made, Options(whatif=WhatIf(groups={"elementwise": 4.0}))).set_index("case")
    assert frame.loc["GEMM x2", "wall_speedup"] == pytest.approx(400 / 350)
    assert frame.loc["others free", "wall_speedup"] == pytest.approx(400 / 300)
    assert frame.loc["chosen", "device_speedup"] == pytest.approx(200 / 125)
    assert frame.loc["chosen", "wall_speedup"] == pytest.approx(400 / 325)


def test_a_kernels_factor_comes_before_its_groups() -> None:
    made = recording([kernel(0, 100, "a"), kernel(200, 100, "b")])
    change = WhatIf(nongemm=3, groups={"elementwise": 2.0}, kernels={"b": 5.0})
    assert Model(made, Options()).price(change).device_speedup == pytest.approx(200 / (50 + 20))


def test_freeing_everything_costs_nothing() -> None:
    priced = Model(recording([kernel(0, 100)]), Options()).price(WhatIf(gemm=math.inf, nongemm=math.inf))
    assert math.isinf(priced.device_speedup) and math.isinf(priced.wall_speedup)


@pytest.mark.parametrize(
    "change",
    [WhatIf(gemm=0), WhatIf(nongemm=-1), WhatIf(window=0), WhatIf(groups={"nope": 2.0}), WhatIf(gemm=math.nan)],
)
def test_a_change_that_means_nothing_is_refused(change: WhatIf) -> None:
    with pytest.raises(WhatIfError):
        Model(recording([kernel(0, 100)]), Options()).price(change)


@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_greedy_windows_against_the_definition(window: int) -> None:
    import numpy as np

    rng = np.random.default_rng(window)
    for size in (0, 1, 2, 50, 200):
        state, time = rng.integers(0, 4, size), rng.integers(1, 100, size).astype(float)
        cost, index = 0.0, 0
        while index < size:
            held, longest = {state[index]}, time[index]
            index += 1
            while index < size and len(held) < window and state[index] not in held:
                held.add(state[index])
                longest = max(longest, time[index])
                index += 1
            cost += longest
        assert windowed(time, state, window) == pytest.approx(cost)


def test_idle_by_cause() -> None:
    made = [
        kernel(0, 100_000, launch_ns=-1),
        # Launched 50 us after the device became free, 5 us before it ran; nobody synchronised.
        kernel(155_000, 100_000, launch_ns=150_000),
        # The same, while the host sat in a synchronising call at first.
        kernel(355_000, 100_000, launch_ns=350_000),
        # Launched long before: held back.
        kernel(655_000, 100_000, launch_ns=400_000),
        kernel(800_000, 100_000, "nccl", "collective", launch_ns=500_000),
        # The host began the next step in between.
        kernel(1_000_000, 100_000, launch_ns=995_000),
        kernel(1_200_000, 100_000, launch_ns=-1),
        # The host fetched a batch for most of the time until the launch.
        kernel(1_500_000, 100_000, launch_ns=1_495_000),
    ]
    steps = [step(0, -50_000, 990_000), step(1, 950_000, 700_000)]
    fetch = sync(1_300_000, 120_000) | {"name": "enumerate(DataLoader)#_SingleProcess", "kind": "loading"}
    idle = table(recording(made, steps=steps, runtime=[sync(200_000, 80_000), fetch]), "idle").set_index("cause")
    expected = {
        "launch-bound": 55.0,
        "data loading": 200.0,
        "synchronisation": 100.0,
        "queued": 200.0,
        "communication": 45.0,
        "between steps": 100.0,
        "unknown": 100.0,
    }
    assert idle["time_us"].to_dict() == pytest.approx(expected)
    assert idle["gaps"].tolist() == [1] * 7
    assert idle["pct"].sum() == pytest.approx(100 * 800 / 1600)


def test_a_launching_call_that_lasts_is_a_late_launch() -> None:
    made = [kernel(0, 10_000, launch_ns=-1), kernel(510_000, 10_000, launch_ns=12_000, correlation=5)]
    call = {"name": "cudaLaunchKernel", "kind": "launch", "thread_id": 1, "start_ns": 12_000, "correlation": 5}
    for lasted, number, cause in ((490_000, 5, "launch-bound"), (5_000, 5, "queued"), (490_000, 6, "queued")):
        runtime = [call | {"dur_ns": lasted, "correlation": number}]
        assert table(recording(made, runtime=runtime), "idle")["cause"].tolist() == [cause]


def test_exposed_and_hidden_communication() -> None:
    made = [
        kernel(0, 100, "nccl", "collective", stream=9),
        kernel(60, 100, "gemm", "matmul"),
        kernel(200, 50, "nccl", "collective", stream=9),
        kernel(210, 10, "Memcpy", "memory", kind="memcpy"),
    ]
    row = only(table(recording(made), "communication"), name="nccl")
    assert row["time_us"] == pytest.approx(0.15) and row["exposed_us"] == pytest.approx(0.11)
    assert row["overlapped_us"] == pytest.approx(0.04) and row["exposed_pct"] == pytest.approx(100 * 110 / 150)


def test_timeline_slices() -> None:
    made = [kernel(0, 100, "gemm", "matmul"), kernel(150, 50, "add", sm_pct=20, dram_pct=80, source="ncu")]
    timeline = table(recording(made), "timeline", Options(timeline_bins=4))
    assert timeline["class"].tolist() == ["gemm", "gemm", "idle", "nongemm"]
    assert timeline["busy_pct"].tolist() == [100, 100, 0, 100] and timeline["gemm_pct"].tolist() == [100, 100, 0, 0]
    assert timeline["state"].tolist() == ["H??", "H??", "", "HMH"]


def test_notes_say_what_is_not_in_the_sums() -> None:
    notes = table(recording(MIXED, steps=[step(0, 0, 250)]), "notes").set_index("code")["count"]
    assert notes["copies"] == 1 and notes["unlaunched_kernels"] == 1


def test_operators_leave_children_out_and_add_up() -> None:
    operators = [
        operator(0, 0, 100, "aten::linear", self_ns=20),
        operator(1, 10, 80, "aten::addmm", 0, 1, self_ns=80),
        operator(2, 200, 50, "aten::addmm"),
    ]
    made = recording([kernel(0, 300, op_id=1), kernel(400, 50, op_id=2), kernel(500, 100)], operators)
    found = table(made, "operators").set_index("name")
    assert found.loc["aten::addmm", ["calls", "self_us", "device_us", "total_us", "kernels_per_call"]].tolist() == [
        2,
        0.13,
        0.35,
        0.13,
        1.0,
    ]
    assert found.loc["aten::linear", "self_us"] == 0.02 and found.loc["aten::linear", "device_us"] == 0
    assert found["pct"].sum() == pytest.approx(100)
