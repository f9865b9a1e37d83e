"""The one pipeline between a reader and the analyses, for live windows and for files alike.

``classify`` -> kernel rows of a CPU run -> operations and bytes -> estimated utilization where no counter measured it.
Running it again on its own result changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis.costs import Costs, costs, workers
from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks, recording_peaks
from profilers.analysis.rates import kernel_peaks
from profilers.analysis.tally import constant
from profilers.analysis.view import equals, is_cpu, positions
from profilers.rules.load import classify
from profilers.rules.matcher import RuleSet
from profilers.tables import KERNELS, Note, Recording

Floats = npt.NDArray[np.float64]

_MADE = ("estimate", "none")


def prepare(
    recording: Recording, *, rules: RuleSet | None = None, peaks: Mapping[str, Peaks] | None = None
) -> Recording:
    """A recording ready for every analysis. ``rules``: default are the shipped ones and the user's; ``peaks`` by device id:
    default is what is looked up by the devices' names."""
    recording = classify(recording, rules)
    priced = costs(recording.operators)
    recording = recording.replace(operators=recording.operators.assign(flops=priced.flops, bytes=priced.bytes))
    recording = cpu_kernels(recording, priced)
    recording = share_costs(recording, priced)
    return estimate(recording, priced, recording_peaks(recording, Options(peaks=peaks or {})))


def cpu_kernels(recording: Recording, priced: Costs) -> Recording:
    """Rows for a run without a device: one kernel per operator call with time of its own, ``dur_ns`` = self time.

    Nothing is added where device activities were recorded, nor where launches were but no activity came back, nor where
    the recording knows of a GPU and is cut off before anything of it (there the host's time is no work of the processor;
    a note says so). ``threads`` are the elements worked on.
    """
    operators = recording.operators
    if len(recording.kernels) or not len(operators):
        return recording
    launches = int(equals(recording.runtime["kind"], "launch").sum())
    told = any(note.code == "no_device_activity" for note in recording.notes)
    if told and (recording.devices or not equals(recording.runtime["kind"], "loading").all()):
        return recording  # a recording of a GPU that was cut off before its first kernel
    if launches:
        if told:
            return recording
        text = "launches were recorded but no device activity: host time is not shown as kernel time"
        return recording.with_notes(Note("no_device_activity", text, launches))
    rows = np.flatnonzero(operators["self_ns"].to_numpy() > 0)
    picked = operators.iloc[rows]
    start = picked["start_ns"].to_numpy()
    size = len(rows)
    frame = pd.DataFrame(
        {
            "kind": constant("kernel", size),
            "name": picked["name"].to_numpy(),
            "device": constant("cpu", size),
            "stream": picked["thread_id"].to_numpy(),
            "start_ns": start,
            "dur_ns": picked["self_ns"].to_numpy(),
            "threads": priced.items[rows],
            "op_id": picked["op_id"].to_numpy(),
            "launch_ns": start,
            "step": picked["step"].to_numpy(),
            "group": picked["group"].to_numpy(),
            "class": picked["class"].to_numpy(),
            "rule": picked["rule"].to_numpy(),
        }
    )
    return recording.replace(kernels=KERNELS.conform(frame))


def _on_cpu(kernels: pd.DataFrame) -> bool:
    """Whether the rows are those of :func:`cpu_kernels` (a recording has them only where it has no device's)."""
    return bool(len(kernels)) and is_cpu(str(kernels["device"].iloc[0]))


def share_costs(recording: Recording, priced: Costs) -> Recording:
    """Give each kernel its part of its operator's operations and bytes, by duration.

    A GEMM or attention kernel works for the nearest operator with a FLOP formula, and has its operations to itself (a
    split-K reduction beside a GEMM multiplies nothing). What a counter measured, and the bytes of a copy, stay.
    """
    kernels, operators = recording.kernels, recording.operators
    if not len(kernels) or not len(operators):
        return recording
    ids = operators["op_id"].to_numpy()
    row = positions(ids, kernels["op_id"].to_numpy())
    counted = equals(kernels["kind"], "kernel") & equals(kernels["flag"], "") & (row >= 0)
    measured = ~equals(kernels["source"], "none") & ~equals(kernels["source"], "estimate")
    dur = np.where(counted, kernels["dur_ns"].to_numpy(), 0).astype(float)
    heavy = equals(kernels["class"], "gemm") | equals(kernels["class"], "attention")
    near = workers(operators, positions(ids, operators["parent_id"].to_numpy()))[row]
    row = np.where(heavy & (row >= 0) & (near >= 0), near, row)

    def part(per_operator: Floats, eligible: npt.NDArray[np.bool_]) -> Floats:
        rows = np.flatnonzero(eligible)
        whole = np.bincount(row[rows], dur[rows], minlength=len(operators))
        number = np.bincount(row[rows], minlength=len(operators))
        out = np.full(len(kernels), np.nan)
        of = row[rows]
        # Kernels of no length share equally.
        by_time = dur[rows] / np.where(whole[of] > 0, whole[of], 1)
        weight = np.where(whole[of] > 0, by_time, 1 / np.maximum(number[of], 1))
        out[rows] = per_operator[of] * weight
        return out

    has_heavy = np.zeros(len(operators), bool)
    has_heavy[row[counted & heavy]] = True
    flops = part(operators["flops"].to_numpy(), counted & (heavy | ~has_heavy[row]))
    # On a device the launching operator's whole call counts, and whatever launches a kernel moves something.
    whole_call = np.where(priced.call_bytes > 0, priced.call_bytes, np.nan)
    moved = part(priced.bytes if _on_cpu(kernels) else whole_call, counted)
    old_flops, old_bytes = kernels["flops"].to_numpy(), kernels["bytes"].to_numpy()
    keep_flops = measured & ~np.isnan(old_flops)
    keep_bytes = (measured | ~equals(kernels["kind"], "kernel")) & ~np.isnan(old_bytes)
    kernels = kernels.assign(flops=np.where(keep_flops, old_flops, flops), bytes=np.where(keep_bytes, old_bytes, moved))
    return recording.replace(kernels=kernels)


