"""Runs to look at, made by hand: small, always the same, written as the supervisor writes them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profilers.analysis.prepare import prepare
from profilers.collectors.telemetry.base import Sample
from profilers.runs.folder import RunFolder
from profilers.runs.spec import Spec
from profilers.runs.status import own_identity
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Origin, Recording

US = 1_000

LAYER = (
    # operator, shapes, dtype, kernel, microseconds, blocks
    (
        "aten::addmm",
        "[[768],[2048,3072],[3072,768],[],[]]",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
        40,
        512,
    ),
    (
        "aten::native_layer_norm",
        "[[2048,768],[],[768],[768],[]]",
        "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)",
        9,
        2048,
    ),
    (
        "aten::gelu",
        "[[2048,3072],[]]",
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>",
        12,
        1536,
    ),
    (
        "aten::add",
        "[[2048,768],[2048,768],[]]",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>",
        6,
        384,
    ),
    (
        "aten::copy_",
        "[[12,64],[12,64],[]]",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>",
        2,
        1,
    ),
)


def gpu_recording(layers: int = 6, steps: int = 2, factor: int = 1, device: str = "cuda:0") -> Recording:
    """A GPU recording: per step ``layers`` times five operators with one kernel each, and idle time between launches."""
    operators: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    launches: list[dict[str, Any]] = []
    step_rows = []
    now = 1_000 * US
    for step in range(steps):
        begin = now
        device_free = now + 20 * US
        for _ in range(layers):
            for name, shapes, kernel, length, blocks in LAYER:
                op_id = len(operators)
                operators.append(
                    {
                        "op_id": op_id,
                        "name": name,
                        "start_ns": now,
                        "dur_ns": 10 * US,
                        "self_ns": 10 * US,
                        "thread_id": 1,
                        "step": step,
                        "input_shapes": shapes,
                        "input_dtypes": '["c10::BFloat16","c10::BFloat16","c10::BFloat16"]',
                        "device_ns": length * factor * US,
                    }
                )
                start = max(device_free, now + 8 * US)
                launches.append(
                    {
                        "name": "cudaLaunchKernel",
                        "kind": "launch",
                        "thread_id": 1,
                        "start_ns": now + 4 * US,
                        "dur_ns": 3 * US,
                        "correlation": op_id,
                    }
                )
                kernels.append(
                    {
                        "kind": "kernel",
                        "name": kernel,
                        "device": device,
                        "stream": 7,
                        "start_ns": start,
                        "dur_ns": length * factor * US,
                        "grid": f"{blocks}x1x1",
                        "block": "128x1x1",
                        "threads": blocks * 128,
                        "correlation": op_id,
                        "op_id": op_id,
                        "launch_ns": now + 4 * US,
                        "step": step,
                    }
                )
                device_free = start + length * factor * US
                now += 14 * US
        now = max(now, device_free) + 30 * US
        step_rows.append({"step": step, "start_ns": begin, "dur_ns": now - begin, "thread_id": 1})
        now += 10 * US
    raw = Recording(
        OPERATORS.conform(pd.DataFrame(operators)),
        KERNELS.conform(pd.DataFrame(kernels)),
        STEPS.conform(pd.DataFrame(step_rows)),
        RUNTIME.conform(pd.DataFrame(launches)),
        (Device(device, "NVIDIA H100 80GB HBM3", "cuda", 132, 80 * 1024**3),),
        Origin("run"),
    )
    return prepare(raw)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def recording() -> Callable[..., Recording]:
    """Makes the recording of one window."""
    return gpu_recording


MakeRun = Callable[..., RunFolder]


@pytest.fixture
def make_run(root: Path) -> MakeRun:
    """``make_run(name, state=..., windows=2, ...)`` writes a run folder."""

    def make(
        name: str = "gpt2",
        *,
        state: str = "finished",
        windows: int = 2,
        total: int = 4,
        cause: str = "",
        target: str = "catalogue",
        device: str = "cuda:0",
        samples: int = 0,
        log: str = "",
        layers: int = 6,
    ) -> RunFolder:
        run = RunFolder.create(
            root,
            Spec(
                name=name,
                workload=name,
                target=target,
                mode="infer",
                dtype="bf16",
                batch=8,
                seq=256,
                device=device,
                windows=total,
            ),
        )
        for number in range(1, windows + 1):
            run.write_window(number, gpu_recording(layers=layers))
        pid, start, boot = own_identity()
        status = run.status()
        status.state, status.cause = state, cause
        status.windows_total, status.windows_done = total, windows
        status.step_ms, status.step_ms_spread, status.steps_timed, status.parameters = 24.8, 0.3, 10, 124_439_808
        status.eta_s = 14.0 if status.live else None
        status.supervisor_pid, status.supervisor_start, status.boot_id = pid, start, boot
        status.created = status.started = time.time() - 5
        status.ended = None if status.live else time.time()
        run.write_status(status)
        if windows:
            run.write_summary({"gemm_pct": 58.0, "windows": windows})
        if samples:
            run.append_samples(telemetry(device, samples))
        if log:
            (run.path / "worker.log").write_text(log)
        return run

    return make


def telemetry(device: str, count: int) -> list[Sample]:
    """``count`` ticks of a device whose load goes up and down."""
    out = []
    for tick in range(count):
        t = 1_700_000_000_000_000_000 + tick * 1_000_000_000
        load = float(50 + 50 * (tick % 10) / 9)
        out += [
            Sample(t, device, "util_pct", load, "%", "nvml"),
            Sample(t, device, "power_w", 200 + 2 * load, "W", "nvml"),
            Sample(t, device, "memory_used_gb", 12.5, "GB", "nvml"),
        ]
    return out


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same terminal everywhere."""
    for name in ("NO_COLOR", "TMUX", "TEXTUAL_THEME", "KERNELSCOPE_THEME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    assert os.environ.get("KERNELSCOPE_RUNS")
