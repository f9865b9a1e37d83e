"""A recording made by hand, and commands in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Note, Origin, Recording

ROOT = Path(__file__).resolve().parents[2]

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)"
EVIL = "=evil\x1b[2J"


def recording(steps: int = 2) -> Recording:
    """One device, three kernels a step: a matrix multiply of 60 us, a normalization of 30 us, an unknown one of 10 us."""
    kernels, operators, starts = [], [], []
    for step in range(steps):
        begin = step * 200_000
        starts.append(begin)
        for place, (operator, kernel, group, cls, rule, dur) in enumerate(
            (
                ("aten::addmm", GEMM, "matmul", "gemm", "kernels.toml:gemm", 60_000),
                ("aten::layer_norm", NORM, "normalization", "nongemm", "operators.toml:norm", 30_000),
                ("mine::evil", EVIL, "unclassified", "unclassified", "", 10_000),
            )
        ):
            number = 3 * step + place
            operators.append(
                {
                    "op_id": number, "name": operator, "start_ns": begin + 10_000 * place, "dur_ns": 8_000, "self_ns": 8_000,
                    "thread_id": 1, "step": step, "device_ns": dur, "group": group, "class": cls, "rule": rule,
                }
            )  # fmt: skip
            kernels.append(
                {
                    "kind": "kernel", "name": kernel, "device": "cuda:0", "stream": 7, "start_ns": begin + 50_000 + 20_000 * place,
                    "dur_ns": dur, "grid": "64x1x1", "block": "256x1x1", "threads": 16_384, "correlation": number + 1,
                    "op_id": number, "launch_ns": begin + 10_000 * place + 1_000, "step": step, "group": group, "class": cls,
                    "rule": rule, "sm_pct": 50.0, "dram_pct": 20.0, "source": "ncu",
                }
            )  # fmt: skip
    walls = pd.DataFrame({"step": np.arange(steps), "start_ns": starts, "dur_ns": 180_000, "thread_id": 1})
    return Recording(
        OPERATORS.conform(pd.DataFrame(operators)),
        KERNELS.conform(pd.DataFrame(kernels)),
        STEPS.conform(walls),
        RUNTIME.empty(),
        devices=(Device("cuda:0", "NVIDIA Test GPU"),),
        origin=Origin("kineto", base_ns=0),
        notes=(Note("dropped", "events without a duration were left out", 3),),
    )


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


def process(*words: str, script: str = "", **kwargs: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, or a Python script that may look around after it."""
    code = script or "import sys; from tui.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **kwargs.pop("env", {})}  # type: ignore[dict-item]
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        **kwargs,
    )  # type: ignore[call-overload,no-any-return]
