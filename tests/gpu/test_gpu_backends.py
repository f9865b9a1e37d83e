"""Backends, quantization and counters on a real GPU. What is not installed here is skipped, and says so."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from profilers.analysis.fusion import FUSION, decode
from profilers.analysis.registry import TABLES
from profilers.rules.taxonomy import CLASSES


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("backend", ["inductor", "inductor:reduce-overhead"])
def test_triton_kernels_know_what_they_fuse(finished, backend):
    needs("triton")
    recording = finished("module", backend=backend).recording()
    known = decode(recording.origin.extra.get(FUSION, ""))
    fused = {str(name) for name in recording.kernels["name"].unique() if str(name).startswith("triton_")}
    assert fused and fused <= set(known), fused - set(known)
    frame = TABLES["fusion"].compute(recording)
    parts = frame[[f"{name}_us" for name in CLASSES]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(frame["time_us"].to_numpy(), rel=1e-9)


def test_onnxruntime_runs_on_the_gpu(finished):
    needs("onnxruntime", "onnx", "onnxscript")
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has no CUDAExecutionProvider")
    recording = finished("module", backend="onnxruntime", dtype="fp16").recording()
    kernels = recording.kernels[recording.kernels["kind"] == "kernel"]
    assert len(kernels) and (kernels["device"] == "cuda:0").all()
    assert float((kernels["class"] == "gemm").mean()) > 0


def test_tensorrt_times_its_layers(finished):
    needs("tensorrt", "onnx", "onnxscript")
    recording = finished("module", backend="tensorrt:layers", dtype="fp16").recording()
    kernels = recording.kernels
    assert len(kernels) and (kernels["device"] == "cuda:0").all() and (kernels["dur_ns"] > 0).any()
    assert kernels["class"].eq("gemm").any()
    # What TensorRT says that its layers took lies within what the runs took.
    inside = kernels.groupby("step")["dur_ns"].sum()
    walls = recording.steps.set_index("step")["dur_ns"]
    assert (inside <= walls.loc[inside.index]).all()


@pytest.mark.parametrize("quant", ["int8wo", "int8dyn", "fp8"])
def test_torchao(finished, quant):
    needs("torchao")
    import torch

    if quant == "fp8" and torch.cuda.get_device_capability(0) < (8, 9):
        pytest.skip("this GPU has no float8")
    run = finished("module", quant=quant)
    assert any(note.startswith(f"{quant} by torchao") for note in run.status().notes)


@pytest.mark.parametrize("quant", ["llmint8", "nf4"])
def test_bitsandbytes(finished, quant):
    needs("bitsandbytes")
    run = finished("module", quant=quant, dtype="fp16")
    groups = TABLES["groups"].compute(run.recording()).set_index("group")
    assert "quantization" in groups.index


def test_counters_or_the_reason_why_not(finished):
    if shutil.which("ncu") is None:
        pytest.skip("ncu is not on PATH")
    run = finished("module", counters="six", windows=2)
    note = next(note for note in run.status().notes if "counters" in note)
    kernels = run.recording().kernels
    if note.startswith("no counters"):
        assert "ncu" not in set(kernels["source"])
        pytest.skip(note)
    products = kernels[kernels["class"] == "gemm"]
    assert (products["source"] == "ncu").mean() > 0.9
    assert products["sm_pct"].between(0, 100).all() and products["tensor_pct"].max() > 0
