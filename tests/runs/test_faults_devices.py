"""A GPU that falls off its bus while a run goes on, and what telemetry a run gets: real supervisors, a stand-in driver."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from profilers.runs.folder import RunFolder
from profilers.runs.launch import launch
from profilers.runs.leases import holders
from profilers.runs.spec import Spec
from tests.collectors.conftest import build_stub
from tests.runs.support import a_trace, ended, until


@pytest.fixture
def driver(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Supervisors started from here find a driver with three GPUs; a number in the file returned names one that is lost."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_stub(tmp_path_factory.mktemp("nvml"))))
    monkeypatch.setenv("STUB_COUNT", "3")
    monkeypatch.setenv("STUB_LOST_FILE", str(tmp_path / "lost"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "lost"


def going(tmp_path: Path, root: Path, numbers: tuple[int, ...] = (0,)) -> list[RunFolder]:
    """Replays of half a minute, each on a GPU of its own."""
    path = a_trace(tmp_path / "t.json", steps=6, step_us=5000)
    runs = launch(
        [
            Spec(
                name="t",
                workload=str(path),
                target="replay",
                speed=0.001,
                device=f"cuda:{number}",
                device_uuid=f"GPU-000{number}-aaaa",
            )
            for number in numbers
        ],
        root,
    )
    until(lambda: all(len(run.samples()) for run in runs), "telemetry")
    return runs


def metrics(run: RunFolder, device: str) -> set[str]:
    samples = run.samples()
    return set(samples.loc[samples["device"] == device, "metric"].astype(str))


def test_a_run_gets_its_own_gpu_whole_and_the_others_in_part(tmp_path, root, driver):
    first, second = going(tmp_path, root, (0, 1))
    until(lambda: "sm_pct" in metrics(first, "cuda:0") and "sm_pct" in metrics(first, "cuda:2"), "GPM of both kinds")
    assert {"sm_pct", "dram_pct", "tensor_pct", "energy_j", "clock_reasons", "sampling_ms"} <= metrics(first, "cuda:0")
    # One that another run is on, and one that nobody is on.
    for device in ("cuda:1", "cuda:2"):
        assert "util_pct" in metrics(first, device) and "temperature_c" not in metrics(first, device)
    assert "temperature_c" in metrics(second, "cuda:1")
    samples = first.samples()
    costs = samples[samples["metric"] == "sampling_ms"]
    assert set(costs["source"].astype(str)) == {"self"} and (costs["value"] > 0).all()
    own = samples[(samples["device"] == "cuda:0") & (samples["metric"] == "sm_pct")]
    assert set(own["source"].astype(str)) == {"gpm"} and set(own["value"]) == {40.0}
    reasons = {(e["device"], e["metric"]): e["reason"] for e in first.events() if e["kind"] == "unavailable"}
    assert reasons["cuda:0", "dmma_pct"] == "not supported by this device"


def test_a_run_of_two_ranks_gets_both_of_its_gpus_whole(tmp_path, root, driver):
    path = a_trace(tmp_path / "t.json", steps=6, step_us=5000)
    two = Spec(
        name="t",
        workload=str(path),
        target="replay",
        speed=0.001,
        device="cuda:0",
        device_uuid="GPU-0000-aaaa",
        more_devices=(("cuda:2", "GPU-0002-aaaa"),),
    )
    (run,) = launch([two], root)
    until(lambda: {"temperature_c", "sm_pct"} <= metrics(run, "cuda:2"), "the second rank's GPU")
    until(lambda: "util_pct" in metrics(run, "cuda:1"), "the GPU beside them")
    assert {"temperature_c", "sm_pct"} <= metrics(run, "cuda:0") and "temperature_c" not in metrics(run, "cuda:1")
    driver.write_text("2")
    until(lambda: any("lost" in e.get("reason", "") for e in run.events()), "the loss to be noticed")
    os.kill(run.status().worker_pid, signal.SIGABRT)
    assert ended(run).cause_kind == "lost"


def test_a_lost_gpu_is_said_and_costs_nothing_else(tmp_path, root, driver):
    (run,) = going(tmp_path, root)
    driver.write_text("0")
    until(lambda: any("lost" in e.get("reason", "") for e in run.events()), "the loss to be noticed")
    seen = len(run.samples())
    until(lambda: len(run.samples()) > seen, "the host's telemetry to go on")
    assert run.status().live
    assert metrics(run, "cuda:2") or "util_pct" in metrics(run, "cuda:1")


def test_a_worker_that_dies_with_its_gpu_is_named_so(tmp_path, root, driver):
    (run,) = going(tmp_path, root)
    until(lambda: run.status().windows_done, "a window")
    driver.write_text("0")
    until(lambda: any("lost" in e.get("reason", "") for e in run.events()), "the loss to be noticed")
    os.kill(run.status().worker_pid, signal.SIGABRT)
    status = ended(run)
    assert (status.state, status.cause_kind) == ("died", "lost")
    assert status.cause.startswith("the GPU is lost") and "SIGABRT" in status.cause
    assert len(run.recording().kernels)
    until(lambda: not holders(root), "the device to be let go of")
