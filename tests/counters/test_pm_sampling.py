"""One step sampled: the collector against a stand-in for cupti-python, its errors, and the way to the run's windows.

What the stand-in cannot show is the hardware: whether it samples beside torch.profiler, and on which clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pm_maker import BUSY, DRAM, ISSUE, TENSOR, Ran, after, sampled, samples_file, trace_file

from profilers.analysis.prepare import prepare
from profilers.collectors import counters
from profilers.collectors.counters import CountersError
from profilers.readers import kineto, pm_samples
from profilers.readers.pm_samples import ROLES
from profilers.runs.counting import PM_SAMPLES, PM_TRACE, Counting
from profilers.runs.folder import RunFolder
from profilers.runs.reading import on_device
from profilers.runs.spec import Spec

STUB = Path(__file__).parent / "stub"
TINY = Path(__file__).parent.parent / "runs" / "workloads" / "tiny.py"
ALL = [BUSY, DRAM, ISSUE, TENSOR]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Takes a plan for the stand-in; gives the calls that were made so far."""
    calls = tmp_path / "calls.jsonl"
    plan = tmp_path / "plan.json"
    monkeypatch.setenv("STAND_IN_CUPTI", str(plan))
    monkeypatch.syspath_prepend(str(STUB))
    loaded = [name for name in sys.modules if name.split(".")[0] == "cupti"]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)

    def made(**given: Any) -> list[dict[str, Any]]:
        plan.write_text(json.dumps({**given, "calls": str(calls)}))
        return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []

    made()
    yield made
    for name in [name for name in sys.modules if name.split(".")[0] == "cupti"]:
        del sys.modules[name]


@pytest.fixture
def sample(tmp_path: Path, stand_in: Any) -> Callable[..., tuple[pm_samples.PmSamples, list[dict[str, Any]], int]]:
    """Samples a step under a plan: the samples, the calls, and how many steps were taken."""
    import torch

    from profilers.collectors import pm_sampling

    def go(**plan: Any) -> tuple[pm_samples.PmSamples, list[dict[str, Any]], int]:
        stand_in(**plan)
        x, steps = torch.randn(16, 16), []

        def step() -> None:
            steps.append(torch.mm(x, x))

        output = tmp_path / "samples.json"
        pm_sampling.sample_step(pm_sampling.load(), torch, step, tmp_path / "trace.json", output)
        return pm_samples.read(output), stand_in(**plan), len(steps)

    return go


def names(calls: list[dict[str, Any]]) -> list[str]:
    return [call["call"] for call in calls if call["call"] != "configure"]


def test_a_step_is_sampled_and_traced(sample, tmp_path):
    found, calls, steps = sample()
    assert steps == 2, "one to warm up and to see how long it is, one that is sampled"
    assert names(calls) == ["enable", "start", "stop", "decode", "disable"]
    assert calls[0]["device_index"] == 0, "a worker is shown its own device alone"
    *_, last = (call for call in calls if call["call"] == "configure")
    assert last["metrics"] == ALL and last["trigger"] == "GPU_TIME_INTERVAL"
    assert last["interval"] == found.interval_ns == 10_000
    assert found.clock == pm_samples.UNIX and len(found) >= 900, "5 ms of idleness on either side are 1,000 samples"
    # The one without a begin and the one without a length.
    assert [(note.code, note.count) for note in found.notes] == [("pm_dropped", 2)]
    recording = kineto.read(tmp_path / "trace.json")
    assert (recording.operators["name"] == "aten::mm").sum() == 1 and len(recording.steps) == 1
    # The samples lie around the step, on the same clock.
    begin = (
        recording.operators["start_ns"].to_numpy()[recording.operators["name"] == "aten::mm"] + recording.origin.base_ns
    )
    assert len(begin) == 1 and found.start[0] < begin[0] < found.end[-1]


def test_samples_in_ticks_lie_around_the_step_too(sample, tmp_path):
    found, _, _ = sample(clock="ticks", interval=26_000)
    recording = kineto.read(tmp_path / "trace.json")
    begin = (
        recording.operators["start_ns"].to_numpy()[recording.operators["name"] == "aten::mm"] + recording.origin.base_ns
    )
    assert found.clock == pm_samples.TICKS and found.start[0] < begin[0] < found.end[-1]
    assert sample(clock="other")[0].clock == pm_samples.UNKNOWN


