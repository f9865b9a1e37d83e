"""Many short runs under one supervisor: no process, open file or thread stays behind, and memory does not grow."""

from __future__ import annotations

import os

import psutil
import pytest

from profilers.runs.launch import launch
from profilers.runs.leases import holders
from profilers.runs.spec import Spec
from tests.runs.support import a_trace, ended, until

RUNS = 200 if os.environ.get("KERNELSCOPE_SOAK") else 6


@pytest.mark.soak
def test_many_runs_leave_nothing_behind(tmp_path, root):
    """Replays, and among them some that fail: one supervisor, run after run."""
    path = a_trace(tmp_path / "t.json", steps=2)
    good = Spec(name="t", workload=str(path), target="replay", speed=1e6)
    bad = Spec(name="bad", workload=str(tmp_path / "no-such-file"), target="replay")
    specs = [bad if number % 5 == 3 else good for number in range(RUNS)]
    before = psutil.Process().num_fds()
    runs = launch(specs, root)
    assert psutil.Process().num_fds() <= before
    until(lambda: runs[0].status().supervisor_pid, "the supervisor")
    supervisor = psutil.Process(runs[0].status().supervisor_pid)
    early = max(2, RUNS // 10)
    states = [ended(run).state for run in runs[:early]]
    files, threads, memory = supervisor.num_fds(), supervisor.num_threads(), supervisor.memory_info().rss
    states += [ended(run).state for run in runs[early:-1]]
    # A worker, its log and its reader may be there or not at the moment of asking.
    assert supervisor.num_fds() <= files + 4
    assert supervisor.num_threads() <= threads + 2
    grown = (supervisor.memory_info().rss - memory) / 1e6
    print(f"{RUNS} runs: the supervisor's memory went from {memory / 1e6:.0f} MB by {grown:+.1f} MB")
    assert grown <= 64
    assert not [child for child in supervisor.children() if child.status() == psutil.STATUS_ZOMBIE]
    states.append(ended(runs[-1]).state)
    assert states == ["failed" if spec is bad else "finished" for spec in specs]
    workers = [run.status().worker_pid for run in runs]
    until(lambda: not supervisor.is_running(), "the supervisor to leave")
    until(lambda: not any(map(psutil.pid_exists, workers)), "every worker to be gone")
    assert not os.listdir(root / ".launches")
    assert not holders(root)
    # Parquet is not the only thing in a folder: nothing half-written or raw stays in any.
    assert not [path for run in runs for path in run.path.rglob("*.tmp")]
    assert not [path for run in runs for path in (run.path / "raw").glob("*")]
