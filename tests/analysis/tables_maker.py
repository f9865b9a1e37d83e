"""Small recordings made by hand, and random ones that obey the schemas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from profilers.rules.taxonomy import class_of
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Recording, Schema

US = 1_000

Row = dict[str, Any]


def _table(rows: Iterable[Row], schema: Schema) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows))
    made = schema.conform(frame) if len(frame) else schema.empty()
    assert not schema.problems(made)
    return made


def kernel(start: int, dur: int, name: str = "k", group: str = "elementwise", **more: Any) -> Row:
    """A kernel on cuda:0 that begins and lasts so many nanoseconds."""
    row = {"kind": "kernel", "device": "cuda:0", "stream": 7, "start_ns": start, "dur_ns": dur, "name": name}
    row |= {"group": group, "class": class_of(group), "launch_ns": start - 5_000, "threads": 100_000, "source": "none"}
    return row | more


def operator(
    op_id: int, start: int, dur: int, name: str = "aten::add", parent: int = -1, depth: int = 0, **more: Any
) -> Row:
    group = more.pop("group", "elementwise")
    row = {"op_id": op_id, "name": name, "start_ns": start, "dur_ns": dur, "self_ns": dur, "thread_id": 1}
    row |= {"parent_id": parent, "depth": depth, "group": group, "class": class_of(group), "device_ns": 0}
    return row | more


def step(number: int, start: int, dur: int) -> Row:
    return {"step": number, "start_ns": start, "dur_ns": dur, "thread_id": 1}


def sync(start: int, dur: int) -> Row:
    return {"name": "cudaStreamSynchronize", "kind": "sync", "thread_id": 1, "start_ns": start, "dur_ns": dur}


def recording(
    kernels: Sequence[Row] = (),
    operators: Sequence[Row] = (),
    steps: Sequence[Row] = (),
    runtime: Sequence[Row] = (),
    devices: Sequence[Device] = (Device("cuda:0", "NVIDIA H100 80GB HBM3"),),
) -> Recording:
    return Recording(
        operators=_table(operators, OPERATORS),
        kernels=_table(kernels, KERNELS),
        steps=_table(steps, STEPS),
        runtime=_table(runtime, RUNTIME),
        devices=tuple(devices),
    )


GROUPS = ("matmul", "convolution", "attention", "elementwise", "normalization", "memory", "collective", "unclassified")


def random_recording(seed: int, size: int = 400, devices: int = 2) -> Recording:
    """Overlapping streams on several devices, zero-length kernels, copies, flags, steps and unknown utilization."""
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(size):
        start = int(rng.integers(0, 1_000_000))
        group = str(rng.choice(GROUPS))
        row = kernel(start, int(rng.integers(0, 9_000)), f"{group}_{rng.integers(0, 6)}", group)
        row["device"] = f"cuda:{rng.integers(0, devices)}"
        row["stream"] = int(rng.integers(0, 3))
        row["kind"] = str(rng.choice(["kernel", "kernel", "kernel", "kernel", "memcpy"]))
        row["flag"] = "overrun" if rng.random() < 0.03 else ""
        row["threads"] = int(rng.choice([-1, 10, 5_000, 10**6]))
        row["sm_pct"], row["dram_pct"] = (
            float(rng.uniform(0, 100)) if rng.random() < 0.8 else np.nan for _ in range(2)
        )
        row["source"] = str(rng.choice(["ncu", "estimate"]))
        row["step"] = index % 3
        rows.append(row)
    steps = [step(number, 100_000 + 250_000 * number, 240_000) for number in range(3)]
    ids = tuple(Device(f"cuda:{index}", "NVIDIA H100 80GB HBM3") for index in range(devices))
    return recording(rows, steps=steps, devices=ids)
