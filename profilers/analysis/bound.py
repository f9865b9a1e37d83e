"""The roofline's lower bound of a step on every device of the peaks table: computed from shapes, never measured.

Each kernel takes at least the greater of its operations over the device's peak for their type and its bytes over the
memory bandwidth (Williams, Waterman and Patterson, "Roofline", 2009). The bound of a step is the sum over its kernels as
they are; fusing them could go below it, down to the greater of ``compute_ms`` and ``memory_ms``.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks, known_devices
from profilers.analysis.rates import kernel_dtypes
from profilers.analysis.view import ATTENTION_CODE, GEMM_CODE, view
from profilers.tables import Recording

MEMORY = "memory_bytes"
"""Key of ``Origin.extra``: bytes that a step needs of a device's memory at the worst moment, where that was estimated."""

_SLACK = 1.05
"""A caching allocator holds more than is alive (rounding, fragments)."""

_COLUMNS = ["device", "dtype", "bound_ms", "compute_ms", "memory_ms", "limit", "memory_gb", "fits"]


def bound(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per device of the table; fastest first. Times are of one step (of the whole where no steps were recorded),
    on the device of the recording with most kernels where it has several.

    A device that does not compute in a type that occurs has no bound, and ``limit`` says why. Kernels whose operations
    and bytes are not known add nothing, so the bound stays one; where none are known (no shapes) there is no row.
    """
    v = view(recording)
    if not v.rows.size:
        return pd.DataFrame(columns=_COLUMNS)
    device = int(np.bincount(v.device[v.rows]).argmax())
    rows = v.rows[v.device[v.rows] == device]
    codes, names = kernel_dtypes(recording)
    heavy = (v.cls == GEMM_CODE) | (v.cls == ATTENTION_CODE)
    flops, moved = (np.nan_to_num(v.kernels[name].to_numpy()[rows]) for name in ("flops", "bytes"))
    if not flops.any() and not moved.any():
        return pd.DataFrame(columns=_COLUMNS)  # without shapes nothing is known: zero would read as an answer
    # Everything that is no matrix multiply runs on the general units, at their fp32 rate.
    kind = np.where(heavy[rows], codes[rows], len(names))
    steps = max(len(v.device_steps(device)), 1)
    work = np.bincount(kind, flops, minlength=len(names) + 1)
    needs = [name for name, amount in zip(names, work[:-1], strict=True) if amount > 0]
    most = max(needs, key=lambda name: work[names.index(name)], default="")
    needed = recording.origin.extra.get(MEMORY, "")
    memory = int(needed) * _SLACK / 1e9 if needed.isdecimal() else math.nan
    found = [_row(peaks, names, kind, flops, moved, work, steps) for peaks in known_devices()]
    frame = tally.frame(
        device=[peaks.name for peaks in known_devices()],
        dtype=most,
        bound_ms=[row[0] for row in found],
        compute_ms=[row[1] for row in found],
        memory_ms=[row[2] for row in found],
        limit=[row[3] for row in found],
        memory_gb=[peaks.memory_gb for peaks in known_devices()],
        fits=[_fits(memory, peaks.memory_gb) for peaks in known_devices()],
    )
    return frame.sort_values("bound_ms", kind="stable", ignore_index=True)


def _row(
    peaks: Peaks, names: list[str], kind: np.ndarray, flops: np.ndarray, moved: np.ndarray, work: np.ndarray, steps: int
) -> tuple[float, float, float, str]:
    """Bound, compute and memory time in ms a step, and what limits it."""
    rates = np.array([*(peaks.tflops(name) for name in names), peaks.fp32]) * 1e12
    memory_ms = float(moved.sum() / (peaks.memory_gb_s * 1e9) * 1e3 / steps)
    missing = [name for name, rate, amount in zip(names, rates[:-1], work[:-1], strict=True) if amount and rate != rate]
    if missing:
        return math.nan, math.nan, memory_ms, f"no {missing[0]}"
    compute = np.where(flops > 0, flops / np.where(np.isnan(rates), 1.0, rates)[kind], 0.0)
    move = moved / (peaks.memory_gb_s * 1e9)
    least = np.maximum(compute, move)
    by_compute = float(least[compute >= move].sum())
    limit = "compute" if by_compute * 2 >= least.sum() else "memory"
    return float(least.sum()) * 1e3 / steps, float(compute.sum()) * 1e3 / steps, memory_ms, limit


def _fits(needed_gb: float, has_gb: float) -> str:
    if math.isnan(needed_gb) or math.isnan(has_gb):
        return ""
    return "yes" if needed_gb <= has_gb else "no"
