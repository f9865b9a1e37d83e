"""What must hold for any recording: shares of 100, nothing counted twice, empty in and empty out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tables_maker import kernel, random_recording, recording, step

from profilers.analysis.options import Options
from profilers.analysis.registry import TABLES
from profilers.analysis.view import view
from profilers.tables import Recording

ANSWERED = [name for name in TABLES if name != "samples"]


def check(made: Recording, options: Options | None = None) -> None:
    """Every identity that ties the tables of one recording together."""
    tables = {name: TABLES[name].compute(made, options) for name in ANSWERED}
    summary = tables["summary"].set_index("device")
    time = summary["kernel_time_us"].sum()
    for name, column in (
        ("groups", "time_us"),
        ("kernels", "time_us"),
        ("states", "time_us"),
        ("runlengths", "time_us"),
    ):
        assert tables[name][column].sum() == pytest.approx(time)
    for name in ("groups", "kernels", "states"):
        assert tables[name]["pct"].sum() == pytest.approx(100 if time else 0)
    assert (tables["kernels"]["cum_pct"].diff().dropna() >= -1e-9).all()
    states = tables["states"]
    assert (states["gemm_pct"] + states["nongemm_pct"]).to_numpy() == pytest.approx(states["pct"].to_numpy())
    assert states["kernels"].sum() == tables["expansion"]["kernels"].sum() == summary["kernels"].sum()
    runs = tables["runlengths"]
    assert (runs["length"] * runs["runs"]).sum() == summary["kernels"].sum()
    assert runs["runs"].sum() == states["runs"].sum()
    assert tables["transitions"]["count"].sum() == max(states["runs"].sum() - (summary["kernels"] > 0).sum(), 0)
    assert (summary["busy_us"] <= summary["span_us"] + 1e-6).all()
    assert (summary["busy_us"] + summary["idle_us"]).to_numpy() == pytest.approx(summary["span_us"].to_numpy())
    assert tables["idle"]["time_us"].sum() == pytest.approx(summary["idle_us"].sum(), abs=1e-3)
    for table in ("shares", "shares_by_group"):
        for _, part in tables[table].groupby(["share", "device"]):
            assert part["pct"].sum() == pytest.approx(100)
            assert (part["time_us"] >= -1e-9).all()
    v = view(made)
    wall = tables["shares"][tables["shares"]["share"] == "wall"]
    for index, device in enumerate(v.devices):
        begin, end = v.wall(index)
        mine = wall[wall["device"] == device]
        assert mine["time_us"].sum() == pytest.approx((end - begin).sum() / 1e3)
        line = tables["timeline"][tables["timeline"]["device"] == device]
        assert (line["busy_pct"] / 100 * line["dur_us"]).sum() == pytest.approx(summary.loc[device, "busy_us"])
        assert line["dur_us"].sum() == pytest.approx(summary.loc[device, "span_us"])
        assert (line["gemm_pct"] <= line["busy_pct"] + 1e-6).all()
    talk = tables["communication"]
    assert (talk["exposed_us"] + talk["overlapped_us"]).to_numpy() == pytest.approx(talk["time_us"].to_numpy())
    coverage = tables["coverage"]
    assert (coverage["gemm_names"] + coverage["other_names"] == coverage["names"]).all()
    assert (coverage["lumped_names"] <= coverage["names"]).all()
    for column in ("names", "lumped_names"):
        assert (coverage[column].diff().dropna() >= 0).all()
    what = tables["whatif"].set_index("case")
    if len(what) and time:
        assert what.loc["GEMM and others x2", "device_speedup"] == pytest.approx(2)
        assert (what["device_speedup"] >= 1 - 1e-9).all() and (what["wall_speedup"] >= 1 - 1e-9).all()
        assert (what["wall_speedup"] <= what["device_speedup"] + 1e-9).all() or (summary["span_us"].sum() < time)
    heavy = v.is_kernel & ((v.cls == 0) | (v.cls == 1))
    assert tables["gemms"]["time_us"].sum() == pytest.approx(v.dur[heavy].sum() / 1e3)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("as_gemm", [True, False])
def test_identities_hold_for_random_recordings(seed: int, as_gemm: bool) -> None:
    check(random_recording(seed), Options(attention_as_gemm=as_gemm))


def test_without_steps_the_wall_is_the_span() -> None:
    made = random_recording(3, devices=1)
    made = made.replace(steps=made.steps.iloc[:0])
    check(made)
    shares = TABLES["shares"].compute(made)
    wall = shares[shares["share"] == "wall"]
    assert wall["time_us"].sum() == pytest.approx(TABLES["summary"].compute(made)["span_us"].iloc[0])


@pytest.mark.parametrize("name", ANSWERED)
def test_an_empty_recording_gives_an_empty_table_with_all_columns(name: str) -> None:
    frame = TABLES[name].compute(recording())
    assert isinstance(frame, pd.DataFrame) and len(frame) == 0
    assert list(frame.columns) == [column.name for column in TABLES[name].columns]


@pytest.mark.parametrize("name", ANSWERED)
@pytest.mark.parametrize(
    "made",
    [
        recording([kernel(5, 0)]),
        recording([kernel(5, 10, flag="overrun")], steps=[step(0, 0, 100)]),
        recording([kernel(5, 10, kind="memset")]),
        recording(steps=[step(0, 0, 100)]),
    ],
    ids=["no length", "only a broken one", "only a set", "only a step"],
)
def test_recordings_with_next_to_nothing(name: str, made: Recording) -> None:
    frame = TABLES[name].compute(made)
    assert list(frame.columns) == [column.name for column in TABLES[name].columns]


def test_analyses_leave_the_recording_as_it_is() -> None:
    made = random_recording(5)
    before = [made.kernels.copy(), made.operators.copy(), made.steps.copy()]
    for name in ANSWERED:
        TABLES[name].compute(made)
    for old, new in zip(before, (made.kernels, made.operators, made.steps), strict=True):
        pd.testing.assert_frame_equal(old, new)


def test_devices_sort_by_number() -> None:
    made = recording([kernel(i, 5, device=f"cuda:{n}") for i, n in enumerate([10, 2, 0])])
    assert TABLES["summary"].compute(made)["device"].tolist() == ["cuda:0", "cuda:2", "cuda:10"]


def test_ranks_read_together_are_devices_of_their_own() -> None:
    rows = [kernel(0, 10, device="rank0/cuda:0"), kernel(0, 30, device="rank1/cuda:0")]
    summary = TABLES["summary"].compute(recording(rows)).set_index("device")
    assert summary["kernel_time_us"].to_dict() == {"rank0/cuda:0": 0.01, "rank1/cuda:0": 0.03}


def test_large_times_stay_exact() -> None:
    """A trace may start days after its origin: nothing is lost to floats."""
    origin = 10**17
    made = recording([kernel(origin, 100, "gemm", "matmul"), kernel(origin + 50, 100, "add")])
    shares = TABLES["shares"].compute(made)
    wall = shares[shares["share"] == "wall"].set_index("class")["time_us"]
    assert wall["gemm"] == pytest.approx(0.075) and wall["nongemm"] == pytest.approx(0.075)
    assert np.isclose(TABLES["timeline"].compute(made)["busy_pct"], 100).all()
