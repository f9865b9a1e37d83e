"""Joules a step from sampled power, and where a run's own log says that steps ran."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from tables_maker import recording

from profilers.analysis.energy import energy_a_step
from profilers.collectors.spec import Spec
from profilers.collectors.telemetry.base import Sample
from profilers.runs.beside import beside, names_of, stepping
from profilers.runs.folder import RunFolder
from profilers.runs.opening import Opened
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


def opened(root: Path, name: str, **more: object) -> Opened:
    run = RunFolder.create(root, Spec(name=name, workload=name, device="cuda:0", **more))  # type: ignore[arg-type]
    return Opened(recording(), name, run)


def test_runs_of_one_name_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    a, b, c = (opened(root, "gpt2", batch=n, dtype=t) for n, t in ((1, "fp32"), (8, "fp32"), (8, "bf16")))
    other = opened(root, "bert")
    assert names_of([a, b, other]) == ["gpt2 b1", "gpt2 b8", "bert"]
    assert names_of([a, b, c]) == ["gpt2 fp32 b1", "gpt2 fp32 b8", "gpt2 bf16 b8"]
    again = opened(root, "gpt2", batch=1)
    assert a.run is not None and again.run is not None
    assert names_of([a, again]) == [f"gpt2 ({a.run.id})", f"gpt2 ({again.run.id})"]
    assert names_of([Opened(recording(), "x.json", None)] * 2) == ["x.json", "x.json"]
