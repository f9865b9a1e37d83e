"""calibrate: what is measured replaces what was assumed, for this device alone."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from profilers.analysis.peaks import device_peaks, user_file
from profilers.collectors import calibrate
from profilers.collectors.telemetry.devices import DeviceRow
from profilers.tables import Device
from tests.cli.support import Done
from tui.cli.commands import calibrate as command

Cli = Callable[..., Done]

H100 = DeviceRow("cuda:0", "NVIDIA H100 80GB HBM3", "GPU-0", "cuda", 85.5, 1.0, 0.0)
ANSWER = {"device": "NVIDIA H100 80GB HBM3", "tflops": {"fp32": 55.55555, "bf16": 700.0}, "memory_gb_s": 3000.0}


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.cli.devices.chosen_devices", lambda text: [H100])
    monkeypatch.setattr(command, "_measure", lambda device: ANSWER)


def _peaks() -> object:
    return device_peaks(Device("cuda:0", H100.name, memory_bytes=85_500_000_000))


def test_measured_peaks_are_used_from_then_on(cli: Cli, one_gpu: None) -> None:
    before = _peaks()
    done = cli("calibrate", "--format", "json")
    assert done.code == 0, done.err
    rows = {row["quantity"]: row for row in json.loads(done.out)}
    assert rows["bf16 matmul"]["measured"] == 700.0
    assert rows["bf16 matmul"]["before"] == before.bf16  # type: ignore[attr-defined]
    assert rows["bf16 matmul"]["pct"] == pytest.approx(70_000.0 / before.bf16)  # type: ignore[attr-defined]
    after = _peaks()
    assert (after.bf16, after.fp32, after.memory_gb_s, after.source) == (700.0, 55.56, 3000.0, "measured")  # type: ignore[attr-defined]
    assert after.int8 == before.int8, "what was not measured stays"  # type: ignore[attr-defined]
    assert str(user_file()) in done.err


def test_a_dry_run_changes_nothing(cli: Cli, one_gpu: None) -> None:
    assert cli("calibrate", "--dry-run").code == 0
    assert not user_file().exists()


def test_a_device_that_does_not_answer_is_one_line(cli: Cli, one_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: str) -> dict[str, object]:
        raise command._Failed("CUDA error: device busy")

    monkeypatch.setattr(command, "_measure", broken)
    done = cli("calibrate")
    assert (done.code, done.out) == (1, "")
    assert done.lines[-1] == "kernelscope: cuda:0: CUDA error: device busy"


def test_the_measuring_process_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "CPU_N", {"fp32": 64, "bf16": 32})
    monkeypatch.setattr(calibrate, "COPY_BYTES", {"cpu": 2**16})
    monkeypatch.setattr(calibrate, "BATCH_S", 0.001)
    found = calibrate.measure("cpu")
    assert set(found["tflops"]) == {"fp32", "bf16"}
    assert all(value > 0 for value in found["tflops"].values())
    assert found["memory_gb_s"] > 0


def test_the_best_batch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(
        [0.0, 0.075, *(t for batch in range(7) for t in (10.0 * batch, 10.0 * batch + (0.4 if batch == 3 else 0.8)))]
    )
    monkeypatch.setattr(calibrate.time, "perf_counter", lambda: next(clock))
    calls: list[int] = []
    assert calibrate.best(lambda: calls.append(1), lambda: None) == pytest.approx(0.4 / 2)
    assert len(calls) == 2 + 7 * 2, "two to warm up and to see how long it takes, then seven batches of two"
