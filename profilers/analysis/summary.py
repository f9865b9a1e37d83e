"""How much ran on each device, how busy it was, how much of it was matrix multiply; and the notes of a recording.

``gemm_pct`` holds attention where ``Options.attention_as_gemm`` says so (the default); then
``gemm + nongemm + communication + unclassified = 100`` and ``attention_pct`` is a part of ``gemm_pct``. With the option
off the five add up to 100.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import intervals
from profilers.analysis.options import Options
from profilers.analysis.tally import codes
from profilers.analysis.view import View, is_cpu, pct, view
from profilers.rules.taxonomy import ATTENTION, CLASSES, COMMUNICATION, NONGEMM, UNCLASSIFIED
from profilers.tables import NONE, Note, Recording, merge_notes

_COLUMNS = [
    "device", "device_name", "kernels", "distinct_kernels", "distinct_operators", "kernel_time_us", "busy_us", "span_us",
    "idle_us", "gemm_pct", "attention_pct", "nongemm_pct", "communication_pct", "unclassified_pct",
    "unlaunched_kernels", "dropped_events", "steps",
]  # fmt: skip


def summary(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per device with activity. ``busy_us`` is the union over kernels, copies and sets; ``span_us`` first start
    to last end; ``dropped_events`` those whose duration is not believed (they count nowhere else)."""
    v = view(recording)
    names = {device.id: device.name for device in recording.devices}
    gemm = v.gemm_like(options)
    name_codes = codes(v.kernels["name"])
    launched = v.kernels["launch_ns"].to_numpy() != NONE
    # Nsight Compute measures kernels one by one and knows no launches.
    has_launches = recording.origin.kind != "ncu"
    rows = []
    for index, device in enumerate(v.devices):
        mine = v.is_kernel & (v.device == index)
        time = v.time_ns(mine)
        begin, end, _ = v.segments(index)
        low, high = v.span(index)
        busy = intervals.union_length(begin, end)
        share = {name: pct(v.time_ns(mine & (v.cls == code)), time) for code, name in enumerate(CLASSES)}
        kernels = np.flatnonzero(mine)
        rows.append(
            (
                device,
                names.get(device, ""),
                kernels.size,
                np.unique(name_codes[kernels]).size,
                distinct_operators(v, kernels),
                time / 1e3,
                busy / 1e3,
                (high - low) / 1e3,
                (high - low - busy) / 1e3,
                pct(v.time_ns(mine & gemm), time),
                share[ATTENTION],
                share[NONGEMM],
                share[COMMUNICATION],
                share[UNCLASSIFIED],
                int((mine & ~launched).sum()) if has_launches and not is_cpu(device) else 0,
                int((~v.believed & (v.device == index)).sum()),
                len(v.device_steps(index)),
            )
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def distinct_operators(v: View, kernels: intervals.Ints) -> int:
    """Distinct names of the outermost operators that launched these kernels."""
    inner = v.operator_row[kernels]
    outer = v.outermost[inner[inner >= 0]] if len(v.operators) else np.zeros(0, np.int64)
    return int(np.unique(codes(v.operators["name"])[outer[outer >= 0]]).size)


def notes(recording: Recording, options: Options) -> pd.DataFrame:
    """What was dropped, repaired, not attributed or assumed: the reader's and the pipeline's notes, and what follows
    from the tables themselves."""
    known = {note.code for note in recording.notes}
    found = merge_notes((*recording.notes, *(n for n in _counted(recording) if n.code not in known)))
    return pd.DataFrame([(note.code, note.count, note.text) for note in found], columns=["code", "count", "text"])


def _counted(recording: Recording) -> list[Note]:
    v = view(recording)
    gpu = np.array([not is_cpu(device) for device in v.devices] + [False])[v.device]
    kernels = v.is_kernel & gpu
    unlaunched = (recording.origin.kind != "ncu") & kernels & (v.kernels["launch_ns"].to_numpy() == NONE)
    unlinked = kernels & ~unlaunched & (v.operator_row == NONE)
    copies = v.believed & ~v.is_kernel
    unclassified = v.is_kernel & (v.cls == CLASSES.index(UNCLASSIFIED))
    replayed = kernels & v.kernels["graph"].to_numpy()
    total = v.time_ns(v.is_kernel)
    found = [
        (copies, "copies", f"copies and sets ({v.dur[copies].sum() / 1e3:,.0f} us): in busy and wall time, no kernels"),
        (unlaunched, "unlaunched_kernels", _part("kernels launched before the recording began", v, unlaunched, total)),
        (unlinked, "unlinked_kernels", _part("kernels launched outside any operator", v, unlinked, total)),
        (
            replayed,
            "graph_replays",
            _part("kernels replayed from a graph: classified by name only", v, replayed, total),
        ),
        (unclassified, "unclassified_kernels", _part("kernels that no rule classifies", v, unclassified, total)),
    ]
    notes_ = [Note(code, text, int(mask.sum())) for mask, code, text in found if mask.any()]
    outside = _outside_steps(v)
    if outside:
        text = "us of device activity outside the steps' intervals: not in the wall share"
        notes_.append(Note("outside_steps", text, outside))
    return notes_


def _part(what: str, v: View, mask: np.ndarray, total: int) -> str:
    return f"{what} ({pct(v.time_ns(mask), total):.1f} % of kernel time)"


def _outside_steps(v: View) -> int:
    """Microseconds during which a device was busy outside all steps, summed over devices."""
    lost = 0
    for index in range(len(v.devices)):
        if not v.windows(index)[0].size:
            continue
        begin, end, _ = v.segments(index)
        starts, ends = intervals.union(begin, end)
        lost += int((ends - starts).sum() - intervals.covered(starts, ends, *v.windows(index)).sum())
    return lost // 1000