MOST_TRAFFIC = 10
"""Bytes over the memory bandwidth times the duration, above which an estimate of bytes is none. Second-level caches of
today's GPUs deliver two to six times what their memory does."""


def estimate(recording: Recording, priced: Costs, peaks: Mapping[str, Peaks]) -> Recording:
    """SM % and DRAM % where no counter measured them: operations and bytes over duration and the device's peaks.

    Kernels without a FLOP formula are taken to do one operation for each element of their operator's largest tensor.
    Both are floors (caches, address arithmetic and waiting are not seen), cut at 100, and marked ``estimate``. On a GPU
    bytes that no cache could have delivered (:data:`MOST_TRAFFIC`) are taken back: the kernel touched a part of them.
    """
    kernels = recording.kernels
    if not len(kernels):
        return recording
    unmeasured = equals(kernels["source"], "none") | equals(kernels["source"], "estimate")
    todo = equals(kernels["kind"], "kernel") & unmeasured
    flop_peak, byte_peak = kernel_peaks(recording, peaks)
    row = positions(recording.operators["op_id"].to_numpy(), kernels["op_id"].to_numpy())
    flops = kernels["flops"].to_numpy().copy()
    guess = np.flatnonzero(np.isnan(flops) & (row >= 0))
    if _on_cpu(kernels):
        items = priced.items[row[guess]].astype(float)
        flops[guess] = np.where(items >= 0, items, np.nan)
    else:
        items = priced.call_items[row[guess]].astype(float)
        flops[guess] = np.where(items > 0, items, np.nan)
    # A kernel shorter than the recording's clock can tell has no rate.
    seconds = np.where(kernels["dur_ns"].to_numpy() > 0, kernels["dur_ns"].to_numpy() / 1e9, np.nan)
    moved = kernels["bytes"].to_numpy()
    touched_less = np.zeros(len(kernels), bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        if not _on_cpu(kernels):
            touched_less = todo & (moved > MOST_TRAFFIC * byte_peak * 1e9 * seconds)
            moved = np.where(touched_less, np.nan, moved)
            flops[guess] = np.where(touched_less[guess], np.nan, flops[guess])
        sm = np.minimum(100 * flops / seconds / (flop_peak * 1e12), 100)
        dram = np.minimum(100 * moved / seconds / (byte_peak * 1e9), 100)
    sm = np.where(todo, sm, kernels["sm_pct"].to_numpy())
    dram = np.where(todo, dram, kernels["dram_pct"].to_numpy())
    known = ~np.isnan(sm) | ~np.isnan(dram)
    source = kernels["source"].cat.set_categories(list(dict.fromkeys([*kernels["source"].cat.categories, *_MADE])))
    source[todo] = np.where(known[todo], "estimate", "none")
    kernels = kernels.assign(bytes=moved, sm_pct=sm, dram_pct=dram, source=source.cat.remove_unused_categories())
    notes = []
    if touched_less.any():
        text = (
            f"kernels whose operator's tensors are more than {MOST_TRAFFIC} x what the device's memory delivers in their "
            "time (a cache of keys, an embedding table): they touched a part, and bytes are unknown"
        )
        notes.append(Note("bytes_unknown", text, int(touched_less.sum())))
    if (todo & known).any():
        where = "; ".join(sorted({f"{p.name}: {p.cite or p.source}" for p in peaks.values()}))
        text = f"SM % and DRAM % are estimates from shapes over peaks: {where}"
        notes.append(Note("utilization_estimated", text, int((todo & known).sum())))
    if (todo & ~known).any():
        text = "kernels without counters, and without recorded shapes, a length or a known device peak: utilization unknown"
        notes.append(Note("utilization_unknown", text, int((todo & ~known).sum())))
    have = {note.code for note in recording.notes}
    return recording.replace(kernels=kernels).with_notes(*(note for note in notes if note.code not in have))
