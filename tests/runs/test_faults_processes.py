"""Real processes that are killed: the end is named, windows stay, the device is free, nothing is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import psutil
import pytest

from profilers.runs.folder import STATUS, RunFolder
from profilers.runs.launch import launch
from profilers.runs.leases import holders
from profilers.runs.status import alive
from tests.runs.support import ended, spec, until


def going(root: Path, function: str = "slow", **changes) -> RunFolder:
    (run,) = launch([spec(function, windows=2000, **changes)], root)
    until(lambda: run.status().windows_done >= 1 or not run.effective_status().live, "the first window")
    assert run.status().state == "profiling", run.status()
    return run


def nothing_left(run: RunFolder, root: Path) -> None:
    """No process of the run, no zombie, no lease; every window that is there can be read."""
    status = run.status()
    until(lambda: not alive(status.worker_pid, status.worker_start), "the worker to go")
    until(lambda: not psutil.pid_exists(status.worker_pid), "the worker to be waited for")
    until(lambda: not holders(root), "the device to be let go of")
    assert run.window_ids()
    for number in run.window_ids():
        run.read_window(number)


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV"), (signal.SIGBUS, "SIGBUS"), (signal.SIGABRT, "SIGABRT")],
)
def test_a_worker_that_is_killed(root, number, words):
    run = going(root)
    os.kill(run.status().worker_pid, number)
    status = ended(run)
    assert status.state == "died" and words in status.cause and status.exit_code == -number
    nothing_left(run, root)


def test_children_of_a_killed_worker_go_with_it(root):
    run = going(root, "with_children")
    worker = psutil.Process(run.status().worker_pid)
    children = worker.children(recursive=True)
    assert len(children) >= 2
    os.kill(worker.pid, signal.SIGKILL)
    assert ended(run).state == "died"
    for child in children:
        until(lambda child=child: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, f"{child} to go")
    nothing_left(run, root)


def test_kill_9_of_the_supervisor_leaves_nothing_and_frees_the_device(root):
    run = going(root, "with_children")
    status = run.status()
    children = psutil.Process(status.worker_pid).children(recursive=True)
    os.kill(status.supervisor_pid, signal.SIGKILL)
    until(lambda: not alive(status.worker_pid, status.worker_start), "the worker to go")
    seen = run.effective_status()
    assert seen.state == "died" and "supervisor is gone" in seen.cause
    until(lambda: not holders(root), "the device to be let go of")
    assert len(run.recording().kernels)
    (again,) = launch([spec("step")], root)
    assert ended(again).state == "finished"
    assert all(child.pid != again.status().worker_pid for child in children)


def test_a_reboot_is_told_from_a_kill(root):
    run = going(root)
    status = run.status()
    os.kill(status.supervisor_pid, signal.SIGKILL)
    until(lambda: not alive(status.worker_pid, status.worker_start), "the worker to go")
    # What a machine finds after it was started anew: another boot, and ids that may belong to anybody by now.
    data = msgspec.json.decode((run.path / STATUS).read_bytes())
    data |= {"boot_id": "00000000-another-boot pid:[1]", "updated": data["updated"] - 3600}
    data |= {"supervisor_pid": os.getpid(), "supervisor_start": 1.0}
    (run.path / STATUS).write_bytes(msgspec.json.encode(data))
    seen = run.effective_status()
    assert seen.state == "died" and "rebooted" in seen.cause
    assert len(run.recording().kernels)
    run.delete()


def test_the_last_run_of_a_queue_begins_though_every_one_before_it_dies(root):
    names = ["killed", "segfaults", "vanishes", "step"]
    runs = launch([spec(name) for name in names], root)
    assert [ended(run).state for run in runs] == ["died", "died", "failed", "finished"]
    supervisor = runs[-1].status().supervisor_pid
    until(lambda: not psutil.pid_exists(supervisor), "the supervisor to leave")
    until(lambda: not holders(root), "the device to be let go of")
