"""Whole runs on other backends, for real on the CPU: windows, notes, provenance, and totals against their own profiler."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from profilers.analysis.fusion import FUSION, decode
from profilers.analysis.registry import TABLES
from profilers.rules.taxonomy import CLASSES
from profilers.runs.folder import RunFolder
from profilers.runs.launch import launch, stop
from profilers.runs.spec import Spec

WORKLOADS = Path(__file__).with_name("workloads.py")
DEADLINE_S = 240.0
COMPILES = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("g++", "clang++")) or " " in tempfile.gettempdir(),
    reason="torch.compile on a CPU needs a C++ compiler, and a temporary folder without a space in its name",
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Takes a run to its end and gives its folder; nothing goes on after the test."""
    # Compiled object files of earlier sessions must not decide what a test sees.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    started: list[RunFolder] = []

    def one(function: str = "build", **changes: object) -> RunFolder:
        given = {"name": function, "workload": f"{WORKLOADS}:{function}", "target": "callable", "keep_traces": True}
        spec = Spec(**{**given, "warmup": 1, "timed_steps": 3, "windows": 2, **changes})  # type: ignore[arg-type]
        (folder,) = launch([spec], tmp_path / "runs")
        started.append(folder)
        deadline = time.monotonic() + DEADLINE_S
        while folder.effective_status().live:
            assert time.monotonic() < deadline, folder.status()
            time.sleep(0.05)
        return folder

    yield one
    for folder in started:
        if folder.effective_status().live:
            stop(folder, wait_s=20)


def finished(folder: RunFolder) -> tuple[str, ...]:
    """The notes of a run that has ended well."""
    status = folder.status()
    assert (status.state, status.cause) == ("finished", ""), "\n".join(folder.log_tail(30))
    assert status.windows_done == 2 and status.steps_timed == 3 and status.step_ms
    return status.notes


def traces_of(folder: RunFolder) -> list[list[dict]]:
    found = []
    for path in sorted((folder.path / "traces").iterdir()):
        value = json.loads(path.read_text())
        found.append(value["traceEvents"] if isinstance(value, dict) else value)
    assert len(found) == 2
    return found


def kernel_time_us(folder: RunFolder) -> float:
    return float(TABLES["summary"].compute(folder.recording())["kernel_time_us"].sum())


def self_time_us(events: list[dict]) -> float:
    """The processor's time in operators by the profiler's own events: what their outermost ones span, added up.

    Ranges around modules are marks of ours: between the operators in one, Python runs.
    """
    operators = [e for e in events if e.get("ph") == "X" and e.get("cat") == "cpu_op"]
    spans = sorted((e["ts"], -e["dur"]) for e in operators if not e["name"].startswith("nn.Module: "))
    total, reach = 0.0, float("-inf")
    for start, negative in spans:
        end = start - negative
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


