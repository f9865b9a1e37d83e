"""The run folder: what is written is read back, and nothing half-written breaks a reader."""

from __future__ import annotations

import os
import time

import numpy as np
import pandas as pd
import pytest

from profilers.collectors.telemetry.base import Sample
from profilers.runs import folder as folders
from profilers.runs import windows
from profilers.runs.folder import RunFolder, RunsError, SampleTail, find_run, list_runs
from profilers.runs.spec import Spec
from profilers.runs.status import Status, alive, boot_id, own_identity, process_start
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Note, Origin, Recording


def a_recording(base_ns: int = 1000, step: int = 3, name: str = "aten::mm") -> Recording:
    operators = OPERATORS.conform(
        pd.DataFrame(
            {
                "op_id": [0, 1],
                "name": [name, "aten::empty"],
                "start_ns": [10, 12],
                "dur_ns": [20, 3],
                "self_ns": [17, 3],
                "thread_id": [7, 7],
                "parent_id": [-1, 0],
                "depth": [0, 1],
                "step": [step, step],
                "flops": [8.0, np.nan],
            }
        )
    )
    kernels = KERNELS.conform(
        pd.DataFrame(
            {
                "kind": ["kernel", "kernel"],
                "name": ["k1", "k2"],
                "device": ["cuda:0", "cuda:0"],
                "start_ns": [15, 40],
                "dur_ns": [20, 5],
                "correlation": [5, 6],
                "op_id": [0, -1],
                "launch_ns": [11, -1],
                "step": [step, -1],
            }
        )
    )
    steps = STEPS.conform(pd.DataFrame({"step": [step], "start_ns": [9], "dur_ns": [30], "thread_id": [7]}))
    runtime = RUNTIME.conform(pd.DataFrame({"name": ["cudaLaunchKernel"], "start_ns": [11], "correlation": [5]}))
    return Recording(
        operators,
        kernels,
        steps,
        runtime,
        (Device("cuda:0", "H100", sm_count=132),),
        Origin("kineto", "x.json", base_ns=base_ns, extra={"schema": "1"}),
        (Note("dropped", "events without a name", 2),),
    )


def test_create_open_and_list(tmp_path):
    runs = [RunFolder.create(tmp_path, Spec(name=f"m{i}", workload="gpt2")) for i in range(5)]
    assert list_runs(tmp_path) == runs[::-1]
    again = RunFolder.open(runs[0].path)
    assert again.spec() == Spec(name="m0", workload="gpt2")
    assert again.status().state == "queued"
    assert again.status().windows_total == 20
    assert again.events()[0]["kind"] == "created"
    assert not [entry for entry in os.listdir(tmp_path) if entry.startswith(".")]


