"""DCGM's host engine through ``dcgmi``: the child, and what the real sampler makes of it.

``dcgmi`` is a stand-in on PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from dcgmi_said import DISCOVERY, ENGINELESS, FIELDS, HEADER, PROFILE, A, B

from profilers.collectors.telemetry import dcgmi, host_engine
from profilers.collectors.telemetry.dcgm import METRICS, Dcgm
from profilers.collectors.telemetry.host_engine import HostEngine

# --- the child ------------------------------------------------------------------------------------------------------------

Plan = dict[str, list[dict[str, Any]]]


def rows(*values: str, kind: str = "GPU 3") -> dict[str, Any]:
    return {"lines": [*HEADER, *(f"{kind}     {value}" for value in values)], "stay": True}


def plan(*dmon: dict[str, Any], **other: list[dict[str, Any]]) -> Plan:
    usual: Plan = {"discovery": [{"lines": [DISCOVERY]}], "profile": [{"lines": [PROFILE]}], "dmon": list(dmon)}
    return {**usual, **other}


class Stub:
    """A folder with the stand-in, first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "dcgmi"
        source = (Path(__file__).parent / "stub" / "dcgmi.py").read_text("utf-8")
        program.write_text(f"#!{sys.executable}\n{source}", "utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.path = f"{folder}{os.pathsep}{os.environ['PATH']}"

    def plan(self, planned: Plan) -> None:
        (self.folder / "plan.json").write_text(json.dumps(planned), "utf-8")

    def calls(self, command: str = "dmon") -> list[dict[str, Any]]:
        try:
            lines = (self.folder / "calls.jsonl").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [call for call in map(json.loads, lines) if call["argv"][0] == command]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    made = Stub(tmp_path)
    monkeypatch.setenv("PATH", made.path)
    return made


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostEngine]:
    monkeypatch.setattr(host_engine, "RETRIES_S", (0.0, 0.0, 0.0))
    made = HostEngine()
    yield made
    made.close()
    assert made._process is None or made._process.poll() is not None


