"""Real runs in real processes, waited for with a deadline; whatever a test leaves running is ended."""

from __future__ import annotations

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
