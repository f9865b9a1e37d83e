"""A disk that fills up and a folder that turns read-only, on real file systems (mounted here, so as root only)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from profilers.runs.folder import RunFolder, RunsError, list_runs
from profilers.runs.launch import launch
from profilers.runs.leases import holders
from profilers.runs.status import alive
from tests.runs.support import ended, spec, until


def mount(*words: str) -> bool:
    command = shutil.which("mount")
    return command is not None and subprocess.run([command, *words], capture_output=True, check=False).returncode == 0


def unmount(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A runs folder on a disk of 64 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)):
        pytest.skip("this user may not mount a file system")
    yield folder / "runs"
    for run in list_runs(folder / "runs"):
        status = run.status()
        for pid, start in ((status.worker_pid, status.worker_start), (status.supervisor_pid, status.supervisor_start)):
            if alive(pid, start):
                os.kill(pid, 9)
    unmount(folder)


def going(root: Path) -> RunFolder:
    (run,) = launch([spec("slow", windows=5000)], root)
    until(lambda: run.status().windows_done >= 1, "the first window")
    return run


def test_a_full_disk_ends_the_run_by_its_name_and_keeps_its_windows(small_disk):
    run = going(small_disk)
    filler = small_disk.parent / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    status = ended(run)
    assert (status.state, status.cause_kind) == ("failed", "disk"), status
    assert "disk is full" in status.cause
    kept = run.window_ids()
    assert kept and len(run.recording().kernels)
    assert not list((run.path / "raw").glob("*")), "half-written traces take no room"
    until(lambda: not psutil.pid_exists(status.worker_pid), "the worker to be waited for")
    until(lambda: not psutil.pid_exists(status.supervisor_pid), "the supervisor to leave")
    assert not holders(small_disk)
    # With room again the next run starts, and the one that failed can be removed.
    filler.unlink()
    (again,) = launch([spec("step")], small_disk)
    assert ended(again).state == "finished"
    run.delete()


def test_a_disk_that_is_full_from_the_start_is_named(small_disk):
    small_disk.mkdir()
    with (small_disk.parent / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    with pytest.raises(RunsError, match="No space left on device"):
        launch([spec("step")], small_disk)


def test_a_runs_folder_that_turns_read_only(small_disk):
    run = going(small_disk)
    status = run.status()
    assert mount("--bind", str(small_disk), str(small_disk))
    try:
        assert mount("-o", "remount,bind,ro", str(small_disk))
        until(lambda: not alive(status.worker_pid, status.worker_start), "the worker to end")
        until(lambda: not alive(status.supervisor_pid, status.supervisor_start), "the supervisor to end")
        # Nothing could be written of how it ended; it is seen all the same.
        seen = run.effective_status()
        assert seen.state == "died" and "supervisor is gone" in seen.cause
        assert len(run.recording().kernels)
        with pytest.raises(RunsError, match="Read-only file system"):
            launch([spec("step")], small_disk)
    finally:
        unmount(small_disk)
    until(lambda: not holders(small_disk), "the device to be let go of")
    (again,) = launch([spec("step")], small_disk)
    assert ended(again).state == "finished"