def until(done: Callable[[], Any]) -> Any:
    """What ``done`` gives as soon as it gives anything; the limit is only for a test that hangs."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := done():
            return found
        time.sleep(0.01)
    raise AssertionError("nothing came")


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def reading(engine: HostEngine, uuid: str = A) -> host_engine.Reading:
    return until(lambda: engine.read(uuid)[0])


def reason(engine: HostEngine, has: str, uuid: str = A) -> str:
    def found() -> str:
        why = engine.read(uuid)[1]
        return why if has in why else ""

    return str(until(found))


def test_rows_of_wanted_gpus_only(stub: Stub, engine: HostEngine):
    lines = [
        *HEADER,
        "GPU 1     0.9 0.9 0.9 9",
        "GPU-I 3   0.8 0.8 0.8 8",
        "GPU-CI 3  0.7 0.7 0.7 7",
        "GPU-I 4   0.7 0.7 0.7 7",
        *HEADER,
        "# noise #",
        "Segmentation",
        "GPU 3     0.125 0.500 N/A 2097152",
    ]
    stub.plan(plan({"lines": lines, "stay": True}))
    engine.want({A})
    found = reading(engine)
    assert found.values == {1002: 0.125, 1004: 0.5, 1005: dcgmi.NO_VALUE, 1009: 2097152.0}
    assert engine.others == {"GPU": 1, "GPU-I": 2, "GPU-CI": 1}
    assert engine.read(A) == (None, ""), "a row is a value once"
    assert engine.lacking() == [field for field in dcgmi.FIELDS if field not in FIELDS]
    assert [call["argv"] for call in stub.calls()] == [["dmon", "-e", "1002,1004,1005,1009", "-i", "3", "-d", "1000"]]
    assert stub.calls("profile")[0]["argv"] == ["profile", "--list", "-i", "3"]
    assert engine.read("MIG-1234")[1] == host_engine.NO_INSTANCES


def test_a_gpu_of_which_only_instances_have_rows_says_so(stub: Stub, engine: HostEngine):
    stub.plan(plan(rows("0.1 0.1 0.1 1", "0.2 0.2 0.2 2", kind="GPU-I 3")))
    engine.want({A})
    assert reason(engine, "GPU-I (2)") == "dcgmi shows no row of this GPU, only of GPU-I (2)"


def test_other_gpus_are_watched_by_another_child(stub: Stub, engine: HostEngine):
    stub.plan(plan(rows("0.1 0.1 0.1 1"), {**rows("0.2 0.2 0.2 2"), "lines": ["GPU 1 0.2 0 0 0", "GPU 3 0.3 0 0 0"]}))
    engine.want({A})
    assert reading(engine).values[1002] == 0.1
    first = stub.calls()[0]["pid"]
    engine.want({A, B})
    assert reading(engine, B).values[1002] == 0.2 and reading(engine).values[1002] == 0.3
    assert stub.calls()[1]["argv"][4] == "1,3" and gone(first)
    engine.want(())
    until(lambda: gone(stub.calls()[1]["pid"]))
    assert len(stub.calls()) == 2, "nothing is started where nothing is wanted"
    engine.want({A})
    until(lambda: len(stub.calls()) == 3)


def test_a_child_that_dies_is_tried_again_a_few_times(stub: Stub, engine: HostEngine):
    stub.plan(plan({**rows("0.1 0.1 0.1 1"), "stay": False, "code": 139}))
    engine.want({A})
    why = reason(engine, "not tried again")
    assert why == "dcgmi dmon ended (code 139); not tried again"
    assert len(stub.calls()) == 1 + len(host_engine.RETRIES_S)
    engine.want(())
    engine.want({B})
    until(lambda: len(stub.calls()) == 2 + len(host_engine.RETRIES_S))
    reason(engine, "not tried again", B)
    assert len(stub.calls()) == 2 + len(host_engine.RETRIES_S), "given up is tried once more, for other GPUs"


def test_a_child_that_comes_back(stub: Stub, engine: HostEngine):
    broken = {"lines": [*HEADER, "Error getting values information. Return -37: gone"], "code": 1}
    stub.plan(plan(broken, rows("0.4 0.4 0.4 4")))
    engine.want({A})
    assert reading(engine).values[1002] == 0.4 and len(stub.calls()) == 2


@pytest.mark.parametrize(
    ("planned", "why"),
    [
        (plan(discovery=[{"lines": ENGINELESS, "code": 235}]), dcgmi.NO_ENGINE),
        (plan(discovery=[{"lines": [DISCOVERY.replace(A, "GPU-other")]}]), "does not list this GPU"),
        (plan(discovery=[{"lines": ["\x00\x1b garbage"]}]), "does not list this GPU"),
        (plan(profile=[{"lines": ["Error: [...]: Profiling is not supported for this group"]}]), dcgmi.UNSUPPORTED),
        (plan(profile=[{"lines": ["nothing"]}]), dcgmi.UNSUPPORTED),
        (plan({"lines": [*HEADER, "Error setting watches. Result: [...] unrecoverable error"], "code": 219}), dcgmi.LOCKED),
    ],
)  # fmt: skip
def test_why_there_is_nothing(stub: Stub, engine: HostEngine, planned: Plan, why: str):
    stub.plan(planned)
    engine.want({A})
    assert why in reason(engine, "not tried again")


def test_without_dcgmi(engine: HostEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    engine.want({A})
    assert dcgmi.NOT_HERE in reason(engine, "not tried again")
    assert host_engine.probe() == (0, dcgmi.NOT_HERE)


def test_a_slow_start_is_waited_for_without_waiting(stub: Stub, engine: HostEngine):
    stub.plan(plan({**rows("0.1 0.1 0.1 1"), "pause": 0.5}, discovery=[{"lines": [DISCOVERY], "pause": 0.5}]))
    engine.want({A})
    assert engine.read(A) == (None, host_engine.STARTING)
    assert reading(engine).values[1002] == 0.1 and len(stub.calls()) == 1


def test_a_child_that_hangs_is_ended(stub: Stub, engine: HostEngine, monkeypatch: pytest.MonkeyPatch):
    stub.plan(plan({"lines": HEADER, "stay": True}, rows("0.5 0.5 0.5 5")))
    engine.want({A})
    until(lambda: stub.calls() and engine.lacking())
    monkeypatch.setattr(host_engine, "SILENT_S", 0.0)
    engine.want({A})
    monkeypatch.setattr(host_engine, "SILENT_S", 30.0)
    assert reading(engine).values[1002] == 0.5 and gone(stub.calls()[0]["pid"])


def test_questions_that_are_not_answered_are_given_up(stub: Stub, engine: HostEngine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_engine, "ASK_S", 0.3)
    stub.plan(plan(discovery=[{"stay": True}]))
    engine.want({A})
    assert "dcgmi discovery did not answer" in reason(engine, "not tried again")


def test_an_old_row_is_no_value_of_now(stub: Stub, engine: HostEngine, monkeypatch: pytest.MonkeyPatch):
    stub.plan(plan(rows("0.1 0.1 0.1 1")))
    engine.want({A})
    reading(engine)
    later = host_engine.now_ns() + int(6e9)
    monkeypatch.setattr(host_engine, "now_ns", lambda: later)
    assert engine.read(A) == (None, "dcgmi has said nothing of this GPU for over 5 s")


ALONE = """
import sys, time
from profilers.collectors.telemetry.host_engine import HostEngine
engine = HostEngine()
engine.want({sys.argv[1]})
while engine.read(sys.argv[1])[0] is None:
    time.sleep(0.01)
