"""The GEMM study: each distinct GEMM, convolution and attention call of a recording, beside its time alone on a device.

Here the calls are found and the answers become a table; ``profilers.collectors.gemm_study`` does the timing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from profilers.analysis import flops as formulas
from profilers.analysis import tally
from profilers.analysis.calls import Call
from profilers.analysis.costs import distinct_calls, workers
from profilers.analysis.gemms import shapes
from profilers.analysis.peaks import Peaks
from profilers.analysis.registry import Col, Table
from profilers.analysis.roofline import bound_names
from profilers.analysis.traffic import traffic
from profilers.analysis.view import view
from profilers.tables import Recording

STUDY = Table(
    "gemm_study",
    "How fast is each matrix multiply, convolution and attention alone, and how fast inside the model?",
    (
        Col("op", "op", "name"),
        Col("shape", "shape"),
        Col("dtype", "type"),
        Col("calls", "calls", "count"),
        Col("model_us", "in the model", "us", doc="kernel time of a call in the recording, median"),
        Col(
            "alone_us",
            "alone",
            "us",
            doc="median of calls by themselves: warm, inputs rotated through more than the cache",
        ),
        Col("ratio", "model/alone", "ratio"),
        Col("gflops", "GFLOP", "number", doc="of one call"),
        Col("gbytes", "GB", "number", doc="of one call, moved at least once (estimate)", wide=True),
        Col("intensity", "FLOP/B", "number", wide=True),
        Col("tflops_per_s", "TFLOP/s", "number", doc="alone"),
        Col("pct_of_peak", "% of peak", "pct", "of the device's peak for this type"),
        Col("bound", "bound"),
        Col("measured", "measured", doc="how often, with how many sets of inputs; or why not"),
    ),
    "",
)

SWEEP_SIDES = {"cuda": (128, 512, 2048, 8192), "cpu": (64, 256, 1024)}
"""M, N and K of the background: every combination."""


@dataclass(frozen=True)
class Case:
    """One distinct call. ``calls`` is 0 for the background of a sweep; ``model_us`` is the time of all of them added up,
    ``call_us`` the median of one."""

    name: str
    shapes: str
    dtypes: str
    values: str
    label: str
    dtype: str
    flops: float
    bytes: float
    calls: int = 0
    model_us: float = 0.0
    call_us: float = math.nan

    def question(self) -> dict[str, str]:
        """What the timing process is told."""
        return {
            "name": self.name,
            "shapes": self.shapes,
            "dtypes": self.dtypes,
            "values": self.values,
            "dtype": self.dtype,
        }


def cases(recording: Recording) -> tuple[list[Case], float]:
    """The distinct calls, those with most time first, and the percentage of GEMM and attention time that they are (the
    rest has no operator with recorded shapes)."""
    rows, _, _, dtype = shapes(recording)
    v = view(recording)
    if not rows.size or not len(v.operators):
        return [], 0.0
    inner = v.operator_row[rows]
    worker = np.where(inner >= 0, workers(v.operators, v.parent_row)[inner], -1)
    known = worker >= 0
    unique, which = distinct_calls(v.operators)
    call, time = which[worker[known]], v.dur[rows][known]
    total = tally.total(call, time, len(unique))
    calls = tally.distinct(call, worker[known], len(unique))
    each = pd.Series(time).groupby(worker[known], sort=False).sum()
    median = each.groupby(which[each.index.to_numpy()]).median() / 1e3
    types, type_code = np.unique(dtype[known].astype(str), return_inverse=True)
    kind = tally.dominant(call, type_code.astype(np.int64), time, len(unique))
    found = []
    for index in np.argsort(-total, kind="stable"):
        if not calls[index]:
            break
        texts = [str(value) for value in unique.iloc[int(index)]]
        made = _case(*texts, dtype=str(types[kind[index]]))
        if made is not None:
            model_us, call_us = float(total[index]) / 1e3, float(median[index])
            found.append(replace(made, calls=int(calls[index]), model_us=model_us, call_us=call_us))
    whole = float(v.dur[rows].sum())
    return found, 100.0 * sum(case.model_us * 1e3 for case in found) / whole if whole else 0.0


def _case(name: str, shape: str, dtypes: str, values: str, *, dtype: str) -> Case | None:
    call = Call.parse(name, shape, dtypes, values)
    work = formulas.work(call)
    if work is None:
        return None
    moved = traffic(call, work, 4)
    return Case(name, shape, dtypes, values, work.label, dtype, work.flops, moved[0] if moved else math.nan)


def sweep(kind: str, dtype: str) -> list[Case]:
    """The background: plain matrix multiplies over powers of two in one type."""
    recorded = {"fp32": "float", "tf32": "float", "fp16": "c10::Half", "bf16": "c10::BFloat16", "fp64": "double"}.get(
        dtype
    )
    if recorded is None:
        return []
    sides = SWEEP_SIDES[kind]
    made = (
        _case("aten::mm", f"[[{m},{k}],[{k},{n}]]", f'["{recorded}","{recorded}"]', "", dtype=dtype)
        for m in sides
        for n in sides
        for k in sides
    )
    return [case for case in made if case is not None]


def study(found: Sequence[Case], answers: Sequence[Mapping[str, Any]], peaks: Peaks | None) -> pd.DataFrame:
    """One row per case, as :data:`STUDY` says. An answer has ``us``, ``times`` and ``sets``, or ``reason``."""
    rows = []
    for case, answer in zip(found, answers, strict=True):
        alone = float(answer.get("us", math.nan))
        model = case.call_us
        peak = peaks.tflops(case.dtype) if peaks is not None else math.nan
        moves = peaks.memory_gb_s if peaks is not None else math.nan
        rate = case.flops / alone / 1e6 if alone > 0 else math.nan
        intensity = case.flops / case.bytes if case.bytes > 0 else math.nan
        bound = bound_names(np.array([intensity]), np.array([peak * 1e3 / moves]))[0]
        said = answer.get("reason") or f"{answer['times']} calls, {answer['sets']} sets of inputs"
        rows.append(
            (
                case.name,
                case.label,
                case.dtype,
                case.calls,
                model,
                alone,
                model / alone if alone > 0 else math.nan,
                case.flops / 1e9,
                case.bytes / 1e9,
                intensity,
                rate,
                100.0 * rate / peak,
                bound,
                said,
            )
        )
    return pd.DataFrame(rows, columns=[column.name for column in STUDY.columns])