@COMPILES
@pytest.mark.slow
def test_inductor(run):
    folder = run(backend="inductor")
    notes = finished(folder)
    assert any(note.startswith("torch.compile (default) took") for note in notes)
    assert "1 compiled graphs, 0 graph breaks, 0 recompilations" in notes
    recording = folder.recording()

    # The kernels that Inductor wrote are there, with what it says is in them.
    known = decode(recording.origin.extra[FUSION])
    fused = {str(name) for name in recording.kernels["name"].unique() if "cpp_fused" in str(name)}
    assert fused and fused <= set(known)
    gelu = next(name for name in fused if "gelu" in name)
    assert {"aten::erf", "aten::mul"} <= {one.name for one in known[gelu]}
    erf = next(one for one in known[gelu] if one.name == "aten::erf")
    assert json.loads(erf.input_shapes)[0][-1] == 256 and json.loads(erf.input_dtypes)[0] == "float"

    frame = TABLES["fusion"].compute(recording)
    assert set(frame["kernel"]) == fused
    parts = frame[[f"{name}_us" for name in CLASSES]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(frame["time_us"].to_numpy(), rel=1e-9)
    rate = TABLES["fusion_rate"].compute(recording).set_index("how")
    assert rate.loc["fused with non-GEMM", "operators"] > 0

    # Directly below the step are the operators of the compiled graph, not the region that wraps them.
    shares = TABLES["shares"].compute(recording)
    operator = shares[shares["share"] == "operator"].set_index("class")
    assert operator.loc["gemm", "pct"] > 0

    own = sum(self_time_us(events) for events in traces_of(folder))
    assert kernel_time_us(folder) == pytest.approx(own, rel=0.02)


@COMPILES
@pytest.mark.slow
def test_inductor_tells_graph_breaks(run):
    notes = finished(run("breaks", backend="inductor:reduce-overhead"))
    assert any(note.startswith("2 compiled graphs, 1 graph breaks") for note in notes), notes
    assert any(note.startswith("graph break (1x)") for note in notes)
    assert any("CUDA graphs" in note for note in notes)


@COMPILES
@pytest.mark.slow
def test_inductor_tells_recompilations_and_compiles_a_bare_sequential(run):
    notes = finished(run("changing", backend="inductor"))
    assert "1 compiled graphs, 0 graph breaks, 0 recompilations" in notes, notes
    assert "1 recompilations while it was measured: windows hold compile time" in notes, notes


@pytest.mark.slow
def test_onnxruntime(run):
    for package in ("onnxruntime", "onnx", "onnxscript"):
        pytest.importorskip(package)
    folder = run(backend="onnxruntime", steps=2)
    notes = finished(folder)
    assert any(note.startswith("exported to ONNX (opset") for note in notes)
    recording = folder.recording()
    names = {str(name) for name in recording.operators["name"].unique()}
    assert all(name.startswith("onnx::") for name in names)
    assert names & {"onnx::Gemm", "onnx::MatMul"} and names & {"onnx::Gelu", "onnx::BiasGelu", "onnx::Erf"}
    # Two windows of two steps; neither the session's beginning nor its warm-up run is among them.
    assert len(recording.steps) == 4
    products = recording.operators[recording.operators["class"] == "gemm"]
    assert len(products) == 4 * 4 and products["flops"].unique().tolist() == [2 * 32 * 64 * 256]
    assert not [path for path in folder.path.iterdir() if path.name.startswith("onnx-")]

    events = [event for trace in traces_of(folder) for event in trace]
    own = sum(event["dur"] for event in events if event["cat"] == "Node")
    assert kernel_time_us(folder) == pytest.approx(own, rel=0.02)
    # A kept trace opens like any other file, and says the same.
    from profilers.readers import read

    again = read(sorted((folder.path / "traces").iterdir())[0])
    assert len(again.operators) == len(folder.recording([1]).operators)


@pytest.mark.slow
def test_onnxruntime_with_int8(run):
    for package in ("onnxruntime", "onnx", "onnxscript"):
        pytest.importorskip(package)
    folder = run(backend="onnxruntime", quant="int8dyn")
    assert any(note.startswith("int8dyn by ONNX Runtime") for note in finished(folder))
    names = {str(name) for name in folder.recording().operators["name"].unique()}
    assert names & {"onnx::DynamicQuantizeMatMul", "onnx::MatMulIntegerToFloat", "onnx::MatMulInteger"}


@pytest.mark.slow
def test_eager_int8_dynamic(run, monkeypatch):
    folder = run(quant="int8dyn")
    notes = finished(folder)
    assert any(note.startswith("int8dyn by torch") and "4 of 4 linear layers" in note for note in notes), notes
    names = {str(name) for name in folder.recording().operators["name"].unique()}
    assert names & {"quantized::linear_dynamic", "aten::_int_mm"}
    groups = TABLES["groups"].compute(folder.recording())
    assert "matmul" in set(groups["group"])
    own = sum(self_time_us(events) for events in traces_of(folder))
    assert kernel_time_us(folder) == pytest.approx(own, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "changes", "says"),
    [
        ("no_module", {"backend": "inductor"}, "no module to compile"),
        ("no_module", {"quant": "int8dyn"}, "no module to quantize"),
        ("build", {"backend": "onnxruntime", "mode": "train"}, "inference only"),
        ("build", {"backend": "nonsense"}, "no backend is called 'nonsense'"),
    ],
)
def test_refusals_are_one_line(run, function, changes, says):
    status = run(function, **changes).status()
    assert (status.state, status.cause_kind) == ("failed", "usage")
    assert says in status.cause and "\n" not in status.cause


@pytest.mark.slow
def test_a_model_that_cannot_be_exported_is_told_in_one_line(run):
    for package in ("onnxruntime", "onnx", "onnxscript"):
        pytest.importorskip(package)
    folder = run("unexportable", backend="onnxruntime")
    status = folder.status()
    assert (status.state, status.cause_kind) == ("failed", "usage")
    assert status.cause.startswith("this model cannot be exported to ONNX: ")
    assert not [name for name in os.listdir(folder.path) if name.startswith("onnx-")]