print("rows", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_the_child_ends_with_us_even_when_we_are_killed(stub: Stub):
    stub.plan(plan(rows("0.1 0.1 0.1 1")))
    with subprocess.Popen([sys.executable, "-c", ALONE, A], stdout=subprocess.PIPE, text=True) as alone:
        assert alone.stdout is not None and alone.stdout.readline() == "rows\n"
        child = stub.calls()[0]["pid"]
        assert psutil.Process(child).ppid() == alone.pid
        alone.send_signal(signal.SIGKILL)
    until(lambda: gone(child))


# --- what the sampler makes of it ---------------------------------------------------------------------------------------


def test_samples_of_a_turn(stub: Stub, monkeypatch: pytest.MonkeyPatch):
    stub.plan(plan(rows("0.125 0.500 N/A 2097152")))
    monkeypatch.setenv("KERNELSCOPE_DCGM", "dcgmi")
    telling = Dcgm()

    def turn() -> list:
        found, covered = telling.sample("cuda:0", A, "NVIDIA A100")
        telling.turn_over()
        return found if covered == METRICS and found else []

    found = {s.metric: (s.value, s.unit, s.source, s.reason) for s in until(turn)}
    assert found["sm_pct"] == (12.5, "%", "dcgm", "") and found["tensor_pct"][0] == 50.0
    assert found["dram_pct"] == (None, "%", "dcgm", "no value (DCGM says N/A)")
    assert found["pcie_tx_mib_s"] == (2.0, "MiB/s", "dcgm", "")
    assert found["fp64_pct"] == (None, "%", "dcgm", "DCGM does not have it for this GPU")
    assert set(found) == METRICS
    child = stub.calls()[0]["pid"]
    telling.turn_over()
    until(lambda: gone(child))
    telling.close()


THROUGH_THE_SAMPLER = """
import json, os, sys, time
from pathlib import Path
from types import SimpleNamespace
from profilers.collectors.spec import Spec
from profilers.runs.folder import RunFolder
from profilers.runs.leases import Lease, lease_key
from profilers.runs.sampling import Sampler
root = Path(os.environ["KERNELSCOPE_RUNS"])
root.mkdir(parents=True, exist_ok=True)
class Run:
    id, path = "ours", root / "ours"
    def append_samples(self, samples): taken.append([[s.device, s.metric, s.value, s.source, s.reason] for s in samples])
def job(counters=""):
    spec = SimpleNamespace(device="cuda:0", counters=counters, devices=[("cuda:0", "GPU-0000-aaaa"), ("cuda:1", "GPU-0001-aaaa")])
    return SimpleNamespace(process=SimpleNamespace(pid=os.getpid()), ended=False, spec=spec, run=Run(), lost="", event=lambda *a, **k: None)
taken, jobs = [], [job()]
sampler = Sampler(lambda: jobs)
def turn():
    sampler.turn()
    return {(d, m): (v, s, r) for d, m, v, s, r in taken[-1]}
def until(done):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = turn()
        if done(found): return [[*key, *value] for key, value in found.items()]
        time.sleep(0.02)
    raise SystemExit("nothing came: " + json.dumps([[*k, *v] for k, v in found.items() if k[1] == "sm_pct"]))
answers = {}
exec(os.environ["TEST_CODE"])
sampler.close()
print(json.dumps(answers))
"""


def through_the_sampler(library: Path, stub: Stub, code: str, **more: str) -> dict[str, dict]:
    given = {**os.environ, "LD_LIBRARY_PATH": str(library), "TEST_CODE": code, "STUB_GPM": "0", **more}
    given.setdefault("KERNELSCOPE_DCGM", "dcgmi")
    given.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run(
        [sys.executable, "-c", THROUGH_THE_SAMPLER], env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {
        key: {(device, metric): (value, source, why) for device, metric, value, source, why in found}
        for key, found in json.loads(done.stdout).items()
    }


BOTH = "answers['live'] = until(lambda f: f[('cuda:0', 'sm_pct')][0] is not None)"


def test_live_units_through_the_sampler(library: Path, stub: Stub):
    lines = [*HEADER]
    for _ in range(14):
        lines += ["GPU 1     0.250 0.000 0.750 0", "GPU 3     0.125 0.500 N/A 2097152"]
    stub.plan(plan({"lines": lines, "every": 0.005, "again": True}))
    found = through_the_sampler(library, stub, BOTH)["live"]
    assert found["cuda:0", "sm_pct"] == (12.5, "dcgm", "")
    assert found["cuda:0", "dram_pct"] == (None, "dcgm", "no value (DCGM says N/A)")
    assert found["cuda:1", "sm_pct"] == (25.0, "dcgm", "") and found["cuda:1", "dram_pct"][0] == 75.0
    assert found["cuda:0", "power_w"][1] == "nvml", "what NVML tells goes on"
    (call,) = stub.calls()
    assert call["argv"][4] == "1,3", "one child for both"
    assert gone(call["pid"])


def test_trouble_through_the_sampler(library: Path, stub: Stub):
    stub.plan(plan(discovery=[{"lines": ENGINELESS, "code": 235}]))
    code = "answers['none'] = until(lambda f: 'systemctl' in f[('cuda:0', 'sm_pct')][2])"
    found = through_the_sampler(library, stub, code)["none"]
    assert found["cuda:0", "sm_pct"] == (None, "dcgm", f"{dcgmi.NO_ENGINE}; trying again after 2 s")
    assert found["cuda:0", "dram_pct"][1] == "gpm" and found["cuda:0", "util_pct"][0] == 10.0


COUNTING = """
until(lambda f: f[('cuda:0', 'sm_pct')][0] is not None)
{begin}
answers['paused'] = until(lambda f: 'counters are collected' in f[('cuda:0', 'sm_pct')][2])
process = next(iter(sampler._dcgm._engines.values()))._process
process.wait(60)
{end}
answers['again'] = until(lambda f: f[('cuda:0', 'sm_pct')][0] is not None)
"""


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("jobs.append(job('six'))", "jobs.pop()"),
        (
            # A run of another launch, which holds a device of the same runs folder.
            "other = RunFolder.create(root, Spec(workload='gpt2', name='x', device='cuda:5', counters='six'))\n"
            "lease = Lease(root, lease_key('cuda:5', 'GPU-0005-aaaa')); assert lease.acquire(); lease.say(other.id)",
            "lease.release()",
        ),
    ],
    ids=["of this launch", "of another"],
)
def test_nothing_is_asked_while_counters_are_collected(library: Path, stub: Stub, begin: str, end: str):
    stub.plan(plan({"lines": ["GPU 3 0.125 0.5 0.1 7"], "every": 0.01, "again": True}))
    found = through_the_sampler(library, stub, COUNTING.format(begin=begin, end=end))
    assert found["paused"]["cuda:0", "sm_pct"][:2] == (None, "dcgm")
    assert found["again"]["cuda:0", "sm_pct"][0] == 12.5 and len(stub.calls()) == 2


