"""A script started as several ranks: one run, one timeline a rank, and the rank that failed is named."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from profilers.analysis.options import Options
from profilers.analysis.summary import summary
from profilers.collectors import files, protocol, ranks, whereabouts
from profilers.collectors.protocol import Progress
from profilers.collectors.rankpause import CommonRest, progress_of
from profilers.collectors.session import GOES_ON
from profilers.runs.folder import RunFolder
from profilers.runs.launch import launch, pause, resume, stop
from profilers.runs.spec import Spec
from profilers.runs.status import process_start
from tests.runs.support import WORKLOADS, ended, until

sys.path.insert(0, str(WORKLOADS))
import scripts


@pytest.fixture(autouse=True)
def _loopback() -> None:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError:
        pytest.skip("the loopback interface cannot be used here")


def started(root: Path, home: Path, *argv: str, **changes) -> RunFolder:
    home.mkdir()
    (home / "ddp.py").write_text(scripts.DISTRIBUTED)
    given = {
        "name": "ddp",
        "workload": str(home / "ddp.py"),
        "target": "script",
        "mode": "script",
        "dtype": "",
        "batch": 0,
    }
    spec = Spec(**given, argv=argv, cwd=str(home), warmup=1, timed_steps=1, windows=2, ranks=2, **changes)
    (run,) = launch([spec], root)
    return run


def test_one_run_with_a_timeline_a_rank(root, tmp_path):
    run = started(root, tmp_path / "home")
    status = ended(run)
    assert (status.state, status.exit_code, status.windows_done) == ("finished", 0, 2), run.log_tail(30)
    assert "2 ranks; step times are of rank 0" in status.notes
    log = run.log_tail(30)
    assert {line for line in log if "ended" in line} == {"[rank 0] rank 0 of 2 ended", "[rank 1] rank 1 of 2 ended"}
    recording = run.recording()
    frame = summary(recording, Options()).set_index("device")
    assert list(frame.index) == ["rank0/cpu", "rank1/cpu"]
    assert (frame["steps"] == 2).all()
    assert (frame["communication_pct"] > 0).all(), "gradients are reduced over the ranks"
    assert not list((run.path / "raw").iterdir())


def test_the_rank_that_failed_is_named_and_the_others_end(root, tmp_path):
    run = started(root, tmp_path / "home", "raise")
    status = ended(run)
    assert (status.state, status.exit_code) == ("failed", 1)
    assert status.cause.startswith("rank 1: RuntimeError: rank one is broken"), status.cause
    assert status.windows_done == len(run.window_ids()) == 2


def test_a_rank_that_was_killed_is_named(root, tmp_path):
    run = started(root, tmp_path / "home", "kill")
    status = ended(run)
    assert status.cause.startswith("rank 1 was killed by SIGKILL"), status.cause
    assert status.exit_code == 128 + 9
    assert status.windows_done == 2


def test_the_first_that_failed_is_named_though_its_end_comes_later(root, tmp_path):
    run = started(root, tmp_path / "home", "linger")
    status = ended(run)
    assert status.cause.startswith("rank 1: RuntimeError: rank one was first"), (status.cause, run.log_tail(30))
    assert status.exit_code == 1
    log = "\n".join(run.log_tail(60))
    assert "[rank 1] RuntimeError: rank one was first" in log
    assert "[rank 0] Fatal Python error: Aborted" in log


def test_a_rank_that_waits_in_vain_names_the_other(root, tmp_path):
    run = started(root, tmp_path / "home", "early")
    status = ended(run)
    assert status.state == "failed"
    assert status.cause.startswith("rank 0 (meanwhile rank 1 ended): RuntimeError: "), status.cause


def test_ranks_that_hang_say_where_they_are(root, tmp_path):
    run = started(root, tmp_path / "home", "hang", extra={"still_s": 1.0, "beat_s": 0.1})
    until(lambda: run.status().phase.startswith("no step for"), f"the hang to be noticed: {run.status()}")
    phase = run.status().phase
    waits, sleeps = (
        number
        for number, line in enumerate(scripts.DISTRIBUTED.splitlines(), 1)
        if "backward()" in line or "sleep(600)" in line
    )
    assert phase == f"no step for 1 s: rank 0 at ddp.py:{waits} (in backward), rank 1 at ddp.py:{sleeps}"
    assert "[rank 1] rank one waits for" in run.log_tail(30), "its last words, though the line was not ended"
    status = stop(run, wait_s=30)
    assert status.state == "stopped"
    assert phase in status.notes
    assert not any(alive(pid) for pid in pids(run)), "nothing is left behind"


def test_paused_ranks_rest_after_the_same_step(root, tmp_path):
    run = started(root, tmp_path / "home", "long", extra={"beat_s": 0.2})
    places = [run.path / ranks.RANKS / str(rank) for rank in range(2)]
    until(lambda: run.status().phase == GOES_ON, "all windows")
    until(lambda: min(whereabouts.told(place).steps for place in places) > 200, "steps to be counted")
    pause(run)
    until(lambda: all((progress_of(place) or Progress()).phase == "paused" for place in places), "both ranks to rest")
    time.sleep(1.0)  # several beats: what they have told by then is where they rest
    until(lambda: len({whereabouts.told(place).steps for place in places}) == 1, "their last word")
    (rests,) = {whereabouts.told(place).steps for place in places}
    # One that was not told in time makes both rest a little later, and together.
    for place in places:
        (place / protocol.PAUSE).write_text(str(rests + 50))
    until(lambda: all(whereabouts.told(place).steps == rests + 50 for place in places), "a later step")
    resume(run)
    until(lambda: run.status().phase == GOES_ON, "them to go on")
    assert stop(run, wait_s=30).state == "stopped"


def test_a_step_that_all_ranks_have_still_to_take(tmp_path):
    rest = CommonRest(tmp_path, [], 5.0)
    assert rest.step_ahead() == 0, "not counted yet"
    now = time.monotonic()
    rest.look(50, now - 3)
    assert rest.step_ahead() is None, "one look gives no pace"
    rest.look(50, now - 2)
    rest.look(90, now - 1)
    assert rest.rate == 20.0
    assert rest.step_ahead() >= 90 + 20 * 3 + 2
    rest.paused = True
    rest.look(95, now)
    rest.paused = False
    rest.look(96, now + 100)
    assert rest.rate == 20.0, "a pause is no pace"


def test_ranks_of_which_only_some_rest_are_told_a_later_step(tmp_path):
    group = gathered(tmp_path, (), ())
    phases = ("paused", "window 1 of 2")
    for place, phase in zip(group.folders, phases, strict=True):
        (place / protocol.PROGRESS).write_bytes(ranks._ENCODER.encode(Progress(state="profiling", phase=phase)))
        (place / protocol.PAUSE).write_text("30")
    rest = CommonRest(tmp_path, group.folders, 5.0)
    rest.paused, rest.rate, rest._told_at = True, 4.0, 100.0

    def told():
        return [int((place / protocol.PAUSE).read_text()) for place in group.folders]

    rest.look(31, 101.0)
    assert told() == [30, 30], "its last word may be old"
    rest.look(31, 110.0)
    assert told() == [31 + 16 + 2] * 2
    rest.look(49, 120.0)
    assert told() == [49 + 32 + 2] * 2, "further ahead each time"
    (group.folders[1] / protocol.PROGRESS).write_bytes(ranks._ENCODER.encode(Progress(phase="paused")))
    rest.look(83, 130.0)
    assert told() == [83, 83]


def pids(run: RunFolder) -> list[int]:
    """Processes whose command line names the run's folder."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if os.fsencode(run.path) in (files.read_bytes(path) or b"")
    ]


