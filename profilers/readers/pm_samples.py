"""Samples of the GPU's performance monitors (CUPTI PM sampling), as columns on a clock.

``profilers.collectors.pm_sampling`` writes them as one JSON file beside the trace of the same step. What a GPU can sample
in one pass differs by chip, so each quantity has alternatives; names and meanings are those of the table in CUPTI's
manual (section PM Sampling, "Metrics Table"). NVIDIA's ``libnvperf_host`` of CUDA 13.5, which plans passes without a GPU,
finds room in one pass for all four quantities on every chip from GA100 to GR100 that has DRAM of its own, and on Turing
for all but DRAM. ``sm__throughput``, which Nsight Compute gives, takes five to eight passes there, so that it is never
sampled: ``sm`` is the larger of the share of issue slots used and the tensor pipes' activity, two of the parts of which
that metric is the maximum, and so a lower bound of it.

Two clocks are documented for the samples' times. CUPTI's manual calls them CPU time stamps, which without a callback is
``CLOCK_REALTIME``; and its decoder converts by the same path as activity records, so that in a process in which Kineto
has registered torch's approximate clock they are ticks of that. The collector therefore notes both clocks before and
after, and which of the two it was is seen from the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from profilers.readers.errors import ReadError
from profilers.tables import Note

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_PCT = ".pct_of_peak_sustained_elapsed"

ROLES: dict[str, tuple[tuple[str, ...], ...]] = {
    "busy": ((f"gr__cycles_active.sum{_PCT}",), (f"sm__cycles_active.avg{_PCT}",)),
    "dram": (
        (f"gpu__dram_throughput.avg{_PCT}",),
        (f"dramc__read_throughput.avg{_PCT}", f"dramc__write_throughput.avg{_PCT}"),
    ),
    "issue": ((f"sm__inst_executed_realtime.avg{_PCT}",), (f"sm__inst_executed.avg{_PCT}",)),
    "tensor": ((f"sm__pipe_tensor_cycles_active_realtime.avg{_PCT}",), (f"sm__pipe_tensor_cycles_active.avg{_PCT}",)),
}
"""Quantity -> its alternatives, best first; the metrics of one alternative are added. ``busy`` says when kernels run: it
ties the samples to them."""

DROPPED, FULL = "pm_dropped", "pm_full"
"""Codes of the notes on samples that are not there."""
UNIX, TICKS, UNKNOWN = "unix", "ticks", "unknown"
_SLACK_NS = 1_000_000_000
_FAR_NS = 3_600_000_000_000
_STRETCHED = 1.5
"""The first sample after a start may span back to it, and a gap makes one long: neither is a sample of this length."""


class PmFile(msgspec.Struct, kw_only=True):
    """The file. ``asked`` is the interval in nanoseconds, or in SYS clock cycles where ``unit`` says so.

    ``values`` has one row a sample, in the order of ``metrics``; null where there is no number. ``anchors`` are readings
    of (nanoseconds since the epoch, ticks of torch's approximate clock or null) before and after. ``full``: the decoder
    had no room for more samples.
    """

    metrics: list[str]
    asked: int
    unit: str = "ns"
    start: list[int] = []
    end: list[int] = []
    values: list[list[float | None]] = []
    anchors: list[tuple[int, int | None]] = []
    full: bool = False


@dataclass(frozen=True, eq=False)
class PmSamples:
    """Samples in order of time, none overlapping: begin and end in nanoseconds, quantities in % of peak (NaN: not known).

    ``clock``: ``unix`` or ``ticks``, and times are nanoseconds since the epoch; or ``unknown``, and they are the
    file's own. ``interval_ns``: median length. ``sm`` is a lower bound of SM throughput.
    """

    start: Ints
    end: Ints
    busy: Floats
    sm: Floats
    dram: Floats
    tensor: Floats
    interval_ns: int
    clock: str
    notes: tuple[Note, ...] = ()

    def __len__(self) -> int:
        return len(self.start)


def read(path: str | Path) -> PmSamples:
    """The samples in a file. Raises :class:`ReadError` where there is none of use."""
    path = Path(path)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=PmFile)
    except (msgspec.MsgspecError, OSError) as error:
        raise ReadError(f"{path}: not samples that can be read: {' '.join(str(error).split())[:160]}") from None
    count = len(found.start)
    if len(found.end) != count or len(found.values) != count:
        raise ReadError(f"{path}: {count:,} samples begin, {len(found.end):,} end, {len(found.values):,} have values")
    if any(len(row) != len(found.metrics) for row in found.values):
        raise ReadError(f"{path}: samples with more or fewer values than the {len(found.metrics)} metrics")
    try:
        start, end = np.array(found.start, np.int64), np.array(found.end, np.int64)
    except OverflowError:
        raise ReadError(f"{path}: times that are no times") from None
    table = np.array(found.values, np.float64).reshape(count, len(found.metrics))
    usable = (start > 0) & (end > start)
    if not usable.any():
        raise ReadError(f"{path}: the GPU gave no sample: the step was shorter than one interval, or sampling is off")
    clock, start, end = _on_clock(start, end, usable, found.anchors)
    order = np.flatnonzero(usable)[np.argsort(start[usable], kind="stable")]
    kept = order[_in_order(start[order], end[order])]
    columns = {name: table[kept, column] for column, name in enumerate(found.metrics)}
    quantities = {role: _quantity(columns, role, len(kept)) for role in ROLES}
    busy, issue, tensor = quantities["busy"], quantities["issue"], quantities["tensor"]
    if not np.isfinite(busy).any():
        raise ReadError(f"{path}: no metric says when the GPU was busy, so that nothing ties samples to kernels")
    start, end = start[kept], end[kept]
    return PmSamples(
        start=start,
        end=end,
        busy=busy,
        # Tensor pipes alone say too little of an SM.
        sm=np.where(np.isnan(issue), np.nan, np.fmax(issue, tensor)),
        dram=quantities["dram"],
        tensor=tensor,
        interval_ns=max(1, int(np.median(end - start))),
        clock=clock,
        notes=tuple(_lost(count - len(kept), found.full)),
    )


def _quantity(columns: dict[str, Floats], role: str, size: int) -> Floats:
    """The first alternative that was sampled, in % (above 100 by rounding is 100)."""
    for metrics in ROLES[role]:
        if set(metrics) <= set(columns):
            return np.minimum(np.sum([columns[name] for name in metrics], axis=0), 100.0)
    return np.full(size, np.nan)


def _on_clock(start: Ints, end: Ints, usable: Bools, anchors: list[tuple[int, int | None]]) -> tuple[str, Ints, Ints]:
    """Which clock the samples' times are of, and the times in nanoseconds since the epoch where that is known."""
    middle = int(np.median(start[usable]))
    if len(anchors) >= 2:
        (unix, ticks), (later_unix, later_ticks) = anchors[0], anchors[-1]
        if unix - _SLACK_NS <= middle <= later_unix + _SLACK_NS:
            return UNIX, start, end
        if ticks is not None and later_ticks is not None and later_ticks > ticks and later_unix > unix:
            rate = (later_unix - unix) / (later_ticks - ticks)
            if unix - _SLACK_NS <= unix + (middle - ticks) * rate <= later_unix + _SLACK_NS:
                # Seen from the first reading: floats hold differences of seconds to the nanosecond, not epochs.
                begin, over = (unix + np.rint((time - ticks) * rate).astype(np.int64) for time in (start, end))
                return TICKS, begin, over
    return UNKNOWN, start, end


def _in_order(start: Ints, end: Ints) -> Bools:
    """Samples (sorted by begin) to keep: of one clock, of about the usual length, none inside another."""
    length = end - start
    usual = int(np.median(length))
    keep = (np.abs(start - int(np.median(start))) < _FAR_NS) & (length <= _STRETCHED * usual)
    reach = None
    for row in np.flatnonzero(keep).tolist():
        # Neighbours may touch by the rounding of their clock.
        if reach is not None and start[row] < reach - usual // 10:
            keep[row] = False
        else:
            reach = end[row]
    return np.asarray(keep, bool)


def _lost(dropped: int, full: bool) -> list[Note]:
    notes = []
    if dropped:
        text = "samples without a length, of another clock, stretched over a gap or inside another were left out"
        notes.append(Note(DROPPED, text, dropped))
    if full:
        notes.append(Note(FULL, "the decoder had no room for all samples: the step's end has none"))
    return notes
