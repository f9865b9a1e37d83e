"""What ends a run badly: each end is named, what was recorded stays, and nothing is left running."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import psutil
import pytest

from profilers.collectors import protocol
from profilers.collectors.protocol import Failure
from profilers.runs import deaths, jobs, reading
from profilers.runs.folder import RunFolder, RunsError
from profilers.runs.launch import launch, stop
from profilers.runs.spec import Spec
from profilers.runs.status import alive
from tests.runs.support import ended, spec, until


@pytest.fixture(autouse=True)
def _no_lower_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader lowers the priority of its thread, which may be the tests' own here, and would stay low for the rest."""
    monkeypatch.setattr(reading, "_be_nice", lambda: None)


def going(root: Path, function: str = "slow", **changes) -> RunFolder:
    """A run that has a window and would go on for long."""
    (run,) = launch([spec(function, windows=2000, **changes)], root)
    until(lambda: run.status().windows_done >= 1 or not run.effective_status().live, "the first window")
    assert run.status().state == "profiling", run.status()
    return run


def test_kill_9_of_the_worker_is_named_and_its_windows_stay(root):
    run = going(root)
    pid = run.status().worker_pid
    os.kill(pid, signal.SIGKILL)
    status = ended(run)
    assert (status.state, status.cause_kind, status.exit_code) == ("died", "signal", -9)
    assert status.cause.startswith("killed by SIGKILL")
    assert status.windows_done == len(run.window_ids()) >= 1
    assert len(run.recording().kernels)
    assert not list((run.path / "raw").iterdir())
    until(lambda: not psutil.pid_exists(pid), "the worker to be reaped")


def test_kill_9_of_the_supervisor_takes_the_worker_along(root):
    run = going(root)
    status = run.status()
    (waiting,) = launch([spec("step")], root)
    os.kill(status.supervisor_pid, signal.SIGKILL)
    until(lambda: not alive(status.worker_pid, status.worker_start), "the worker to go")
    seen = run.effective_status()
    assert seen.state == "died" and "supervisor is gone" in seen.cause and "window" in seen.cause
    assert run.status().state == "profiling"
    assert seen.windows_done and len(run.recording().kernels)
    with pytest.raises(RunsError, match="already ended"):
        stop(run)
    # The device is free again: the kernel let go of the dead supervisor's lock.
    assert ended(waiting).state == "finished"
    run.delete()


def test_sigterm_of_the_supervisor_stops_its_runs(root):
    first, second = launch([spec("slow", windows=2000), spec("step")], root)
    until(lambda: first.status().windows_done >= 1, "the first window")
    os.kill(first.status().supervisor_pid, signal.SIGHUP)
    os.kill(first.status().supervisor_pid, signal.SIGTERM)
    assert ended(first).state == "stopped" and "supervisor was told to end" in first.status().cause
    assert ended(second).state == "stopped"
    assert first.window_ids()


def test_a_worker_that_will_not_end_is_killed(root):
    run = going(root, "stubborn")
    pid = run.status().worker_pid
    status = stop(run, wait_s=30)
    assert status.state == "stopped"
    assert status.exit_code == -9
    assert not psutil.pid_exists(pid)


def test_deaths_of_other_kinds_are_named_one_after_another(root):
    names = ["vanishes", "segfaults", "too_big", "nowhere"]
    runs = dict(zip(names, launch([spec(name) for name in names], root), strict=True))
    status = {name: ended(run) for name, run in runs.items()}
    assert (status["vanishes"].state, status["vanishes"].cause_kind) == ("failed", "exit")
    assert "exit code 7" in status["vanishes"].cause
    assert status["segfaults"].state == "died" and "SIGSEGV" in status["segfaults"].cause
    assert "Segmentation fault" in "\n".join(runs["segfaults"].log_tail(60))
    assert status["too_big"].cause_kind == "memory" and "asked for 36,028,797.0 GB" in status["too_big"].cause
    assert status["nowhere"].cause_kind == "usage"
    assert status["nowhere"].cause.startswith("tiny.py has no 'nowhere'; it has ")


