"""Queues: several devices side by side, a new order, pausing, and leases that hold between launches and users."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from profilers.collectors import protocol
from profilers.collectors.telemetry.devices import DeviceRow
from profilers.runs.folder import RunFolder, RunsError
from profilers.runs.jobs import order_file
from profilers.runs.launch import first_in_queue, launch, pause, queue, reorder, resume, stop
from profilers.runs.leases import Lease, holders, lease_key, with_holders
from profilers.runs.precedence import Precedence, first_file, keys_of, put_first
from profilers.runs.spec import Spec
from profilers.runs.status import Status
from tests.runs.support import a_trace, ended, spec, until


def replays(path, devices, **changes) -> list[Spec]:
    """Runs that take about a second each, on devices that need not exist."""
    given = {"name": "t", "workload": str(path), "target": "replay", "speed": 0.01, **changes}
    return [Spec(device=device, device_uuid=f"GPU-{device[-1]}", **given) for device in devices]


def test_a_launch_over_several_devices_runs_side_by_side(tmp_path, root):
    path = a_trace(tmp_path / "t.json", steps=6, step_us=4000)
    runs = launch(replays(path, ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]), root)
    until(lambda: all(run.status().started for run in runs[:3]), "three devices at work")
    assert runs[3].status().state == "queued"
    assert [ended(run).state for run in runs] == ["finished"] * 4
    starts = [run.status().started for run in runs]
    ends = [run.status().ended for run in runs]
    assert max(starts[:3]) < min(ends[:3])
    assert starts[3] >= ends[0]


def test_one_that_fails_does_not_stop_the_rest(tmp_path, root):
    path = a_trace(tmp_path / "t.json", steps=2)
    bad = Spec(name="bad", workload=str(tmp_path / "no-such-file"), target="replay")
    good = Spec(name="good", workload=str(path), target="replay", speed=1e6)
    runs = launch([bad, good], root)
    assert [ended(run).state for run in runs] == ["failed", "finished"]


def test_a_queue_takes_a_new_order(root):
    runs = launch([spec("slow", windows=500), *(spec("step", name=name) for name in "abc")], root)
    first, a, b, c = runs
    until(lambda: first.status().state == "profiling", "the first run")
    name = a.spec().launch
    assert queue(root, name) == [a, b, c]
    first_in_queue(c)
    assert queue(root, name) == [c, a, b]
    until(lambda: c.status().phase == "waiting for cpu: 1 before it", "the new order")
    until(lambda: b.status().phase == "waiting for cpu: 3 before it", "the new order")
    reorder(root, name, [b])
    until(lambda: b.status().phase == "waiting for cpu: 1 before it", "the next order")
    reorder(root, name, [c, a, b])
    with pytest.raises(RunsError, match="does not wait in a queue"):
        first_in_queue(first)
    stop(first)
    assert {ended(run).state for run in (a, b, c)} == {"finished"}
    assert c.status().started < a.status().started < b.status().started
    until(lambda: not order_file(root, name).exists(), "the order to be cleared away")
    with pytest.raises(RunsError, match="their launch has ended"):
        reorder(root, name, [a])


def test_a_run_of_another_launch_goes_first(root):
    one = launch([spec("slow", windows=500), spec("step", name="b"), spec("step", name="c")], root)
    first, b, c = one
    until(lambda: first.status().state == "profiling", "the first run")
    (other,) = launch([spec("slow", name="other", windows=2)], root)
    until(lambda: "has it" in other.status().phase, "the other launch to wait for the lease")
    (third,) = launch([spec("step", name="third")], root)
    assert first_in_queue(third) == "is next on cpu"
    assert first_in_queue(other) == "is next on cpu"
    assert msgspec.json.decode(first_file(root).read_bytes()) == [other.id, third.id]
    assert first.status().live, "what goes on is left alone"
    stop(first)
    until(
        lambda: b.status().phase == f"waiting for cpu: run {other.id} was put first" or not b.status().live,
        "the launch to give way",
    )
    assert {ended(run).state for run in (b, c, other, third)} == {"finished"}
    assert other.status().started < third.status().started < min(run.status().started for run in (b, c))
    # The list of what has begun says nothing more.
    (last,) = launch([spec("step", name="last")], root)
    assert ended(last).state == "finished"


def test_who_gives_way_to_whom(root):
    runs = {name: RunFolder.create(root, spec("step", name=name)) for name in "abc"}
    a, b, c = runs.values()
    precedence = Precedence(root)
    keys = keys_of(a)
    assert keys == [lease_key("cpu")]
    assert precedence.before(keys, set()) is None, "nothing was put first"
    put_first(a)
    put_first(b)
    assert precedence.before(keys, set()) == b, "the one put first last"
    assert precedence.before(keys, {c.id}) == b
    assert precedence.before(keys, {a.id, b.id}) is None, "our own launch has its own order"
    assert precedence.before(["GPU-1"], set()) is None, "another device"
    pause(b)
    assert precedence.before(keys, set()) == a, "a paused one lets others go first"
    assert precedence.before(keys, {b.id}) == a, "also one of our own"
    resume(b)
    assert precedence.before(keys, {a.id}) == b
    for run in (a, b):
        run.write_status(Status(state="finished"))
    assert precedence.before(keys, set()) is None
    put_first(c)
    assert msgspec.json.decode(first_file(root).read_bytes()) == [c.id]
    first_file(root).write_text('["../../etc", "gone"]')
    assert precedence.before(keys, set()) is None
    first_file(root).write_text("{half")
    assert Precedence(root).before(keys, set()) is None


def test_another_users_run_does_not_give_way(root, monkeypatch):
    from profilers.runs import launch as module

    first, waiting = launch([spec("slow", windows=500), spec("step", name="b")], root)
    until(lambda: first.status().state == "profiling", "the first run")
    monkeypatch.setattr(module, "user_name", lambda: "somebody-else")
    said = first_in_queue(waiting)
    assert said.startswith("is next of yours on cpu; others' runs do not give way: run ")
    assert first.id in said
    stop(first)
    assert ended(waiting).state == "finished"


def test_a_paused_run_rests_between_steps_and_goes_on(root):
    (run,) = launch([spec("slow", windows=6)], root)
    until(lambda: run.status().windows_done >= 1, "a window")
    pause(run)
    until(lambda: run.status().phase == "paused", "the pause")
    seen = run.status()
    pid, cpu = seen.worker_pid, _cpu(seen.worker_pid)
    time.sleep(0.5)
    now = run.status()
    assert now.windows_recorded == seen.windows_recorded and now.state == "profiling" and now.eta_s is None
    assert _cpu(pid) - cpu < 0.3
    assert _state(pid) != "T"  # it rests, it is not stopped: drivers' threads go on
    resume(run)
    status = ended(run)
    assert (status.state, status.windows_done) == ("finished", 6)
    assert any("it was paused" in note for note in status.notes)
    # Windows are whole: the pause lies between them.
    for number in run.window_ids():
        assert run.read_window(number).steps["dur_ns"].max() < 0.45e9
    with pytest.raises(RunsError, match="already ended"):
        pause(run)


def test_a_paused_run_can_be_stopped(root):
    (run,) = launch([spec("slow", windows=500)], root)
    until(lambda: run.status().state == "profiling", "the first window")
    pause(run)
    until(lambda: run.status().phase == "paused", "the pause")
    status = stop(run, wait_s=20)
    assert status.state == "stopped" and "by request" in status.cause


def test_a_paused_one_in_the_queue_lets_others_go_first(root):
    first, held, last = launch([spec("slow", windows=500), spec("step", name="held"), spec("step", name="last")], root)
    until(lambda: first.status().state == "profiling", "the first run")
    pause(held)
    until(lambda: held.status().phase == "paused", "the pause")
    until(lambda: last.status().phase == "waiting for cpu: 1 before it", "the queue to close up")
    stop(first)
    assert ended(last).state == "finished"
    assert held.status().state == "queued"
    # Nothing that could run is left here: the device is free for others.
    until(lambda: not holders(root), "the lease to be let go of")
    (other,) = launch([spec("step", name="other")], root)
    assert ended(other).state == "finished"
    resume(held)
    assert ended(held).state == "finished"


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# --- leases -----------------------------------------------------------------------------------------------------------


HOLD = """
import sys, time
from pathlib import Path
from profilers.runs.leases import Lease
lease = Lease(Path(sys.argv[1]), sys.argv[2])
print(lease.acquire(), flush=True)
lease.say("some-run")
print("said", flush=True)
time.sleep(60)
"""


def test_who_holds_a_lease_is_known_and_death_lets_go(root):
    root.mkdir()
    key = lease_key("cuda:0", "GPU-1")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(root), key], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "True\n"
        holder.stdout.readline()
        ours = Lease(root, key)
        assert not ours.acquire() and ours.taken
        (words,) = holders(root).values()
        assert words.startswith("run some-run of ") and f"pid {holder.pid}" in words
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert holders(root) == {} and not ours.taken
    assert ours.acquire() and ours.taken
    ours.release()


def test_looking_at_a_lease_does_not_take_it(root):
    lease = Lease(root, "k")
    assert not lease.taken
    assert lease.acquire()
    lease.release()
    assert not Lease(root, "k").taken
    assert Lease(root, "k").acquire()


def test_a_shared_runs_folder_has_locks_for_everybody(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    lease = Lease(shared, "k")
    assert lease.acquire()
    assert stat.S_IMODE((shared / ".leases").stat().st_mode) == 0o1777
    lease.release()
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    lease = Lease(own, "k")
    assert lease.acquire()
    assert not stat.S_IMODE((own / ".leases").stat().st_mode) & 0o002
    lease.release()


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to be two users")
def test_two_users_of_one_folder_exclude_each_other(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != folder.parent and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o055)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    ours = Lease(shared, "k")
    assert ours.acquire()
    ours.say("ours")
    code = (
        "import os, sys; from pathlib import Path; from profilers.runs.leases import Lease, holders; "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); root = Path(sys.argv[1]); k = Lease(root, 'k'); "
        "print(k.acquire(), Lease(root, 'other').acquire()); k.say('theirs'); print(holders(root))"
    )

    def other() -> str:
        done = subprocess.run([sys.executable, "-c", code, str(shared)], capture_output=True, text=True, check=True)
        return done.stdout

    said = other()
    assert said.startswith("False True") and "run ours of" in said
    ours.release()
    said = other()
    assert said.startswith("True True") and "run theirs of" in said and "ours" not in said


def test_a_lease_is_never_taken_through_a_link(tmp_path):
    (tmp_path / ".leases").mkdir()
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".leases" / "k.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        Lease(tmp_path, "k").acquire()
    assert (tmp_path / "victim").read_text() == "precious"


def test_the_pause_file_is_part_of_the_protocol():
    assert protocol.PAUSE in (protocol.__doc__ or "")


def test_devices_show_who_has_leased_them(root):
    row = DeviceRow("cuda:0", "NVIDIA H100", "GPU-1", "cuda", 80.0, 10.0, 5.0, users="ann")
    other = DeviceRow("cuda:1", "NVIDIA H100", "GPU-2", "cuda", 80.0, 10.0, 5.0)
    assert with_holders([row, other], root) == [row, other]
    lease = Lease(root, lease_key("cuda:0", "GPU-1"))
    assert lease.acquire()
    lease.say("that-run")
    found = with_holders([row, other], root)
    lease.release()
    assert found[0].users.startswith("ann, run that-run of ") and found[1] == other