@pytest.mark.parametrize(
    ("plan", "metrics", "trigger"),
    [
        ({"pass": 2}, [BUSY, DRAM], "GPU_TIME_INTERVAL"),
        # Hopper and some of Blackwell have the realtime variants; Ampere and Ada lack that of the tensor pipes.
        ({"lacks": [TENSOR]}, [BUSY, DRAM, ISSUE, ROLES["tensor"][1][0]], "GPU_TIME_INTERVAL"),
        ({"lacks": [BUSY, DRAM]}, [ROLES["busy"][1][0], *ROLES["dram"][1], ISSUE, TENSOR], "GPU_TIME_INTERVAL"),
        # Turing: nothing of DRAM that fits, and no timer.
        ({"lacks": [DRAM, *ROLES["dram"][1]], "time_trigger": False}, [BUSY, ISSUE, TENSOR], "GPU_SYSCLK_INTERVAL"),
        ({"time_trigger": False}, ALL, "GPU_SYSCLK_INTERVAL"),
    ],
)
def test_what_the_chip_can_sample_is_taken(sample, tmp_path, plan, metrics, trigger):
    _, calls, _ = sample(**plan)
    said = json.loads((tmp_path / "samples.json").read_text())
    assert said["metrics"] == metrics
    *_, last = (call for call in calls if call["call"] == "configure")
    assert last["metrics"] == metrics, "what was tried last is what is sampled"
    assert last["trigger"] == trigger and said["unit"] == ("sysclk" if "SYSCLK" in trigger else "ns")
    assert last["interval"] == said["asked"] == (15_000 if "SYSCLK" in trigger else 10_000)


def test_a_buffer_that_overflows_is_tried_coarser_with_a_new_collector(sample):
    found, calls, steps = sample(fails={"decode": ["MemoryError", "Record overflow", 2]})
    assert names(calls) == ["enable", "start", "stop", "decode", "disable"] * 3 and steps == 6
    assert found.interval_ns == 160_000


NVPERF = "CUPTI could not load the nvperf* libraries required for profiling."


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"fails": {"enable": ["PermissionError", "Insufficient privileges for PM sampling"]}}, "ERR_NVGPUCTRPERM"),
        ({"fails": {"enable": ["RuntimeError", NVPERF]}}, f"performance monitors: {NVPERF}"),
        ({"fails": {"enable": ["ValueError", "Invalid device_index: 0"]}}, "Invalid device_index: 0"),
        ({"fails": {"enable": ["MemoryError", "Memory allocation failed"]}}, "Memory allocation failed"),
        ({"fails": {"enable": ["cuptiError", 38]}}, "CUPTI status 38"),
        ({"fails": {"configure": ["cuptiError", 12]}}, "cannot set up sampling: CUPTI status 12"),
        ({"fails": {"start": ["RuntimeError", "already\nstarted"]}}, "cannot start sampling: already started"),
        ({"fails": {"stop": ["cuptiError", 4]}}, "cannot stop sampling: CUPTI status 4"),
        ({"fails": {"decode": ["cuptiError", 5]}}, "cannot decode its samples: CUPTI status 5"),
        ({"fails": {"decode": ["MemoryError", "overflow"]}}, "overflowed, with one sample every 160 us too"),
        ({"pass": 0}, "PM sampling is for Turing and newer"),
    ],
)
def test_what_cupti_refuses_is_one_line(sample, stand_in, plan, says):
    with pytest.raises(CountersError) as raised:
        sample(**plan)
    assert says in str(raised.value) and "\n" not in str(raised.value)
    calls = stand_in()
    opened = names(calls).count("enable") - ("enable" in plan.get("fails", {}))
    assert names(calls).count("disable") == opened, "the monitors are let go of"
    # torch.profiler was let go of as well: there can be only one.
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        pass
    heard = counters.Progress()
    heard.hear(raised.value.told())
    assert heard.problem == (counters.NO_PERMISSION if "Permission" in str(plan) else str(raised.value))


def test_errors_of_the_step_are_its_own(tmp_path, stand_in):
    import torch

    from profilers.collectors import pm_sampling

    turns = iter([None])

    def step() -> None:
        if next(turns, "over") == "over":
            raise RuntimeError("the model's own")

    with pytest.raises(RuntimeError, match="the model's own"):
        pm_sampling.sample_step(pm_sampling.load(), torch, step, tmp_path / "t", tmp_path / "s")
    assert names(stand_in())[-1] == "disable" and not (tmp_path / "s").exists()