@pytest.mark.parametrize("more", [{"STUB_GPM": "1"}, {"KERNELSCOPE_DCGM": ""}], ids=["Hopper", "not named"])
def test_dcgmi_is_not_started(library: Path, stub: Stub, more: dict[str, str]):
    stub.plan(plan(rows("0.1 0.1 0.1 1")))
    code = "turn(); time.sleep(0.12); turn(); answers['last'] = [[*k, *v] for k, v in turn().items()]"
    through_the_sampler(library, stub, code, **more)
    assert not stub.calls("discovery") and not stub.calls()


# --- doctor -----------------------------------------------------------------------------------------------------------------

DOCTOR = """
import json
from tui.cli.checks.devices import checks
print(json.dumps([[c.value, c.state, c.meaning] for c in checks() if c.check == "live SM and DRAM"][0]))
"""


@pytest.mark.parametrize(
    ("named", "discovery", "state", "says"),
    [
        ("dcgmi", DISCOVERY, "ok", "DCGM's host engine lists 2 GPUs"),
        ("dcgmi", ENGINELESS[0], "note", dcgmi.NO_ENGINE),
        ("", DISCOVERY, "note", "KERNELSCOPE_DCGM=dcgmi reads them from the DCGM host engine that answers here"),
        ("", None, "note", dcgmi.NOT_HERE),
    ],
)
def test_doctor_says_whether_it_is_there(
    library: Path, tmp_path: Path, named: str, discovery: str | None, state: str, says: str
):
    given = {**os.environ, "LD_LIBRARY_PATH": str(library), "STUB_GPM": "0", "KERNELSCOPE_DCGM": named}
    if discovery is not None:
        made = Stub(tmp_path)
        made.plan(plan(discovery=[{"lines": [discovery]}]))
        given["PATH"] = made.path
    elif shutil.which("dcgmi"):
        pytest.skip("a real dcgmi is here")
    done = subprocess.run([sys.executable, "-c", DOCTOR], env=given, capture_output=True, text=True, check=True)
    value, level, loss = json.loads(done.stdout)
    assert level == state and says in f"{value} {loss}"
