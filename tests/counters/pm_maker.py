"""Kernels with known percentages, and the samples that performance monitors would give of them: exact averages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from profilers.analysis.intervals import covered, cut, union
from profilers.readers.pm_samples import ROLES, PmFile

BUSY, DRAM, ISSUE, TENSOR = (ROLES[role][0][0] for role in ("busy", "dram", "issue", "tensor"))
EPOCH = 1_700_000_000_000_000_000
STEP_AT = 1_000_000
"""The step begins so long after the trace's own zero: a time of 0 means something else there."""


@dataclass(frozen=True)
class Ran:
    """An activity: when (ns from the step's begin), on which stream, and what it did, in % of peak."""

    name: str
    start: int
    dur: int
    issue: float = 0.0
    dram: float = 0.0
    tensor: float = 0.0
    stream: int = 7
    kind: str = "kernel"
    grid: int = 100

    @property
    def end(self) -> int:
        return self.start + self.dur


def after(*kernels: tuple[str, int, float, float, float], gap: int = 2_000, start: int = 0) -> list[Ran]:
    """Kernels one after the other, ``gap`` ns apart: name, length, issue %, DRAM %, tensor %."""
    made = []
    for name, dur, issue, dram, tensor in kernels:
        made.append(Ran(name, start, dur, issue, dram, tensor))
        start += dur + gap
    return made


def sampled(ran: list[Ran], interval: int, *, margin: int = 400_000, phase: int = 0) -> dict[str, np.ndarray]:
    """Samples of ``interval`` ns from ``margin`` before the first activity to as long after the last.

    Busy is the share of a sample in which any kernel ran; the other quantities are sums over what ran, by time. Times
    are nanoseconds from the step's begin.
    """
    first, last = min(one.start for one in ran) - margin + phase, max(one.end for one in ran) + margin
    start = np.arange(first, last, interval, dtype=np.int64)
    end = start + interval
    values = np.zeros((4, len(start)))
    for one in ran:
        share = np.clip(np.minimum(end, one.end) - np.maximum(start, one.start), 0, None) / interval
        values += np.array([[0.0], [one.issue], [one.dram], [one.tensor]]) * share
    # Exactly, by edges: the union of intervals within each sample.
    edges = sorted({edge for one in ran for edge in (one.start, one.end)})
    for left, right in pairwise(edges):
        if any(one.start <= left and one.end >= right and one.kind == "kernel" for one in ran):
            values[0] += 100 * np.clip(np.minimum(end, right) - np.maximum(start, left), 0, None) / interval
    return {"start": start, "end": end, "busy": values[0], "issue": values[1], "dram": values[2], "tensor": values[3]}


def sampled_again(
    kernels: pd.DataFrame, interval: int, truth: np.ndarray, *, noise: float = 3.0
) -> dict[str, np.ndarray]:
    """Samples of a recorded timeline: ``truth`` is the DRAM % of each activity. Busy has noise, and counts 1.5 us to either
    side of a kernel: units are active a little before its first and after its last instruction's time stamp."""
    begin = kernels["start_ns"].to_numpy()
    over = begin + kernels["dur_ns"].to_numpy()
    edges = np.arange(begin.min() - 5_000_000, over.max() + 5_000_000, interval)
    start, end, row, place = cut(begin, over, edges)
    size = len(edges) - 1
    wide = union(begin - 1_500, over + 1_500)
    busy = 100 * covered(edges[:-1], edges[1:], *wide) / interval + np.random.default_rng(0).normal(0, noise, size)
    dram = np.bincount(place, (end - start) * truth[row], minlength=size) / interval
    return {"start": edges[:-1], "end": edges[1:], "busy": np.clip(busy, 0, 100), "dram": dram}


def samples_file(path: Path, made: dict[str, np.ndarray], shift: int, **changes: Any) -> Path:
    """The samples as the collector writes them, ``shift`` ns later than :func:`trace_file` has the same step."""
    at = EPOCH + STEP_AT + shift
    start, end = made["start"] + at, made["end"] + at
    given: dict[str, Any] = {
        "metrics": [BUSY, TENSOR, DRAM, ISSUE],
        "asked": int(made["end"][0] - made["start"][0]),
        "start": start.tolist(),
        "end": end.tolist(),
        "values": np.column_stack([made["busy"], made["tensor"], made["dram"], made["issue"]]).tolist(),
        "anchors": [(EPOCH - 10_000_000, 1_000), (EPOCH + int(made["end"][-1]) + 10_000_000, 900_000)],
    }
    path.write_bytes(msgspec.json.encode(PmFile(**{**given, **changes})))
    return path


def trace_file(path: Path, ran: list[Ran]) -> Path:
    """torch.profiler's trace of the same step: one operator a kernel, begun 5 us earlier."""
    events: list[dict[str, Any]] = []

    def event(cat: str, name: str, at: int, dur: int, tid: int, pid: int = 1, **args: Any) -> None:
        ts = {"ts": (at + STEP_AT) / 1000, "dur": dur / 1000}
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **ts, "args": args})

    for number, one in enumerate(ran, start=1):
        at = one.start - 50_000
        event("cpu_op", "aten::op", at, 1000, 1)
        event("cuda_runtime", "cudaLaunchKernel", at + 200, 300, 1, correlation=number)
        where = {"device": 0, "stream": one.stream, "correlation": number}
        if one.kind == "kernel":
            where |= {"grid": [one.grid, 1, 1], "block": [128, 1, 1]}
        cat = "kernel" if one.kind == "kernel" else "gpu_memcpy"
        event(cat, one.name, one.start, one.dur, one.stream, 0, **where)
    head = {"schemaVersion": 1, "baseTimeNanoseconds": EPOCH, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return path
