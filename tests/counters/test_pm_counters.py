"""Samples onto kernels: the truth that the samples were made from comes back, and what is not known stays unknown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pm_maker import Ran, after, sampled, sampled_again, samples_file, trace_file

from profilers.analysis import pm_counters
from profilers.analysis.pm_align import CannotAlignError
from profilers.readers import kineto, ncu, pm_samples
from profilers.tables import KERNELS

INTERVAL = 10_000
GEMM, ADD, TINY = ("gemm", 120_000, 55.0, 20.0, 80.0), ("add", 70_000, 9.0, 88.0, 0.0), ("tiny", 4_000, 30.0, 5.0, 0.0)


def measured(tmp_path: Path, ran: list[Ran], shift: int = 0, interval: int = INTERVAL, made=None, **changes):
    """Trace and samples written, read again, and put together."""
    made = sampled(ran, interval) if made is None else made
    trace = kineto.read(trace_file(tmp_path / "trace.json", ran))
    return pm_counters.measured(trace, pm_samples.read(samples_file(tmp_path / "s.json", made, shift, **changes)))


def test_the_truth_comes_back(tmp_path):
    ran = after(GEMM, ADD, GEMM, TINY, ADD, gap=7_000)
    found, coverage = measured(tmp_path, ran, shift=23_456)
    assert KERNELS.problems(found.kernels) == []
    assert abs(coverage.alignment.shift_ns + 23_456) <= INTERVAL // 8 and coverage.clock == pm_samples.UNIX
    by_name = found.kernels.groupby("name", observed=True)
    for name, _, issue, dram, tensor in (GEMM, ADD):
        rows = by_name.get_group(name)
        # SM % is the larger of issue slots and tensor pipes.
        assert rows["sm_pct"].to_numpy() == pytest.approx(max(issue, tensor), abs=0.01)
        assert rows["dram_pct"].to_numpy() == pytest.approx(dram, abs=0.01)
        assert rows["tensor_pct"].to_numpy() == pytest.approx(tensor, abs=0.01)
        assert set(rows["source"]) == {"cupti"}
    tiny = by_name.get_group("tiny")
    assert tiny[["sm_pct", "dram_pct", "tensor_pct"]].isna().all(axis=None) and set(tiny["source"]) == {"none"}
    assert (coverage.kernels, coverage.covered, coverage.pooled) == (5, 4, 0)
    assert coverage.time_pct == pytest.approx(100 * 380 / 384)
    how, reached = coverage.lines()
    assert "4 of 5 kernels (80.0 %), 99.0 % of kernel time" in reached and "\n" not in how + reached
    assert found.kernels["flops"].isna().all() and found.kernels["bytes"].isna().all()


def test_a_clock_of_its_own_is_placed_by_matching(tmp_path):
    random = np.random.default_rng(5)
    ran: list[Ran] = []
    for number in range(40):
        dur, at = int(random.integers(30_000, 90_000)), ran[-1].end + int(random.integers(1, 9)) * 4_000 if ran else 0
        ran.append(Ran(f"k{number}", at, dur, float(number), float(100 - number), 0.0))
    found, coverage = measured(tmp_path, ran, shift=-987_654_321_000_000, anchors=[])
    assert coverage.alignment.estimated and coverage.clock == pm_samples.UNKNOWN
    assert "a clock of their own (placed where they match" in coverage.lines()[0]
    rows = found.kernels.dropna(subset="dram_pct")
    assert len(rows) == coverage.covered > 30
    truth = {f"k{number}": float(100 - number) for number in range(40)}
    assert rows["dram_pct"].to_numpy() == pytest.approx([truth[str(name)] for name in rows["name"]], abs=0.5)


def test_launches_alike_lend_each_other_samples(tmp_path):
    # 25 us hold one or two samples each: together there are enough. Another grid is another launch.
    short = ("norm", 25_000, 35.0, 60.0, 0.0)
    ran = after(GEMM, *[short] * 4, GEMM, gap=9_000)
    ran.append(Ran("norm", ran[-1].end + 9_000, 25_000, 70.0, 10.0, grid=7))
    found, coverage = measured(tmp_path, ran)
    norms = found.kernels[found.kernels["name"] == "norm"]
    alike = norms[norms["grid"] == "100x1x1"]
    assert alike["dram_pct"].to_numpy() == pytest.approx([60.0] * 4, abs=0.01)
    assert norms[norms["grid"] == "7x1x1"]["dram_pct"].isna().all()
    assert (coverage.covered, coverage.pooled) == (6, 4)
    assert [note.count for note in found.notes if note.code == "pm_pooled"] == [4]


def test_samples_that_saw_two_are_nobodys(tmp_path):
    # The second stream's kernel runs over the whole of the middle one; a copy touches the last.
    ran = after(GEMM, ADD, GEMM, gap=11_000)
    beside = Ran("beside", ran[1].start - 3_000, ran[1].dur + 6_000, 5.0, 5.0, 0.0, stream=8)
    copy = Ran("Memcpy HtoD (Pinned -> Device)", ran[2].start + 60_000, 90_000, 0.0, 40.0, 0.0, stream=9, kind="copy")
    every = [*ran, beside, copy]
    found, coverage = measured(tmp_path, every)
    kernels = found.kernels.sort_values("start_ns").reset_index(drop=True)
    assert len(kernels) == 4, "copies are no kernels"
    assert kernels.loc[kernels["name"].isin(["add", "beside"]), "sm_pct"].isna().all()
    # What lies under the copy says 60 % DRAM; without it 20 is the mean.
    gemms = kernels[kernels["name"] == "gemm"]
    assert gemms["dram_pct"].to_numpy() == pytest.approx([20.0, 20.0], abs=0.01)
    made = sampled(every, INTERVAL)
    shift = coverage.alignment.shift_ns
    touching = sum(
        sum(one.start < end + shift and one.end > start + shift for one in every) > 1
        for start, end in zip(made["start"], made["end"], strict=True)
    )
    assert coverage.shared == touching > 10
    assert f"{coverage.shared:,} of {coverage.working:,} samples with work" in coverage.lines()[1]


def test_a_sample_on_the_edge_says_nothing(tmp_path):
    """Back to back, high after low: no sample mixes the two into either's value, wherever the samples fall."""
    ran = after(("low", 200_000, 10.0, 10.0, 0.0), ("high", 200_000, 90.0, 90.0, 0.0), gap=0)
    for phase in range(0, INTERVAL, 1_700):
        found, _ = measured(tmp_path, ran, made=sampled(ran, INTERVAL, phase=phase))
        assert found.kernels["sm_pct"].to_numpy() == pytest.approx([10.0, 90.0], abs=0.01)