def test_without_the_package(monkeypatch):
    from profilers.collectors import pm_sampling

    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(CountersError, match=r"cupti-python 13\.3 or newer") as raised:
        pm_sampling.load()
    assert str(raised.value) == counters.PM_MISSING


def test_the_package_is_looked_for_and_not_imported(tmp_path, monkeypatch):
    def found(*files: str) -> bool:
        folder = tmp_path / "-".join(["p", *files])
        (folder / "cupti").mkdir(parents=True)
        for file in files:
            (folder / "cupti" / file).write_text("raise SystemExit('imported')")
        monkeypatch.setattr(sys, "path", [str(folder)])
        monkeypatch.delitem(sys.modules, "cupti", raising=False)
        return counters.find_sampling()

    assert found("__init__.py", "pm_sampling.py")
    assert not found("__init__.py"), "versions before 13.3 do not sample"
    monkeypatch.setattr(sys, "path", [])
    assert not counters.find_sampling()


# --- to the windows ---------------------------------------------------------------------------------------------------


def second_pass(run: RunFolder, **environment: str) -> Counting:
    second = Counting(run, run.spec(), {**os.environ, **environment})
    second.run()
    return second


@pytest.fixture
def on_cpu(tmp_path: Path) -> RunFolder:
    """A run whose second pass can really be taken here: a step on the CPU."""
    given = Spec(name="c", workload=f"{TINY}:step", target="callable", device="cpu", warmup=1, counters="pm")
    return RunFolder.create(tmp_path / "runs", given)


def test_the_worker_of_the_second_pass(on_cpu, stand_in):
    """The real worker, sampled by the stand-in. A CPU launches no kernel, which is told as on a GPU that cannot do both."""
    second = second_pass(on_cpu, PYTHONPATH=str(STUB))
    assert pm_samples.read(on_cpu.path / PM_SAMPLES).clock == pm_samples.UNIX
    assert "aten::mm" in set(kineto.read(on_cpu.path / PM_TRACE).operators["name"])
    (note,) = second.notes
    assert note.startswith("no counters: torch.profiler recorded no kernel while CUPTI sampled")
    assert names(stand_in())[-1] == "disable"


def test_the_workers_refusals_reach_the_run(on_cpu, stand_in):
    stand_in(fails={"enable": ["PermissionError", "Insufficient privileges"]})
    assert second_pass(on_cpu, PYTHONPATH=str(STUB)).notes == (f"no counters: {counters.NO_PERMISSION}",)
    assert not (on_cpu.path / PM_SAMPLES).exists()
    empty = on_cpu.path / "empty"
    (empty / "cupti").mkdir(parents=True)
    (empty / "cupti" / "__init__.py").write_text("")
    assert second_pass(on_cpu, PYTHONPATH=str(empty)).notes == (f"no counters: {counters.PM_MISSING}",)


STEPS = 3
LAYER = (("gemm", 130_000, 55.0, 20.0, 80.0), ("add", 70_000, 9.0, 88.0, 0.0), ("tiny", 4_000, 3.0, 4.0, 0.0))


def prepared(
    run: RunFolder, ran: list[Ran], monkeypatch: pytest.MonkeyPatch, shift: int = 17_000, **changes: Any
) -> None:
    """A worker that leaves a trace and samples as if a GPU had run ``ran``, and windows of the same kernels."""
    window = on_device(kineto.read(trace_file(run.path / "w.json", ran)), run.spec().device)
    for number in range(1, STEPS + 1):
        run.write_window(number, prepare(window))
    trace_file(run.path / "made-trace.json", ran)
    samples_file(run.path / "made-samples.json", sampled(ran, 10_000), shift, **changes)
    code = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[3]); shutil.copy(sys.argv[2], sys.argv[4])"
    made = [str(run.path / name) for name in ("made-trace.json", "made-samples.json")]
    monkeypatch.setattr(
        counters, "worker", lambda folder, supervisor, *more: [sys.executable, "-c", code, *made, *more]
    )


