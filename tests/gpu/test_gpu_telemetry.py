"""Telemetry of a real GPU: what NVML tells, and on Hopper and newer what GPM tells, while known work runs."""

from __future__ import annotations

import time

import pytest

from profilers.analysis.livestates import live_states, summary
from profilers.collectors.telemetry.devices import list_devices, visible
from profilers.collectors.telemetry.gpm import BEFORE_HOPPER, METRICS
from profilers.collectors.telemetry.nvidia import NvmlCollector
from profilers.collectors.telemetry.nvml import Nvml

SECONDS = 6.0
PERCENT = {metric for _, metric, unit in METRICS if unit == "%"}


def hopper() -> bool:
    nvml = Nvml()
    try:
        gpu = dict(visible(nvml.gpus))["cuda:0"]
        capability, _ = nvml.ask(gpu, "nvmlDeviceGetCudaComputeCapability")
        return capability is not None and capability[0] >= 9
    finally:
        nvml.close()


def test_the_device_row_says_what_it_is():
    row = next(row for row in list_devices() if row.device == "cuda:0")
    assert row.name and row.uuid and row.memory_total_gb and row.memory_total_gb > 1


def test_a_run_has_the_devices_own_words(finished):
    run = finished("large_gemm", windows=10_000, seconds=SECONDS)
    samples = run.samples()
    mine = samples[samples["device"] == "cuda:0"]
    newest = mine.drop_duplicates("metric", keep="last").set_index("metric")["value"]
    told = {event["metric"]: event["reason"] for event in run.events() if event["kind"] == "unavailable"}
    for metric in ("util_pct", "memory_used_gb", "power_w", "clock_mhz", "temperature_c", "clock_reasons"):
        assert metric in newest.index or told.get(metric), metric
    assert mine[mine["metric"] == "sampling_ms"]["value"].gt(0).all()
    energy = mine[mine["metric"] == "energy_j"]["value"].to_numpy()
    power = mine[mine["metric"] == "power_w"]
    if len(energy) > 2 and len(power) > 2:
        seconds = (power["t_ns"].iloc[-1] - power["t_ns"].iloc[0]) / 1e9
        # Two meters of one thing, each averaging in its own way.
        assert energy[-1] - energy[0] == pytest.approx(power["value"].mean() * seconds, rel=0.5)


def test_gpm_shows_compute_where_compute_runs(finished):
    if not hopper():
        run = finished("large_gemm", windows=3)
        reasons = {event["reason"] for event in run.events() if event.get("metric") == "sm_pct"}
        assert reasons == {BEFORE_HOPPER}
        return
    compute = finished("large_gemm", windows=10_000, seconds=SECONDS).samples()
    memory = finished("large_copy", windows=10_000, seconds=SECONDS).samples()

    def best(samples, metric):
        part = samples[(samples["device"] == "cuda:0") & (samples["metric"] == metric)]
        assert set(part["source"].astype(str)) == {"gpm"}, metric
        return part["value"].max()

    for samples in (compute, memory):
        part = samples[samples["metric"].isin(PERCENT)]
        assert part["value"].between(0, 101).all(), part[~part["value"].between(0, 101)]
    assert best(compute, "tensor_pct") > 30
    assert best(compute, "tensor_pct") > 3 * max(best(memory, "tensor_pct"), 1)
    assert best(memory, "dram_pct") > 30
    assert best(memory, "dram_pct") > best(compute, "dram_pct")
    # bf16 matrix multiplies are HMMA work.
    assert best(compute, "hmma_pct") == pytest.approx(best(compute, "tensor_pct"), rel=0.2)
    states = {one.device: summary(one) for one in live_states(memory)}
    assert any(state[2] == "H" for state, _, _ in states["cuda:0"].shares)


def test_what_a_tick_costs(capsys):
    """Prints the cost of a tick on this device; only that it can be sampled is asserted."""
    nvml = Nvml()
    try:
        collector = NvmlCollector(nvml, visible(nvml.gpus)[:1])
        costs = []
        for _ in range(20):
            time.sleep(0.12)
            began = time.perf_counter()
            samples = collector.sample()
            costs.append((time.perf_counter() - began) * 1e3)
            assert samples
        collector.close()
    finally:
        nvml.close()
    costs.sort()
    with capsys.disabled():
        print(f"\na tick of one GPU: median {costs[10]:.2f} ms, most {costs[-1]:.2f} ms")
