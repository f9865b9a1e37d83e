"""Many short runs under one supervisor: no process, open file or thread stays behind, and memory does not grow."""

from __future__ import annotations

import os

import psutil
import pytest
from conftest_runs import ended, until
from test_opening import a_trace

from profilers.runs.launch import launch
from profilers.runs.spec import Spec

RUNS = 200 if os.environ.get("KERNELSCOPE_SOAK") else 6


@pytest.mark.soak
def test_many_runs_leave_nothing_behind(tmp_path, root):
    path = a_trace(tmp_path / "t.json", steps=2)
    specs = [Spec(name="t", workload=str(path), target="replay", speed=1e6) for _ in range(RUNS)]
    runs = launch(specs, root)
    until(lambda: runs[0].status().supervisor_pid, "the supervisor")
    supervisor = psutil.Process(runs[0].status().supervisor_pid)
    assert ended(runs[1]).state == "finished"
    files, threads, memory = supervisor.num_fds(), supervisor.num_threads(), supervisor.memory_info().rss
    assert ended(runs[-2]).state == "finished"
    assert supervisor.num_fds() <= files + 2
    assert supervisor.num_threads() <= threads + 2
    assert supervisor.memory_info().rss <= memory + 64e6
    assert not [child for child in supervisor.children() if child.status() == psutil.STATUS_ZOMBIE]
    assert {ended(run).state for run in runs} == {"finished"}
    until(lambda: not supervisor.is_running(), "the supervisor to leave")
    assert not os.listdir(root / ".launches")
