"""Counters by sampling, on the GPU here: that CUPTI samples beside torch.profiler, on a clock that fits, and what it says.

Where the driver lets only administrators read counters these are skipped, with its line.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from profilers.collectors import counters
from profilers.readers import kineto, pm_samples
from profilers.runs.counting import PM_SAMPLES, PM_TRACE
from profilers.runs.folder import RunFolder


@pytest.fixture
def sampled(finished):
    """A finished run whose kernels were sampled; the note on how."""
    if not counters.find_sampling():
        pytest.skip("no cupti-python that samples is installed")

    def run(function: str) -> tuple[RunFolder, str]:
        folder = finished(function, counters="pm", windows=3)
        note = next(note for note in folder.status().notes if "counters" in note)
        if counters.NO_PERMISSION in note:
            pytest.skip(note)
        print(folder.status().device_name, *(note for note in folder.status().notes if "counters" in note), sep="\n")
        assert note.startswith("counters (pm)"), (note, folder.log_tail(30))
        return folder, note

    return run


def test_a_gemm_that_fills_the_chip(sampled):
    run, note = sampled("large_gemm")
    kernels = run.recording().kernels
    gemms = kernels[(kernels["class"] == "gemm") & (kernels["kind"] == "kernel")]
    assert set(gemms["source"]) == {"cupti"}, note
    assert (gemms["tensor_pct"] > 40).all(), gemms["tensor_pct"].describe()
    assert (gemms["sm_pct"] >= gemms["tensor_pct"] - 1e-6).all() and (gemms["sm_pct"] <= 100).all()


def test_a_copy_that_fills_the_bus(sampled):
    run, _ = sampled("large_copy")
    kernels = run.recording().kernels
    copies = kernels[kernels["source"].astype(str) == "cupti"]
    if copies.empty:
        pytest.skip("this torch copies on the device with a copy engine, which runs no kernel")
    assert copies["dram_pct"].median() > 50 and copies["tensor_pct"].median() < 5


def test_the_clock_is_one_of_the_two_that_are_documented(sampled):
    run, note = sampled("large_gemm")
    samples = pm_samples.read(run.path / PM_SAMPLES)
    said = json.loads((run.path / PM_SAMPLES).read_text())
    print(said["metrics"], said["asked"], said["unit"], samples.clock, samples.interval_ns, samples.notes)
    assert samples.clock in (pm_samples.UNIX, pm_samples.TICKS), note
    assert "shifted by" in note and "which does not fit" not in note
    if said["unit"] == "ns":
        assert samples.interval_ns == pytest.approx(said["asked"], rel=0.2)
    trace = kineto.read(run.path / PM_TRACE)
    begin = trace.kernels["start_ns"].to_numpy() + trace.origin.base_ns
    assert samples.start[0] < begin.min() and samples.end[-1] > begin.max()
    assert np.nanmax(samples.busy) > 90 and np.nanmin(samples.busy) < 10


def test_short_kernels_keep_their_estimate(sampled):
    run, _ = sampled("block")
    kernels = run.recording().kernels
    kernels = kernels[kernels["kind"] == "kernel"]
    shortest = kernels[kernels["dur_ns"] < 5_000]
    assert not (shortest["source"].astype(str) == "cupti").any()