def test_an_unreadable_trace_is_counted_and_kept(root, monkeypatch):
    run = RunFolder.create(root, spec("step"))
    for number, data in ((1, b'{"traceEvents": [{"ph": "X", "cat'), (2, b"")):
        (run.path / "raw" / protocol.raw_name(number)).write_bytes(data)
    reader = reading.WindowReader(run, run.spec())
    reader.finish()
    reader.run()
    assert reader.done == 0 and len(reader.failed) == 2
    assert reader.failed[1].startswith("window 2 could not be read: ")
    assert sorted(path.name for path in (run.path / "traces").iterdir()) == ["0001.json", "0002.json"]
    assert [event["kind"] for event in run.events()].count("window_failed") == 2
    job = jobs.Job(run)
    job.reader = reader
    assert job._conclusion(deaths.End("finished")).state == "failed"
    reader.done = 1
    assert job._conclusion(deaths.End("finished")).state == "finished"
    job.finish(deaths.End("finished"))
    assert run.status().notes == tuple(reader.failed)


def test_a_full_disk_ends_the_run_by_its_name(root):
    import errno

    run = RunFolder.create(root, spec("step"))
    (run.path / "raw" / "0001.json").write_bytes(b"{}")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    reader = reading.WindowReader(run, run.spec(), read=full)
    reader.run()
    assert reader.fatal.startswith("the disk is full: ")
    assert not list((run.path / "raw").iterdir()), "what nobody can use takes no room on a full disk"
    job = jobs.Job(run)
    job.reader = reader
    assert job._conclusion(deaths.End("finished")) == deaths.End("failed", "disk", reader.fatal)


def test_a_reader_that_cannot_write_ends_the_run(root):
    """The folder turns unwritable: the worker must not wait for its reader for ever."""
    run = RunFolder.create(root, spec("step"))
    (run.path / "raw" / "0001.json").write_bytes(b"{}")

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    reader = reading.WindowReader(run, run.spec(), read=refused)
    reader.start()
    reader.join(30)
    assert not reader.is_alive()
    assert reader.fatal.startswith("windows can no longer be kept: ") and "Permission denied" in reader.fatal


def test_exits_are_described(tmp_path, monkeypatch):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="w"))
    assert deaths.describe(run.path, 0, 0) == deaths.End("finished")
    (run.path / "worker.log").write_text("line\nlast words\n\n")
    assert deaths.describe(run.path, 3, 0).cause == "the worker ended with exit code 3; its log ends: last words"
    (run.path / "failure.json").write_bytes(b"{")
    assert deaths.describe(run.path, 3, 0).kind == "exit"
    (run.path / "failure.json").write_bytes(msgspec.json.encode(Failure(kind="dtype", cause="no bf16")))
    assert deaths.describe(run.path, 1, 0) == deaths.End("failed", "dtype", "no bf16")
    assert deaths.describe(run.path, -15, 0).cause.startswith("killed by SIGTERM")
    assert deaths.describe(run.path, -64, 0).cause == "killed by SIGRTMAX"
    monkeypatch.setattr(deaths, "kills_for_memory", lambda: 4)
    assert deaths.describe(run.path, -9, 4).kind == "signal"
    by_memory = deaths.describe(run.path, -9, 3)
    assert by_memory.kind == "memory" and "out-of-memory killer" in by_memory.cause


def test_a_missing_folder_to_run_in_is_named(root):
    (run,) = launch([spec("step", cwd=str(root / "gone"))], root)
    status = ended(run)
    assert (status.state, status.cause_kind) == ("failed", "start")
    assert "gone" in status.cause


def test_a_damaged_spec_spoils_only_its_own_run(root):
    first = RunFolder.create(root, spec("step"))
    (first.path / "spec.json").write_text("{")
    second = RunFolder.create(root, spec("step"))
    from profilers.runs.supervisor import Supervisor

    supervisor = Supervisor(root, [first.id, "not-there", second.id])
    assert [job.run for job in supervisor.queue] == [second]
    supervisor.close()


def test_worker_environment_shows_one_device():
    make = jobs.worker_environment
    assert make({"A": "1"}, "cpu", "")["CUDA_VISIBLE_DEVICES"] == ""
    assert make({}, "cuda:1", "GPU-9")["CUDA_VISIBLE_DEVICES"] == "GPU-9"
    assert make({"CUDA_VISIBLE_DEVICES": "4,5"}, "cuda:1", "")["CUDA_VISIBLE_DEVICES"] == "5"
    assert make({}, "cuda:1", "")["CUDA_VISIBLE_DEVICES"] == "1"
    assert make({}, "cuda:1", "")["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
