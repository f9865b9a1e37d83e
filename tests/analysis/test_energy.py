"""Joules a step from sampled power, and where a run's own log says that steps ran."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from profilers.analysis.energy import energy_a_step
from profilers.collectors.spec import Spec
from profilers.collectors.telemetry.base import Sample
from profilers.runs.beside import beside, stepping
from profilers.runs.folder import RunFolder
from profilers.tables import SAMPLES


def samples(values: list[float]) -> pd.DataFrame:
    rows = [
        {"t_ns": second * 10**9, "device": "cuda:0", "metric": "power_w", "value": value, "unit": "W", "source": "nvml"}
        for second, value in enumerate(values)
    ]
    other = {"t_ns": 10**9, "device": "cuda:1", "metric": "power_w", "value": 9e9, "unit": "W", "source": "nvml"}
    return SAMPLES.conform(pd.DataFrame([*rows, other]))


def test_mean_power_times_step_time() -> None:
    # 100, 200, 300 W while steps ran: 200 W x 50 ms = 10 J; the idle watts before and after do not count.
    frame = samples([20, 100, 200, 300, 20])
    assert energy_a_step(frame, "cuda:0", 1, 3, 50_000) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("values", "step_us"), [([100, 100], 1000.0), ([], 1000.0), ([100] * 9, math.nan), ([math.nan] * 9, 1000.0)]
)
def test_too_little_is_not_known(values: list[float], step_us: float) -> None:
    assert math.isnan(energy_a_step(samples(values), "cuda:0", 0, 99, step_us))


def test_a_run_says_when_its_steps_ran(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "runs", Spec(name="m", workload="m", device="cuda:0"))
    assert stepping(run) is None and math.isnan(beside(run).step_us)
    for state in ("warming", "timing", "profiling", "reading"):
        run.append_event("state", state=state)
    began, ended = stepping(run) or (0.0, 0.0)
    assert 0 < began <= ended
    status = run.status()
    status.step_ms = 50.0
    run.write_status(status)
    middle = int((began + ended) / 2 * 1e9)
    run.append_samples([Sample(middle, "cuda:0", "power_w", 200.0, "W", "nvml")] * 3)
    known = beside(run)
    assert known.step_us == 50_000 and known.energy_j == pytest.approx(10.0)