def test_window_round_trip(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    written = a_recording()
    run.write_window(1, written)
    read = run.read_window(1)
    for schema in (OPERATORS, KERNELS, STEPS, RUNTIME):
        frame = getattr(read, schema.name)
        assert schema.problems(frame) == []
        pd.testing.assert_frame_equal(frame, getattr(written, schema.name), check_categorical=False)
    assert (read.devices, read.origin, read.notes) == (written.devices, written.origin, written.notes)
    run.write_window(1, a_recording(name="aten::other"))
    assert run.window_ids() == [1]
    assert run.read_window(1).operators["name"][0] == "aten::other"


def test_joined_windows_lie_end_to_end_and_keep_ids_apart(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    run.write_window(1, a_recording(base_ns=1000, step=3))
    run.write_window(2, a_recording(base_ns=6000, step=3))
    run.write_window(3, a_recording(base_ns=9000, step=8))
    joined = run.recording()
    assert joined.operators["op_id"].tolist() == [0, 1, 2, 3, 4, 5]
    assert joined.operators["parent_id"].tolist() == [-1, 0, -1, 2, -1, 4]
    assert joined.operators["start_ns"].tolist() == [10, 12, 46, 48, 82, 84]
    assert joined.kernels["op_id"].tolist() == [0, -1, 2, -1, 4, -1]
    assert joined.kernels["launch_ns"].tolist() == [11, -1, 47, -1, 83, -1]
    assert joined.kernels["correlation"].tolist() == [5, 6, 7, 8, 9, 10]
    assert joined.runtime["correlation"].tolist() == [5, 7, 9]
    # The second window's step starts anew and moves up; the third's already lies above and stays.
    assert joined.steps["step"].tolist() == [3, 4, 8]
    assert joined.kernels["step"].tolist() == [3, -1, 4, -1, 8, -1]
    assert joined.origin.extra["windows_ns"] == "[[9,45,1009],[45,81,6009],[81,117,9009]]"
    assert joined.notes == (Note("dropped", "events without a name", 6),)
    grown = windows.join([windows.join([run.read_window(1), run.read_window(2)]), run.read_window(3)])
    for schema in (OPERATORS, KERNELS, STEPS, RUNTIME):
        assert schema.problems(getattr(joined, schema.name)) == []
        pd.testing.assert_frame_equal(getattr(grown, schema.name), getattr(joined, schema.name))
    assert grown.origin == joined.origin
    assert len(run.recording([2]).operators) == 2


def test_time_between_windows_is_not_idle():
    from profilers.analysis.registry import TABLES

    parts = [a_recording(base_ns=0), a_recording(base_ns=10**9), a_recording().replace(origin=Origin("kineto"))]
    joined = windows.join(parts)
    assert windows.extents(joined) == [[9, 45, 9], [45, 81, 10**9 + 9], [81, 117, -1]]
    (row,) = TABLES["summary"].compute(joined).to_dict("records")
    assert row["busy_us"] == pytest.approx(0.075)
    # Each window: 20 ns, a pause of 5, 5 ns; between two windows only what lay before the first kernel.
    assert row["span_us"] == pytest.approx(0.102)


def test_a_run_without_windows_is_empty(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    assert len(run.recording().kernels) == 0
    with pytest.raises(RunsError, match="not there"):
        run.read_window(1)


def test_half_written_files_break_no_reader(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    run.write_window(1, a_recording())
    run.write_window(2, a_recording())
    (run.path / "windows" / ".0003.99.tmp").mkdir()
    parquet = run.path / "windows" / "0002" / "kernels.parquet"
    parquet.write_bytes(parquet.read_bytes()[:50])
    (run.path / "windows" / "0004").mkdir()
    assert run.window_ids() == [1, 2, 4]
    with pytest.raises(RunsError, match="damaged"):
        run.read_window(2)
    joined = run.recording()
    assert len(joined.operators) == 2
    assert [note.code for note in joined.notes].count("window_damaged") == 2
    with pytest.raises(RunsError):
        run.recording([2])

    for name in (folders.STATUS, folders.SUMMARY, folders.MACHINE):
        (run.path / name).write_bytes(b'{"state": "prof')
    assert run.status().state == "died"
    assert (run.summary(), run.machine()) == ({}, {})

    run.append_event("one")
    with open(run.path / folders.EVENTS, "ab") as file:
        file.write(b'{"t": 1, "ki')
    assert [event["kind"] for event in run.events()] == ["created", "one"]
    run.append_event("two")
    assert [event["kind"] for event in run.events()] == ["created", "one", "two"]

    (run.path / "spec.json").write_bytes(b"{")
    with pytest.raises(RunsError, match=r"spec\.json"):
        run.spec()
    assert list_runs(tmp_path) == [run]


def test_samples_are_tailed(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    tail = SampleTail(run)
    assert len(tail.read()) == 0
    run.append_samples([Sample(1, "cpu", "util_pct", 50.0, "%", "psutil"), Sample(1, "cpu", "x", None, "%", "psutil")])
    assert tail.read()["value"].tolist() == [50.0]
    with open(run.path / folders.SAMPLES, "ab") as file:
        file.write(b'[2,"cpu","util_p')
    assert len(tail.read()) == 0
    with open(run.path / folders.SAMPLES, "ab") as file:
        file.write(b'ct",60.0,"%","psutil"]\n')
    assert tail.read()["value"].tolist() == [60.0]
    assert run.samples()["t_ns"].tolist() == [1, 2]


def test_log_tail(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    assert run.log_tail() == []
    (run.path / "worker.log").write_bytes(b"one\ntwo\r\nthree \xff\n\n")
    assert run.log_tail(2) == ["two", "three \ufffd"]


def test_process_identity():
    pid, start, _ = own_identity()
    assert alive(pid, start)
    assert not alive(pid, (start or 0) + 1)
    assert process_start(2**22 + 5) is None
    child = os.fork()
    if child == 0:
        os._exit(0)
    deadline = time.time() + 10
    while process_start(child) is not None and time.time() < deadline:
        time.sleep(0.01)
    assert process_start(child) is None  # a zombie counts as gone
    os.waitpid(child, 0)


def live_status(**changes) -> Status:
    pid, start, boot = own_identity()
    now = time.time()
    given = {"supervisor_pid": pid, "supervisor_start": start, "boot_id": boot, "created": now, "updated": now}
    return Status(**{"state": "profiling", "phase": "window 3 of 20", **given, **changes})


def test_liveness(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    run.write_status(live_status())
    assert run.effective_status().state == "profiling"
    with pytest.raises(RunsError, match="stop it first"):
        run.delete()
    run.write_status(live_status(supervisor_start=-1.0))
    (run.path / "worker.log").write_text("loading\nRuntimeError: boom\n")
    dead = run.effective_status()
    assert dead.state == "died"
    assert "window 3 of 20" in dead.cause and "RuntimeError: boom" in dead.cause
    assert run.status().state == "profiling"
    # Another boot, or another machine on a shared disk: the heartbeat decides.
    run.write_status(live_status(boot_id="elsewhere pid:[1]", supervisor_start=-1.0))
    assert run.effective_status().state == "profiling"
    status = live_status(boot_id="elsewhere pid:[1]", supervisor_start=-1.0)
    run.write_status(status)
    status.updated = time.time() - 1000
    folders.files.write_atomic(run.path / folders.STATUS, folders._ENCODER.encode(status))
    assert "rebooted" in run.effective_status().cause
    status.boot_id = boot_id().split(" ")[0] + " pid:[1]"
    folders.files.write_atomic(run.path / folders.STATUS, folders._ENCODER.encode(status))
    assert "container" in run.effective_status().cause
    run.delete()
    assert list_runs(tmp_path) == []


def test_a_queued_run_without_a_supervisor_dies(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    assert run.effective_status().state == "queued"
    status = Status(created=time.time() - 1000)
    run.write_status(status)
    assert "never started" in run.effective_status().cause


def test_find_run(tmp_path):
    with pytest.raises(RunsError, match="there are no runs"):
        find_run(tmp_path, "last")
    one = RunFolder.create(tmp_path, Spec(name="gpt2", workload="gpt2"))
    two = RunFolder.create(tmp_path, Spec(name="bert-base", workload="bert-base"))
    assert find_run(tmp_path, "last") == two
    assert find_run(tmp_path, one.id) == one
    assert find_run(tmp_path, one.id[-4:]) == one
    assert find_run(tmp_path, one.id[:-2]) == one
    assert find_run(tmp_path, "bert-base") == two
    with pytest.raises(RunsError, match="bert-base"):
        find_run(tmp_path, "bert-bas")
    with pytest.raises(RunsError, match="names 2 runs"):
        find_run(tmp_path, one.id[:4])
    RunFolder.create(tmp_path, Spec(name="gpt2", workload="gpt2"))
    with pytest.raises(RunsError, match="names 2 runs"):
        find_run(tmp_path, "gpt2")


def test_odd_names_make_plain_folders(tmp_path):
    run = RunFolder.create(tmp_path, Spec(name="../../Meta Llama/7B\x1b[31m" + "x" * 200, workload="w"))
    assert run.path.parent == tmp_path
    assert "meta-llama-7b" in run.id and len(run.id) < 60
    assert RunFolder.create(tmp_path, Spec(name="///", workload="w")).id.split("-")[3] == "run"


def test_unwritable_root(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunsError, match="cannot write to the runs folder"):
        RunFolder.create(blocked / "runs", Spec(name="m", workload="gpt2"))
    assert list_runs(tmp_path / "nowhere") == []


def test_full_disk_keeps_the_last_word(tmp_path, monkeypatch):
    """A status is overwritten in its place when nothing new can be written beside it."""
    import errno
    from pathlib import Path

    run = RunFolder.create(tmp_path, Spec(name="m", workload="gpt2"))
    real = Path.write_bytes

    def full(self, data):
        if self.name.endswith(".tmp"):
            real(self, data[:3])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    run.write_status(Status(state="failed", cause="the disk is full"))
    assert run.status().cause == "the disk is full"
    assert not list(run.path.glob(".*.tmp"))
