"""From the operators of a step that was never taken to the least time that they need on a device.

Each operator takes as long as the roofline allows on one device of the peaks table: the greater of its operations over
the peak of its type and its bytes over the memory bandwidth, its inputs read and its outputs written once. Operators
that move nothing (views) take none and launch nothing. They follow each other without a gap. What comes of it is marked
as computed everywhere: in the device's name, in the origin, and in a note.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks, recording_peaks
from profilers.analysis.prepare import prepare
from profilers.analysis.rates import kernel_peaks
from profilers.analysis.tally import constant
from profilers.analysis.view import positions
from profilers.rules.matcher import RuleSet
from profilers.tables import Device, Note, Recording

Ints = npt.NDArray[np.int64]

META = "meta"
"""The id of the device in such a recording."""

REFERENCE = "H100 SXM"
"""The device whose peaks stand for all: the one that most published figures are of."""

_OF_A_CPU = frozenset({"cpu_only", "utilization_estimated", "utilization_unknown"})

COMPUTED = "computed"
"""Key of ``Origin.extra``: for which device the times were computed."""


def computed(recording: Recording, *, rules: RuleSet | None = None) -> Recording:
    """A recording of the meta device (operators in order, without times) as one whose times are bounds, prepared for
    every analysis."""
    recording = prepare(recording, rules=rules)
    device = Device(META, f"NVIDIA {REFERENCE}: computed, not measured", "meta")
    # Kernel rows by self time are those of a CPU run: one for each operator that calls no other.
    kernels = recording.kernels.assign(device=constant(META, len(recording.kernels)))
    recording = recording.replace(kernels=kernels, devices=(device,))
    peaks = recording_peaks(recording, Options())
    bound, unknown = bounds_ns(recording, peaks)
    operators = _timed(recording.operators, recording.kernels["op_id"].to_numpy(), bound)
    rows = np.flatnonzero(bound > 0)
    place = positions(operators["op_id"].to_numpy(), kernels["op_id"].to_numpy()[rows])
    start = operators["start_ns"].to_numpy()[place]
    kernels = recording.kernels.iloc[rows].reset_index(drop=True)
    kernels = kernels.assign(start_ns=start, launch_ns=start, dur_ns=bound[rows])
    steps = recording.steps.assign(start_ns=0, dur_ns=int(bound.sum()))
    notes = [note for note in recording.notes if note.code not in _OF_A_CPU]
    notes.append(
        Note("computed", f"computed, not measured: every time is the least that the roofline of {REFERENCE} allows")
    )
    if unknown:
        notes.append(
            Note("uncosted", "operators whose bytes do not follow from their shapes: they take no time", unknown)
        )
    origin = replace(recording.origin, extra={**recording.origin.extra, COMPUTED: REFERENCE})
    made = recording.replace(operators=operators, kernels=kernels, steps=steps, notes=tuple(notes), origin=origin)
    return prepare(made, rules=rules)


def bounds_ns(recording: Recording, peaks: dict[str, Peaks]) -> tuple[Ints, int]:
    """The least time of each kernel in ns, rounded up, and how many are not known (they count as 0)."""
    flop_peak, byte_peak = kernel_peaks(recording, peaks)
    flops, moved = (recording.kernels[name].to_numpy() for name in ("flops", "bytes"))
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.fmax(flops / (flop_peak * 1e12), moved / (byte_peak * 1e9))
    unknown = int(np.isnan(seconds).sum())
    return np.ceil(np.nan_to_num(seconds) * 1e9).astype(np.int64), unknown


def _timed(operators: pd.DataFrame, op_ids: Ints, bound: Ints) -> pd.DataFrame:
    """The operators with times: each begins when those before it have ended, and lasts as long as it and its children."""
    size = len(operators)
    own = np.zeros(size, np.int64)
    own[positions(operators["op_id"].to_numpy(), op_ids)] = bound
    end = np.cumsum(own)
    start = end - own
    last = np.arange(size)
    parent = positions(operators["op_id"].to_numpy(), operators["parent_id"].to_numpy())
    depth = operators["depth"].to_numpy()
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero((depth == level) & (parent >= 0))
        np.maximum.at(last, parent[rows], last[rows])
    return operators.assign(start_ns=start, dur_ns=end[last] - start, self_ns=own, device_ns=0)
