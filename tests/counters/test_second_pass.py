"""The second pass end to end: a replayed recording stands in for a GPU run, and an ``ncu`` on PATH for Nsight Compute.

The stand-in checks nothing and knows nothing: it writes down how it was called and replays lines and a page that a test
prepared. Supervisor, joining, status and tables are the real ones.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.collectors import counters
from profilers.readers import cupti, kineto
from profilers.readers.errors import ReadError
from profilers.runs.counting import Counting
from profilers.runs.folder import RunFolder
from profilers.runs.launch import launch, stop
from profilers.runs.reading import on_device
from profilers.runs.spec import Spec
from profilers.tables import KERNELS

GEMM = "ampere_sgemm_128x64_tn"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >(int)"
)
STEPS = 3

STAND_IN = """\
#!{python}
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "calls.jsonl"), "a") as file:
    file.write(json.dumps({{"argv": sys.argv[1:], "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}}) + "\\n")
plan = json.load(open(os.path.join(here, "plan.json")))
turn = plan["turns"][min(sum(1 for _ in open(os.path.join(here, "calls.jsonl"))), len(plan["turns"])) - 1]
log = open(sys.argv[sys.argv.index("--log-file") + 1], "a")
for line in turn.get("lines", []):
    # Nsight Compute's messages go to its log file; what the workload prints does not.
    print(line, flush=True, file=log if line.startswith("==") else None)
    time.sleep(turn.get("pause", 0))
log.write(turn.get("page", ""))
log.close()
sys.exit(turn.get("code", 0))
"""


def trace(path: Path) -> Path:
    """Three steps of a product and an addition on one GPU."""
    events: list[dict[str, Any]] = []

    def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, pid: int = 1, **args: Any) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    for step in range(STEPS):
        at = 1000.0 * step
        event("user_annotation", f"ProfilerStep#{step}", at, 900)
        for number, (op, kernel, length) in enumerate((("aten::mm", GEMM, 300), ("aten::add", ADD, 50))):
            begin, correlation = at + 10 + 400 * number, 10 * step + number + 1
            event("cpu_op", op, begin, 30)
            event("cuda_runtime", "cudaLaunchKernel", begin + 5, 5, correlation=correlation)
            event(
                "kernel", kernel, begin + 20, length, tid=7, pid=0,
                device=0, stream=7, correlation=correlation, grid=[100, 1, 1], block=[128, 1, 1],
            )  # fmt: skip
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-PCIE-40GB", "numSms": 108}]}
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return path


def page(*kernels: tuple[str, float, float, float]) -> str:
    """A raw page of ncu: name, SM %, DRAM %, tensor % of each kernel."""
    fixed = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
             "Grid Size", "Device", "CC"]  # fmt: skip
    metrics = {
        "gpu__time_duration.sum": "us",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "%",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": "%",
    }
    rows = [[*fixed, *metrics], [*[""] * len(fixed), *metrics.values()]]
    for number, (name, sm, dram, tensor) in enumerate(kernels):
        rows.append([str(number), "9", "python3.11", "h", name, "1", "7", "(128, 1, 1)", "(100, 1, 1)", "0", "8.0"])
        rows[-1] += ["290.1", str(sm), str(dram), str(tensor)]
    return "==PROF== Connected\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n"


def profiling(*names: str) -> list[str]:
    return [f'==PROF== Profiling "{name}" - {n}: 0%....50%....100% - 4 passes' for n, name in enumerate(names)]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Takes a run with counters to its end (or as far as ``until`` says); the stand-in answers with ``turns``."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    runs: list[RunFolder] = []

    def go(*turns: dict[str, Any], until: Any = None, **changes: Any) -> tuple[RunFolder, list[dict[str, Any]]]:
        if turns:
            program = tools / "ncu"
            program.write_text(STAND_IN.format(python=sys.executable))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            (tools / "plan.json").write_text(json.dumps({"turns": turns}))
        given: dict[str, Any] = {
            "name": "stand-in",
            "workload": str(trace(tmp_path / "trace.json")),
            "target": "replay",
        }
        spec = Spec(
            **{**given, "device": "cuda:0", "device_uuid": "GPU-none", "speed": 1000.0, "counters": "six", **changes}
        )
        (run,) = launch([spec], tmp_path / "runs")
        runs.append(run)
        deadline = time.monotonic() + 60
        while run.effective_status().live:
            assert time.monotonic() < deadline, run.status()
            if until is not None and until(run.status()):
                break
            time.sleep(0.02)
        calls = tools / "calls.jsonl"
        return run, [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []

    yield go
    for run in runs:
        if run.effective_status().live:
            stop(run, wait_s=20)


def counters_note(run: RunFolder) -> str:
    return next(note for note in run.status().notes if "counters" in note)


def test_counters_reach_every_step(measured):
    run, calls = measured(
        {"lines": profiling(GEMM, ADD), "page": page((GEMM, 81.5, 12.0, 77.0), (ADD, 9.0, 88.0, 0.0))}
    )
    status = run.status()
    assert (status.state, status.cause) == ("finished", "")
    (call,) = calls
    assert call["visible"] == "GPU-none"
    argv = call["argv"]
    assert argv[argv.index("--metrics") + 1].split(",") == list(counters.SIX)
    assert argv[-5:-2] == ["-P", "-m", "profilers.collectors.counted"] and argv[-2] == str(run.path)

    kernels = run.recording().kernels
    products = kernels[kernels["name"] == GEMM]
    assert len(products) == STEPS and set(products["source"]) == {"ncu"}
    assert products["sm_pct"].tolist() == [81.5] * STEPS and products["tensor_pct"].tolist() == [77.0] * STEPS
    # 12,800 threads are M; the product keeps the SMs busy, the addition the memory.
    states = TABLES["states"].compute(run.recording()).set_index("state")
    assert set(states.index) == {"MHM", "MLH"}
    assert set(states["source"]) == {"ncu"}
    assert "every kernel of one step: 2 measured; 6 kernels in the windows have them, 0 have not" in counters_note(run)
    assert (run.path / "counters.csv").is_file()
    assert [event["matched"] for event in run.events() if event["kind"] == "counters"] == [6]


def test_kernels_that_were_not_measured_keep_their_estimate(measured):
    run, calls = measured(
        {"lines": profiling(GEMM), "page": page((GEMM, 50, 50, 50))}, counters="full", counters_every=10
    )
    argv = calls[0]["argv"]
    assert argv[argv.index("--metrics") + 1].split(",") == list(counters.SETS["full"])
    assert argv[argv.index("--kernel-id") + 1] == ":::.*0"
    kernels = run.recording().kernels
    assert set(kernels.loc[kernels["name"] == GEMM, "source"]) == {"ncu"}
    assert not set(kernels.loc[kernels["name"] == ADD, "source"]) & {"ncu"}
    assert "every 10th invocation" in counters_note(run) and "3 have not" in counters_note(run)


def test_progress_is_told_while_it_goes_on(measured):
    seen: list[tuple[str, float | None]] = []

    def kernel_said(status: Any) -> bool:
        if status.phase.startswith("counters: kernel"):
            seen.append((status.phase, status.eta_s))
        return len(seen) > 3 and seen[-1][1] is not None

    run, _ = measured({"lines": profiling(*[GEMM] * 400), "pause": 0.05}, until=kernel_said)
    assert "of about 2" in seen[0][0]
    assert run.status().state == "profiling"
    # Stopping ends ncu at once and keeps the windows.
    assert stop(run, wait_s=20).state == "stopped"
    assert len(run.recording().kernels) == 2 * STEPS and len(run.window_ids()) == STEPS


def test_a_driver_that_refuses(measured):
    line = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    run, _ = measured({"lines": [line], "code": 1, "page": line + "\n"})
    assert run.status().state == "finished"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in counters_note(run)
    kernels = run.recording().kernels
    assert len(kernels) == 2 * STEPS and "ncu" not in set(kernels["source"])


def test_a_metric_that_this_gpu_lacks_is_left_out(measured):
    lacking = "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_elapsed"
    run, calls = measured(
        {"lines": [f"==ERROR== Failed to find metric {lacking}"], "code": 1},
        {"lines": profiling(GEMM, ADD), "page": page((GEMM, 81.5, 12.0, 77.0), (ADD, 9.0, 88.0, 0.0))},
    )
    assert len(calls) == 2
    argv = calls[1]["argv"]
    assert argv[argv.index("--metrics") + 1].split(",") == [name for name in counters.SIX if name != lacking]
    assert any(lacking in note for note in run.status().notes)
    assert set(run.recording().kernels["source"]) == {"ncu"}


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        ({"lines": ["RuntimeError: no CUDA today"], "code": 1}, "no CUDA today"),
        ({"lines": ["==WARNING== No kernels were profiled."]}, "saw no kernel"),
        ({"lines": profiling(GEMM), "page": "not a table\n"}, "no counters"),
        ({"lines": [], "code": 0}, "measured nothing"),
    ],
)
def test_what_goes_wrong_costs_only_the_counters(measured, turn, says):
    run, _ = measured(turn)
    status = run.status()
    assert (status.state, status.cause) == ("finished", "")
    assert says in counters_note(run) and "\n" not in counters_note(run)
    assert np.isfinite(run.summary()["gemm_pct"])


def test_without_ncu(measured, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run, calls = measured()
    if counters.find_ncu() is not None:
        pytest.skip("ncu is installed in /usr/bin")
    assert calls == [] and run.status().state == "finished"
    assert counters.NOT_HERE in counters_note(run)


def test_cupti_joins_the_same_way(tmp_path, monkeypatch):
    """torch.profiler's counters in place of ncu's: the second pass writes a trace, here a stand-in does."""
    run = RunFolder.create(tmp_path / "runs", Spec(name="c", workload="w", device="cuda:1", counters="cupti"))
    recording = on_device(kineto.read(trace(tmp_path / "trace.json")), "cuda:1")
    run.write_window(1, prepare(recording))
    metrics = dict.fromkeys(counters.CUPTI_METRICS, 33.0) | {"gpu__time_duration.sum": 290_000}
    ranges = [
        {"ph": "X", "cat": "cuda_profiler_range", "name": GEMM, "pid": 0, "tid": 0, "ts": 1, "dur": 5, "args": metrics}
    ]
    code = f"import sys; open(sys.argv[1], 'w').write({json.dumps({'traceEvents': ranges})!r})"
    monkeypatch.setattr(counters, "worker", lambda folder, supervisor, *more: [sys.executable, "-c", code, *more])
    second = Counting(run, run.spec(), os.environ)
    second.run()
    assert "3 kernels in the windows have them, 3 have not" in second.notes[0]
    kernels = run.read_window(1).kernels
    assert set(kernels.loc[kernels["name"] == GEMM, "source"]) == {"cupti"}
    assert kernels.loc[kernels["name"] == GEMM, "sm_pct"].tolist() == [33.0] * STEPS
    assert set(kernels["device"]) == {"cuda:1"}

    # Where CUPTI gives nothing, that is a note.
    empty = code.replace(json.dumps({"traceEvents": ranges}), json.dumps({"traceEvents": []}))
    monkeypatch.setattr(counters, "worker", lambda folder, supervisor, *more: [sys.executable, "-c", empty, *more])
    second = Counting(run, run.spec(), os.environ)
    second.run()
    assert second.notes[0].startswith("no counters: ") and "collected no counters" in second.notes[0]


def test_a_real_trace_of_cupti_counters(traces: Path) -> None:
    made = cupti.read(traces / "kineto" / "a100_cupti_counters_no_kernels.json.gz")
    assert KERNELS.problems(made.kernels) == []
    unnamed = next(note.count for note in made.notes if note.code == "cupti_unnamed")
    assert len(made.kernels) + unnamed == 77 and set(made.kernels["source"]) == {"cupti"}
    # 2,359,296 additions, 3,145,728 products and 554,303,488 fused ones in the last GEMM of the file.
    last = made.kernels[made.kernels["name"] == "ampere_sgemm_32x32_sliced1x4_tn"].iloc[-1]
    assert last["flops"] == 2_359_296 + 3_145_728 + 2 * 554_303_488
    assert made.kernels["sm_pct"].isna().all()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": [{"cat": "kernel", "name": "k"}]}'])
def test_a_file_without_cupti_counters(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ReadError) as raised:
        cupti.read(path)
    assert "t.json" in str(raised.value) and "\n" not in str(raised.value)
