"""The tables of the two studies over several workloads: what each consists of, and what they have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profilers.analysis import expansion, intervals, states, tally
from profilers.analysis.coverage import coverage_union
from profilers.analysis.options import Options
from profilers.analysis.suite_tables import SUITE, TOP, UNION
from profilers.analysis.view import View, pct, view
from profilers.rules.taxonomy import ATTENTION, CLASSES, COMMUNICATION, GEMM, UNCLASSIFIED
from profilers.tables import Recording

GEOMEAN, MEAN = "geomean", "mean"
"""Names of the two last rows."""


@dataclass(frozen=True, eq=False)
class Member:
    """One workload of a suite: its name, what was recorded, and its unprofiled step time where one was measured."""

    name: str
    recording: Recording
    step_ms: float | None = None


def suite(members: Sequence[Member], options: Options | None = None) -> pd.DataFrame:
    """One row a member, then (for two and more) the geometric means of counts, lengths, times and speed-ups over those
    where they are known and positive, and the arithmetic means of percentages. All devices of a member count together.
    """
    options = options or Options()
    names = [column.name for column in SUITE.columns]
    rows = [_row(member, options) for member in members]
    frame = pd.DataFrame(rows, columns=names)
    if len(members) < 2:
        return frame
    geomean: dict[str, object] = {"workload": GEOMEAN, "device": "", "top_state": ""}
    mean: dict[str, object] = dict(geomean, workload=MEAN)
    for column in SUITE.columns:
        if column.name in geomean:
            continue
        values = frame[column.name].to_numpy(float)
        share = column.format == "pct"
        mean[column.name] = _mean(values) if share else math.nan
        geomean[column.name] = math.nan if share else geometric_mean(values)
    # As objects: a mean of counts is no count, and None would turn the whole column into floats.
    return pd.DataFrame([*rows, geomean, mean], columns=names)


def top_operators(members: Sequence[Member], options: Options | None = None) -> pd.DataFrame:
    """One row a member: the three operators (as the model calls them) whose kernels take most of its kernel time."""
    rows = []
    for member in members:
        v = view(member.recording)
        time, names = operator_time(v)
        whole = float(time.sum())
        shares = [pct(float(value), whole) for value in time[:3]] + [0.0] * (3 - min(3, time.size))
        texts = [*names[:3], "", "", ""][:3]
        cells = [cell for pair in zip(texts, shares, strict=True) for cell in pair]
        rows.append([member.name, *cells, max(0.0, 100.0 - sum(shares)) if whole else 0.0])
    return pd.DataFrame(rows, columns=[column.name for column in TOP.columns])


def union(members: Sequence[Member], options: Options | None = None) -> pd.DataFrame:
    """How many names cover each level of every member's kernel time: the studies' 90 % and the other levels asked for."""
    options = options or Options()
    recordings = [member.recording for member in members]
    kernels: set[str] = set()
    operators: set[str] = set()
    for recording in recordings:
        v = view(recording)
        kernels.update(tally.texts(v.kernels["name"])[np.unique(tally.codes(v.kernels["name"])[v.rows])])
        operators.update(operator_time(v)[1])
    rows = []
    for level in options.coverage_levels:
        found = coverage_union(recordings, options, level).iloc[0]
        counts = [int(found[name]) for name in ("names", "gemm_names", "other_names")]
        rows.append((level, len(members), *counts, len(kernels), len(operators - {expansion.NO_OPERATOR})))
    return pd.DataFrame(rows, columns=[column.name for column in UNION.columns])


def operator_time(v: View) -> tuple[np.ndarray, list[str]]:
    """Kernel time in ns by outermost operator, longest first, and the operators' names."""
    code, names = expansion.owners(v, v.rows)
    time = tally.total(code, v.dur[v.rows], len(names))
    order = np.flatnonzero(tally.count(code, len(names)))
    order = order[np.argsort(-time[order], kind="stable")]
    return time[order], [str(names[place]) for place in order]


def _row(member: Member, options: Options) -> dict[str, object]:
    v = view(member.recording)
    time = v.time_ns(v.is_kernel)
    steps = max(len(member.recording.steps), 1)
    gemm = v.gemm_like(options)
    share = {name: pct(v.time_ns(v.is_kernel & (v.cls == code)), time) for code, name in enumerate(CLASSES)}
    gemm_pct = pct(v.time_ns(gemm), time)
    counted = (GEMM, ATTENTION, COMMUNICATION, UNCLASSIFIED)
    expanded = expansion.expansion(member.recording, options)
    expanded = expanded[expanded["operator"] != expansion.NO_OPERATOR]
    state = states.states(member.recording, options)
    return {
        "workload": member.name,
        "device": ", ".join(v.devices),
        "step_ms": math.nan if member.step_ms is None else member.step_ms,
        "operators": len(expanded),
        "operator_calls": float(expanded["calls"].sum()) / steps,
        "kernels": int(np.unique(tally.codes(v.kernels["name"])[v.rows]).size),
        "kernel_calls": v.rows.size / steps,
        "gemm_pct": gemm_pct,
        "attention_pct": share[ATTENTION],
        "nongemm_pct": sum(value for name, value in share.items() if name not in counted),
        "communication_pct": share[COMMUNICATION],
        "unclassified_pct": share[UNCLASSIFIED],
        "idle_pct": _idle_pct(v),
        "states": len(state),
        "top_state": state["state"].iloc[0] if len(state) else "",
        "top_state_pct": float(state["pct"].iloc[0]) if len(state) else math.nan,
        "run_length": states.mean_run_length(member.recording, options),
        "gemm_2x": _amdahl(gemm_pct, 2),
        "gemm_10x": _amdahl(gemm_pct, 10),
    }


def _idle_pct(v: View) -> float:
    """Wall time in which a device did nothing, over the wall time of all devices."""
    wall = busy = 0
    for device in range(len(v.devices)):
        begin, end = v.wall(device)
        wall += int((end - begin).sum())
        starts, ends, _ = v.segments(device)
        starts, ends = intervals.union(starts, ends)
        busy += int(intervals.covered(starts, ends, begin, end).sum())
    return pct(wall - busy, wall)


def _amdahl(gemm_pct: float, factor: float) -> float:
    """Speed-up of the kernel time when its GEMM part is ``factor`` times as fast."""
    return 1.0 / (1.0 - gemm_pct / 100.0 * (1.0 - 1.0 / factor))


def geometric_mean(values: np.ndarray) -> float:
    """Over the values that are known and positive; NaN where there is none."""
    good = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(good).mean())) if good.size else math.nan


def _mean(values: np.ndarray) -> float:
    good = values[np.isfinite(values)]
    return float(good.mean()) if good.size else math.nan
