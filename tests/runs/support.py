"""Real runs in real processes, waited for with a deadline, and a small trace; whatever a test leaves running is ended."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profilers.runs.folder import RunFolder, list_runs
from profilers.runs.spec import Spec
from profilers.runs.status import Status, alive

WORKLOADS = Path(__file__).parent / "workloads"
DEADLINE_S = 90.0


def spec(function: str = "build", **changes) -> Spec:
    """A run of one of the small workloads: two warm-up steps, three timed ones, two windows."""
    given = {"name": function, "workload": f"{WORKLOADS / 'tiny.py'}:{function}", "target": "callable"}
    return Spec(**{**given, "warmup": 2, "timed_steps": 3, "windows": 2, **changes})


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition; fail the test when it does not come true."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {DEADLINE_S:.0f} s for {what or condition}")
        time.sleep(0.02)


def ended(run: RunFolder) -> Status:
    """The status of a run once it has ended."""
    until(lambda: not run.effective_status().live, f"{run.id} to end: {run.status()}")
    return run.effective_status()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A runs folder of the test's own. Its supervisors and workers are gone afterwards."""
    folder = tmp_path / "runs"
    yield folder
    for run in list_runs(folder):
        status = run.status()
        for pid, start in ((status.worker_pid, status.worker_start), (status.supervisor_pid, status.supervisor_start)):
            if pid != os.getpid() and alive(pid, start):
                assert pid is not None
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def a_trace(path: Path, steps: int = 6, numbered: bool = True, step_us: int = 1000) -> Path:
    """A small GPU trace: in each step an addmm that launches a GEMM, and a relu that launches its kernel."""
    events = []
    base = 1_000.0
    for step in range(steps):
        t = base + step * step_us
        if numbered:
            events.append(_span("user_annotation", f"ProfilerStep#{step}", t, step_us - 10))
        for place, (op, kernel) in enumerate(
            (("aten::addmm", "ampere_sgemm_128x64_nn"), ("aten::relu", "relu_kernel"))
        ):
            at, correlation = t + 20 + place * 300, 10 * step + place + 1
            outer = _span("cpu_op", "aten::linear" if place == 0 else "aten::relu_", at, 100)
            inner = _span("cpu_op", op, at + 5, 80)
            inner["args"] = {
                "Input Dims": [[8], [4, 8], [8, 8]] if place == 0 else [[4, 8]],
                "Input type": ["float"] * 3,
            }
            launch_call = _span("cuda_runtime", "cudaLaunchKernel", at + 20, 10, correlation=correlation)
            run = _span("kernel", kernel, at + 60, 150, correlation=correlation)
            run.update(pid=0, tid=7)
            run["args"] |= {"device": 0, "stream": 7, "grid": [2, 1, 1], "block": [128, 1, 1]}
            events += [outer, inner, launch_call, run]
    about = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132, "totalGlobalMem": 85_000_000_000}],
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    }
    path.write_text(json.dumps({**about, "traceEvents": events}))
    return path


def _span(cat: str, name: str, ts: float, dur: float, **args) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": 100, "ts": ts, "dur": dur, "args": args}