def test_durations_that_are_not_believed_lend_nothing(tmp_path):
    ran = after(GEMM, ADD, GEMM)
    trace = kineto.read(trace_file(tmp_path / "t.json", ran))
    flag = pd.Categorical(["overrun", "", ""])
    trace = trace.replace(kernels=KERNELS.conform(trace.kernels.assign(flag=flag)))
    samples = pm_samples.read(samples_file(tmp_path / "s.json", sampled(ran, INTERVAL), 0))
    found, coverage = pm_counters.measured(trace, samples)
    assert found.kernels["sm_pct"].isna().tolist() == [True, False, False]
    assert (coverage.covered, coverage.pooled) == (2, 0)


@pytest.mark.parametrize(
    ("file", "time_pct"),
    [("h100_qwen_decode.json.gz", 95), ("b200_vllm_tp8_rank0.json.gz", 67), ("h100_bert_small.json.gz", 13)],
)
def test_real_timelines(traces, file, time_pct):
    """A recorded timeline, sampled every 10 us by a clock of its own: placed, and every value is the launch's truth."""
    trace = kineto.read(traces / "kineto" / file)
    kernels = trace.kernels
    launch = kernels.groupby(["name", "grid", "block"], observed=True, sort=False).ngroup().to_numpy()
    truth = np.random.default_rng(0).uniform(5, 95, launch.max() + 1)[launch]
    made = sampled_again(kernels, INTERVAL, truth)
    nothing = np.full(len(made["start"]), np.nan)
    samples = pm_samples.PmSamples(
        start=made["start"] + 123_456_789_012,
        end=made["end"] + 123_456_789_012,
        busy=made["busy"],
        sm=nothing,
        dram=made["dram"],
        tensor=nothing,
        interval_ns=INTERVAL,
        clock=pm_samples.UNKNOWN,
    )
    found, coverage = pm_counters.measured(trace, samples)
    assert coverage.alignment.estimated and coverage.alignment.agreement > 0.94
    got = found.kernels["dram_pct"].to_numpy()
    known = truth[(kernels["kind"] == "kernel").to_numpy()]
    assert np.isfinite(got).sum() == coverage.covered
    np.testing.assert_allclose(got[np.isfinite(got)], known[np.isfinite(got)], atol=0.5)
    assert coverage.time_pct == pytest.approx(time_pct, abs=1.5)
    assert found.kernels["sm_pct"].isna().all() and not any(note.code == pm_counters.FLOOR for note in found.notes)


def test_no_kernels_is_told_with_what_to_do(tmp_path):
    trace = kineto.read(trace_file(tmp_path / "t.json", after(GEMM)))
    trace = trace.replace(kernels=KERNELS.empty())
    samples = pm_samples.read(samples_file(tmp_path / "s.json", sampled(after(GEMM), INTERVAL), 0))
    with pytest.raises(CannotAlignError, match="cannot do both at once; use --counters six"):
        pm_counters.measured(trace, samples)


def test_they_join_a_window_and_keep_to_their_own_launches(tmp_path):
    """A kernel that no sample fell into does not get the counters of a longer launch of the same name."""
    ran = after(GEMM, ADD, gap=9_000)
    ran.append(Ran("add", ran[-1].end + 9_000, 4_000, 9.0, 88.0, grid=1))
    found, _ = measured(tmp_path, ran)
    window = kineto.read(trace_file(tmp_path / "window.json", [*ran, Ran("new", ran[-1].end + 500, 3_000)]))
    joined, matched, unmatched = ncu.join_counters(window, found)
    assert (matched, unmatched) == (2, 2)
    kernels = joined.kernels.set_index(["name", "grid"])
    assert kernels.loc[("add", "100x1x1"), "dram_pct"] == pytest.approx(88.0, abs=0.01)
    assert np.isnan(kernels.loc[("add", "1x1x1"), "dram_pct"]) and np.isnan(kernels.loc[("new", "100x1x1"), "sm_pct"])
    assert kernels["source"].astype(str).tolist() == ["cupti", "cupti", "none", "none"]
    assert {note.code: note.count for note in joined.notes}["ncu_unmatched"] == 2