def alive(pid: int) -> bool:
    return process_start(pid) is not None


def test_what_a_rank_is_told(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    told = ranks.environment(1, 4, 29500)
    assert (told["RANK"], told["LOCAL_RANK"], told["WORLD_SIZE"]) == ("1", "1", "4")
    assert (told["MASTER_ADDR"], told["MASTER_PORT"], told["OMP_NUM_THREADS"]) == ("127.0.0.1", "29500", "1")
    # By these libraries tell that torchrun is at work; the store is a rank's own, as without an agent.
    assert told["TORCHELASTIC_RUN_ID"] == "none" and "TORCHELASTIC_USE_AGENT_STORE" not in told
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in ranks.environment(0, 4, 29500)


def test_of_several_that_failed_the_first_is_told(tmp_path):
    group = gathered(tmp_path, (), (), ())
    group.processes = [Left(-6), Left(1), Left(1)]
    group._ended_at = {0: 20.0, 1: 30.0, 2: 29.0}
    for rank, second in ((1, 10), (2, 11)):
        path = group.folders[rank] / protocol.FAILURE
        path.write_text("{}")
        os.utime(path, (second, second))
    assert min(range(3), key=group._failed_at) == 1, "the abort followed from it"
    group.processes[0] = Left(-9)
    assert min(range(3), key=group._failed_at) == 0, "nobody is killed because another failed"


class Left:
    def __init__(self, code):
        self.code = code

    def poll(self):
        return self.code


class Gone:
    """A process that has ended."""

    returncode = 0

    def poll(self):
        return 0


class Alive:
    def poll(self):
        return None


def gathered(tmp_path, *windows: tuple[int, ...], processes=None) -> ranks.Ranks:
    """Ranks that have recorded these windows."""
    (tmp_path / "raw").mkdir()
    group = ranks.Ranks(tmp_path, Spec(name="x", workload="x", ranks=len(windows)))
    for place, numbers in zip(group.folders, windows, strict=True):
        (place / "raw").mkdir(parents=True)
        for number in numbers:
            (place / "raw" / protocol.raw_name(number)).write_text("{}")
        (place / protocol.PROGRESS).write_bytes(ranks._ENCODER.encode(Progress(state="profiling")))
    group.processes = processes or [Alive() for _ in windows]
    return group


def test_a_window_is_handed_on_when_all_have_it(tmp_path):
    group = gathered(tmp_path, (1, 2), (1,))
    assert group._gather()
    first = tmp_path / "raw" / "0001.json"
    assert sorted(path.name for path in first.iterdir()) == ["rank0.json", "rank1.json"]
    assert not group._gather(), "the last one has not been read"
    assert (group.folders[0] / "raw" / "0001.json").exists(), "until then the ranks wait for it"
    for path in first.iterdir():
        path.unlink()
    first.rmdir()
    assert not group._gather(), "one rank still lacks the second"
    assert [number for number, _ in protocol.raw_windows(group.folders[0])] == [2]


def test_a_window_that_a_rank_will_not_record_holds_nobody_up(tmp_path):
    group = gathered(tmp_path, (1,), (), processes=[Alive(), Gone()])
    assert not group._gather()
    assert not group._gather()
    assert not protocol.raw_windows(group.folders[0])
    group._tell()
    told = progress_of(tmp_path)
    assert told.windows_done == 0
    assert "1 windows were left out: not every rank recorded them" in told.notes


def test_devices_of_all_ranks_are_locked_together(tmp_path):
    from profilers.runs.leases import Lease, Leases

    first, both = Lease(tmp_path, "GPU-1"), Leases(tmp_path, ["GPU-0", "GPU-1"])
    assert first.acquire()
    first.say("another")
    assert not both.acquire()
    assert "another" in both.holder()
    assert Lease(tmp_path, "GPU-0").acquire(), "what could be had was let go of"
    first.release()
    again = Leases(tmp_path, ["GPU-1", "GPU-2"])
    assert again.acquire()
    assert not Lease(tmp_path, "GPU-2").acquire()
    again.release()


def test_every_rank_sees_all_gpus_and_keeps_their_names(tmp_path):
    import pandas as pd

    from profilers.runs.jobs import Job, worker_environment
    from profilers.runs.reading import on_device
    from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Recording

    given = {"name": "x", "workload": "x.py", "target": "script", "ranks": 2}
    spec = Spec(**given, device="cuda:1", device_uuid="GPU-1", more_devices=(("cuda:3", "GPU-3"),))
    job = Job(RunFolder.create(tmp_path, spec))
    assert job.keys == ["GPU-1", "GPU-3"]
    assert worker_environment({}, "cuda:1", "GPU-1,GPU-3")["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-3"
    kernels = KERNELS.conform(pd.DataFrame({"name": ["a", "b"], "device": ["cuda:0", "cuda:1"]}))
    devices = (Device("cuda:0", "one"), Device("cuda:1", "two"))
    recording = Recording(OPERATORS.empty(), kernels, STEPS.empty(), RUNTIME.empty(), devices)
    named = on_device(recording, "cuda:1", "cuda:3")
    assert named.kernels["device"].tolist() == ["cuda:1", "cuda:3"]
    assert [(device.id, device.name) for device in named.devices] == [("cuda:1", "one"), ("cuda:3", "two")]
    assert on_device(recording, "cuda:0", "cuda:1") is recording
    assert on_device(recording, "cpu") is recording
