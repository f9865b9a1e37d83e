"""Runs that differ only in batch and sequence: the curve of step time, and where they turn from launch-bound to device-bound.

A step is launch-bound while the device is idle for half of it or more: then a larger batch costs almost nothing. The idle
share is worked out of the busy time of the recorded steps over the step time without the profiler, because the profiler
slows the host and so lengthens the waits; without such a step time it is that of the recorded steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profilers.analysis import intervals
from profilers.analysis.options import Options
from profilers.analysis.registry import Col, Table
from profilers.analysis.view import View, is_cpu, pct, view
from profilers.tables import Recording

SWEEP = Table(
    "sweep",
    "How does the step grow with batch and sequence, and where does it turn from launch-bound to device-bound?",
    (
        Col("workload", "workload"),
        Col("batch", "batch", "count"),
        Col("seq", "seq", "count"),
        Col("items", "items", "count", doc="samples, tokens ... in one step"),
        Col(
            "step_us",
            "step",
            "us",
            doc="without the profiler where that was timed, else the mean of the recorded steps",
        ),
        Col("item_us", "an item", "us"),
        Col("gemm_pct", "GEMM", "pct", "of kernel time"),
        Col("idle_pct", "idle", "pct", "of step time"),
        Col("bound", "bound"),
        Col("mark", "turns here"),
    ),
    "",
)

IDLE_EDGE = 50.0
"""From this share of idle time on a step is launch-bound."""

ELASTIC = 0.5
"""Where the step time grows by less than the square root of the size, size costs little: launch-bound."""


@dataclass(frozen=True)
class Point:
    """One run of a sweep. ``step_us``: unprofiled step time, NaN where it was not timed."""

    workload: str
    batch: int
    seq: int | None
    items: int
    step_us: float
    recording: Recording

    @property
    def size(self) -> int:
        """What is swept: batch times sequence."""
        return max(self.batch, 1) * (self.seq or 1)


@dataclass(frozen=True)
class Turn:
    """Where a sweep turns: at about which ``size``, and by which sign (``idle`` crosses the edge, or the ``knee`` of the
    step time). ``row``: the first point that is device-bound."""

    size: float
    how: str
    row: int


def sweep(points: Sequence[Point], options: Options) -> pd.DataFrame:
    """One row per run, by workload and size, as :data:`SWEEP` says; ``mark`` names the first device-bound one."""
    rows: list[tuple[object, ...]] = []
    for workload in dict.fromkeys(point.workload for point in points):
        part = sorted((p for p in points if p.workload == workload), key=lambda p: (p.size, p.batch))
        steps = [_step_us(p) for p in part]
        idle = [idle_pct(p) for p in part]
        turn = find_turn([p.size for p in part], steps, idle)
        bound = _bounds(idle, turn)
        for index, point in enumerate(part):
            rows.append(
                (
                    workload,
                    point.batch,
                    point.seq if point.seq is not None else -1,
                    point.items,
                    steps[index],
                    steps[index] / point.items if point.items else math.nan,
                    _gemm_pct(view(point.recording), options),
                    idle[index],
                    bound[index],
                    said(turn) if turn is not None and turn.row == index else "",
                )
            )
    return pd.DataFrame(rows, columns=[column.name for column in SWEEP.columns])


def said(turn: Turn) -> str:
    """A turn in words."""
    by = (
        f"idle passes {IDLE_EDGE:.0f} % of step time"
        if turn.how == "idle"
        else "from here on the step grows with the size"
    )
    return f"device-bound from a batch x sequence of about {turn.size:,.0f}: {by}"


def find_turn(sizes: Sequence[float], steps: Sequence[float], idle: Sequence[float]) -> Turn | None:
    """Where a sweep (in order of size) turns device-bound. By the idle share where it is known and crosses the edge, in
    between by the logarithm of the size; where idle is known nowhere, by the knee of the step time; else None."""
    if all(math.isnan(share) for share in idle):
        return _knee(sizes, steps)
    for index in range(1, len(sizes)):
        before, after = idle[index - 1], idle[index]
        if before >= IDLE_EDGE > after:
            part = (before - IDLE_EDGE) / (before - after)
            low, high = math.log(sizes[index - 1]), math.log(sizes[index])
            return Turn(math.exp(low + part * (high - low)), "idle", index)
    return None


def _knee(sizes: Sequence[float], steps: Sequence[float]) -> Turn | None:
    """The first size behind a flat part from which on the step grows at least with the square root of the size."""
    flat = False
    for index in range(1, len(sizes)):
        if not (steps[index] > 0 and steps[index - 1] > 0 and sizes[index] > sizes[index - 1]):
            continue
        slope = math.log(steps[index] / steps[index - 1]) / math.log(sizes[index] / sizes[index - 1])
        if slope >= ELASTIC and flat:
            return Turn(float(sizes[index - 1]), "knee", index - 1)
        flat = flat or slope < ELASTIC
    return None


def _bounds(idle: Sequence[float], turn: Turn | None) -> list[str]:
    """What holds each point: launches or the device; overheads where only the step time says so; '' where nothing does."""
    out = []
    for index, share in enumerate(idle):
        if not math.isnan(share):
            out.append("launch-bound" if share >= IDLE_EDGE else "device-bound")
        else:
            out.append("" if turn is None else "device-bound" if index >= turn.row else "overhead-bound")
    return out


def _step_us(point: Point) -> float:
    if point.step_us > 0:
        return point.step_us
    steps = point.recording.steps["dur_ns"].to_numpy()
    return float(steps.mean()) / 1e3 if steps.size else math.nan


def idle_pct(point: Point) -> float:
    """Idle share of the step, over the GPUs; NaN on a CPU (it is never idle in its own step) and without steps."""
    v = view(point.recording)
    busy = length = 0.0
    for device, name in enumerate(v.devices):
        if is_cpu(name) or not v.windows(device)[0].size:
            continue
        begin, end, _ = v.segments(device)
        busy += float(intervals.covered(*intervals.union(begin, end), *v.windows(device)).sum())
        count = len(v.device_steps(device))
        begin, end = v.windows(device)
        length += count * point.step_us * 1e3 if point.step_us > 0 else float((end - begin).sum())
    return 100.0 * max(1.0 - busy / length, 0.0) if length else math.nan


def _gemm_pct(v: View, options: Options) -> float:
    return pct(v.time_ns(v.gemm_like(options)), v.time_ns(np.ones(len(v.kernels), bool)))