@pytest.fixture
def on_gpu(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", Spec(name="c", workload="w", device="cuda:1", counters="pm"))


def test_samples_reach_the_windows(on_gpu, monkeypatch):
    prepared(on_gpu, after(*LAYER * 4, gap=6_000), monkeypatch)
    second = second_pass(on_gpu)
    note, reached = second.notes
    assert note.startswith("counters (pm) of one step sampled every 10 us while it ran: ")
    assert "correlation 1.00" in note
    assert reached.startswith("counters: samples gave values to 8 of 12 kernels (66.7 %), 98.0 % of kernel time, ")
    assert note.endswith("24 kernels in the windows have them, 12 have not")
    for number in range(1, STEPS + 1):
        window = on_gpu.read_window(number)
        kernels = window.kernels.set_index("name")
        assert set(kernels.loc[["gemm", "add"], "source"]) == {"cupti"}
        assert kernels.loc["gemm", "sm_pct"].to_numpy() == pytest.approx([80.0] * 4, abs=0.01)
        assert kernels.loc["add", "dram_pct"].to_numpy() == pytest.approx([88.0] * 4, abs=0.01)
        # Those that no sample fell into keep their estimate, or that there is none.
        assert not set(kernels.loc["tiny", "source"]) & {"cupti"}
        assert set(kernels["device"]) == {"cuda:1"}
        assert [item.count for item in window.notes if item.code == "pm_sm_floor"] == [8]
    (event,) = [event for event in on_gpu.events() if event["kind"] == "counters"]
    assert (event["measured"], event["matched"], event["unmatched"]) == (12, 24, 12)


def test_samples_of_another_step_are_refused_and_cost_nothing(on_gpu, monkeypatch):
    prepared(on_gpu, after(*LAYER * 4, gap=6_000), monkeypatch)
    other = sampled(after(("x", 30_000, 1.0, 1.0, 1.0), ("y", 300_000, 1.0, 1.0, 1.0), gap=500_000), 10_000)
    samples_file(on_gpu.path / "made-samples.json", other, 0)
    before = [on_gpu.read_window(number).kernels for number in on_gpu.window_ids()]
    (note,) = second_pass(on_gpu).notes
    assert note.startswith("no counters: samples and kernels do not go together: ") and "0.80 is needed" in note
    for number, kernels in zip(on_gpu.window_ids(), before, strict=True):
        assert on_gpu.read_window(number).kernels.equals(kernels)


def test_samples_left_out_are_told(on_gpu, monkeypatch):
    ran = after(*LAYER * 4, gap=6_000)
    prepared(on_gpu, ran, monkeypatch)
    made = sampled(ran, 10_000)
    made["end"][:3] = made["start"][:3]
    samples_file(on_gpu.path / "made-samples.json", made, 0, full=True, asked=10_000)
    notes = second_pass(on_gpu).notes
    assert len(notes) == 4 and notes[2].startswith("counters: 3 samples without a length")
    assert "no room for all samples" in notes[3]
    assert np.isfinite(on_gpu.read_window(1).kernels["sm_pct"]).any()


# --- the real package -------------------------------------------------------------------------------------------------

_ASK = """
import inspect, json, sys
sys.path[:0] = sys.argv[1:]
try:
    from cupti import pm_sampling as pm
    from cupti.cupti import cuptiError
except ImportError as error:
    sys.exit(f"{error}")
def said(function):
    return [[p.name, p.kind.name, p.default is not p.empty] for p in inspect.signature(function).parameters.values()]
calls = {name: said(getattr(pm.Collector, name)) for name in
         ("__init__", "enable", "configure", "start", "stop", "decode", "disable")}
print(json.dumps({
    "calls": calls,
    "trigger": {name: int(pm.TriggerMode[name]) for name in ("GPU_SYSCLK_INTERVAL", "GPU_TIME_INTERVAL")},
    "sample": list(pm.Sample.__dataclass_fields__),
    "data": [hasattr(pm.CounterData, "__iter__"), hasattr(pm.CounterData, "__len__")],
    "error": [base.__name__ for base in cuptiError.__mro__],
}))
"""


def asked(*path: str) -> dict[str, Any] | str:
    """What a process finds in the cupti package on its path; why it found none."""
    done = subprocess.run([sys.executable, "-c", _ASK, *path], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def test_the_stand_in_is_called_like_the_real_package():
    real = asked()
    if isinstance(real, str):
        pytest.skip(f"no cupti-python that samples is installed: {real}")
    assert asked(str(STUB)) == real
