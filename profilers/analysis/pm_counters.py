"""PM samples onto the kernels that they fell into: percentages without replaying anything.

A sample counts for a kernel where it lies inside it, a quarter of an interval away from either end (the clocks agree to
about an eighth), and nothing else ran on the device meanwhile. A sample that touches two activities, side by side or
one after the other, is nobody's. A kernel with three samples or more has their mean, weighted by time. One with fewer
has the mean over all samples of its launches of the same name and dimensions, where these have three together. Others,
above all those shorter than the interval, have none: dividing a sample among kernels would be a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from profilers.analysis.intervals import Floats, Ints
from profilers.analysis.pm_align import Alignment, CannotAlignError, align
from profilers.analysis.view import equals
from profilers.readers.columns import text_column
from profilers.readers.pm_samples import UNIX, UNKNOWN, PmSamples
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Note, Origin, Recording

ENOUGH = 3
"""Samples that make a value."""
GUARD = 0.25
"""Of an interval, at both ends of a kernel."""

FLOOR = "pm_sm_floor"
"""The note that SM % is a lower bound: of every recording that gets these counters."""
TOOL = "CUPTI PM sampling"
NO_KERNELS = (
    "torch.profiler recorded no kernel while CUPTI sampled: this version of CUPTI cannot do both at once; "
    "use --counters six"
)


@dataclass(frozen=True)
class Coverage:
    """What came of it. ``time_pct``: % of kernel time of the kernels that have values. ``shared``: samples with work in
    which more than one activity ran, of ``working``, those with any."""

    kernels: int
    covered: int
    pooled: int
    time_pct: float
    samples: int
    working: int
    shared: int
    interval_ns: int
    clock: str
    alignment: Alignment

    def lines(self) -> tuple[str, str]:
        """For people: how it was sampled, and what that reached."""
        found = self.alignment
        clock = {UNIX: "the host's clock", UNKNOWN: "a clock of their own"}.get(self.clock, "torch's clock")
        place = f"shifted by {found.shift_ns / 1000:,.3g} us"
        if found.estimated:
            place = "placed where they match" if self.clock == UNKNOWN else f"which does not fit: {place} to match"
        share = 100 * self.covered / self.kernels if self.kernels else 0.0
        nobody = 100 * self.shared / self.working if self.working else 0.0
        how = (
            f"one step sampled every {self.interval_ns / 1000:,.3g} us while it ran: {self.samples:,} samples on {clock} "
            f"({place}, correlation {found.agreement:.2f})"
        )
        reached = (
            f"samples gave values to {self.covered:,} of {self.kernels:,} kernels ({share:.1f} %), "
            f"{self.time_pct:.1f} % of kernel time, {self.pooled:,} of them from launches alike; "
            f"{self.shared:,} of {self.working:,} samples with work ({nobody:.1f} %) saw more than one kernel or copy "
            "and are nobody's"
        )
        return how, reached


def measured(trace: Recording, samples: PmSamples) -> tuple[Recording, Coverage]:
    """The kernels of ``trace`` with the counters of ``samples`` (``source`` = ``cupti``), ready to be joined to others.

    ``sm_pct``, ``dram_pct``, ``tensor_pct`` are % of the sustained peak over the elapsed time. Kernels without a value
    keep their row, so that later ones are not taken for them. Raises
    :class:`~profilers.analysis.pm_align.CannotAlignError` where samples and kernels do not go together.
    """
    activities = trace.kernels
    is_kernel = equals(activities["kind"], "kernel")
    if not is_kernel.any():
        raise CannotAlignError(NO_KERNELS)
    begin = activities["start_ns"].to_numpy(np.int64)
    over = begin + activities["dur_ns"].to_numpy(np.int64)
    base = trace.origin.base_ns
    known = samples.clock != UNKNOWN and base is not None
    # Into the recording's own time at once: epochs do not fit into floats.
    offset = -base if known and base is not None else int(begin.min()) - int(samples.start[0])
    start, end = samples.start + offset, samples.end + offset
    found = align(start, end, samples.busy, begin[is_kernel], over[is_kernel], known=known)
    given = _Given(activities, begin, over, start + found.shift_ns, end + found.shift_ns, samples.interval_ns)
    kernels = activities.assign(
        sm_pct=given.mean(samples.sm),
        dram_pct=given.mean(samples.dram),
        tensor_pct=given.mean(samples.tensor),
        flops=np.nan,
        bytes=np.nan,
    )
    valued = kernels[["sm_pct", "dram_pct", "tensor_pct"]].notna().any(axis=1).to_numpy()
    kernels["source"] = text_column(np.where(valued, "cupti", "none"))
    length = np.where(is_kernel, over - begin, 0)
    coverage = Coverage(
        kernels=int(is_kernel.sum()),
        covered=int(valued.sum()),
        pooled=int((valued & ~given.own).sum()),
        time_pct=float(100 * length[valued].sum() / max(length.sum(), 1)),
        samples=len(samples),
        working=int((given.running > 0).sum()),
        shared=int((given.running > 1).sum()),
        interval_ns=samples.interval_ns,
        clock=samples.clock if known else UNKNOWN,
        alignment=found,
    )
    recording = Recording(
        operators=OPERATORS.empty(),
        kernels=KERNELS.conform(kernels[is_kernel].reset_index(drop=True)),
        steps=STEPS.empty(),
        runtime=RUNTIME.empty(),
        devices=trace.devices,
        origin=Origin(kind="cupti", path=trace.origin.path, tool=TOOL),
        notes=(*samples.notes, *_said(samples, coverage)),
    )
    return recording, coverage


class _Given:
    """Which samples belong to which activity. ``running``: activities that touch each sample; ``own``: activities with
    enough samples of their own; ``pooled``: with enough among launches alike (``own`` are so too)."""

    def __init__(
        self, activities: pd.DataFrame, begin: Ints, over: Ints, start: Ints, end: Ints, interval_ns: int
    ) -> None:
        real = over > begin
        begun = np.searchsorted(np.sort(begin[real]), end, side="left")
        done = np.searchsorted(np.sort(over[real]), start, side="right")
        self.running: Ints = np.asarray(begun - done, np.int64)
        guard = int(GUARD * interval_ns)
        # Those that lie inside an activity are neighbours, from ``low`` up to ``high``.
        self._low = np.searchsorted(start, begin + guard, side="left")
        self._high = np.maximum(np.searchsorted(end, over - guard, side="right"), self._low)
        self._weight = np.where(self.running == 1, end - start, 0).astype(np.float64)
        believed = equals(activities["kind"], "kernel") & equals(activities["flag"], "")
        held = np.where(believed, self._sums(self._weight > 0), 0.0)
        keys = ["kind", "name", "grid", "block"]
        self._launch = activities.groupby(keys, observed=True, sort=False).ngroup().to_numpy(np.int64)
        self.own = held >= ENOUGH
        self.pooled = believed & (np.bincount(self._launch, held)[self._launch] >= ENOUGH)

    def mean(self, values: Floats) -> Floats:
        """The mean of a quantity for each activity, weighted by time: its own, else its launches'; NaN without."""
        told = np.isfinite(values)
        weight = self._sums(np.where(told, self._weight, 0.0))
        total = self._sums(np.where(told, self._weight * np.nan_to_num(values), 0.0))
        all_weight = np.bincount(self._launch, np.where(self.pooled, weight, 0.0))[self._launch]
        all_total = np.bincount(self._launch, np.where(self.pooled, total, 0.0))[self._launch]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.own, total / weight, np.where(self.pooled, all_total / all_weight, np.nan))

    def _sums(self, values: np.ndarray) -> Floats:
        """For each activity, the sum over the samples inside it."""
        total = np.r_[0.0, np.cumsum(values)]
        return np.asarray(total[self._high] - total[self._low], np.float64)


def _said(samples: PmSamples, coverage: Coverage) -> list[Note]:
    notes = []
    if np.isfinite(samples.sm).any():
        text = (
            "SM % of sampled kernels is the larger of issue slots and tensor pipes used: a lower bound of SM throughput"
        )
        notes.append(Note(FLOOR, text, coverage.covered))
    if coverage.pooled:
        text = "kernels too short for three samples of their own: the mean over launches alike (name and dimensions)"
        notes.append(Note("pm_pooled", text, coverage.pooled))
    if coverage.shared:
        text = f"samples, of {coverage.working:,} with work, that saw more than one kernel or copy: nobody's"
        notes.append(Note("pm_shared", text, coverage.shared))
    return notes
