"""The GEMM study: each distinct GEMM, convolution and attention call of a recording, beside its time alone on a device.

Here the calls are found and the answers become a table; ``profilers.collectors.gemm_study`` does the timing. All GEMM and
attention kernel time of the recording is in the table: what cannot be timed alone has a row that says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis import flops as formulas
from profilers.analysis import tally
from profilers.analysis.calls import Call
from profilers.analysis.costs import distinct_calls, workers
from profilers.analysis.gemms import shapes
from profilers.analysis.packed import packed_linears
from profilers.analysis.peaks import Peaks
from profilers.analysis.registry import Col, Table
from profilers.analysis.roofline import bound_names
from profilers.analysis.traffic import traffic
from profilers.analysis.view import View, view
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
        Col("time_us", "all calls", "us", doc="kernel time of all its calls in the recording", wide=True),
        Col("pct", "% of GEMM", "pct", "of the recording's GEMM and attention kernel time", wide=True),
        Col("measured", "measured", doc="how often, with how many sets of inputs; or why not"),
    ),
    "",
)

Ints = npt.NDArray[np.int64]

SWEEP_SIDES = {"cuda": (128, 512, 2048, 8192), "cpu": (64, 256, 1024)}
"""M, N and K of the background: every combination."""


@dataclass(frozen=True)
class Case:
    """One distinct call. ``calls`` is 0 for the background of a sweep; ``model_us`` is the time of all of them added up,
    ``call_us`` the median of one. ``reason`` says why it cannot be timed alone; it is empty where that can be tried."""

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
    reason: str = ""

    def question(self) -> dict[str, Any]:
        """What the timing process is told. The operations tell the size of a weight that is packed away."""
        return {
            "name": self.name,
            "shapes": self.shapes,
            "dtypes": self.dtypes,
            "values": self.values,
            "dtype": self.dtype,
            "flops": self.flops,
        }


def cases(recording: Recording) -> list[Case]:
    """The distinct calls, those with most time first. Their ``model_us`` add up to all GEMM and attention kernel time:
    what is no call of a known size is there with its ``reason``."""
    rows, op, _, dtype = shapes(recording)
    v = view(recording)
    if not rows.size:
        return []
    inner = v.operator_row[rows]
    worker = np.where(inner >= 0, workers(v.operators, v.parent_row)[inner], -1) if len(v.operators) else inner
    known = worker >= 0
    found = _known(v, rows[known], worker[known], dtype[known])
    found += _unknown(v, rows[~known], inner[~known], op[~known], dtype[~known])
    return sorted(found, key=lambda case: -case.model_us)


def _known(v: View, rows: Ints, worker: Ints, dtype: np.ndarray) -> list[Case]:
    """Calls of operators whose operations are known."""
    if not rows.size:
        return []
    unique, which = distinct_calls(v.operators)
    works: dict[int, formulas.Work] = {}
    # Layers with packed weights record one and the same call for weights of different sizes.
    for number, (layers, work) in enumerate(packed_linears(v.operators, v.parent_row, unique, which), len(unique)):
        texts = which[layers[0]]
        which = which.copy()
        which[layers] = number
        works[number] = work
        unique.loc[number] = unique.iloc[int(texts)]
    call, time = which[worker], v.dur[rows]
    total = tally.total(call, time, len(unique))
    calls = tally.distinct(call, worker, len(unique))
    each = pd.Series(time).groupby(worker, sort=False).sum()
    median = each.groupby(which[each.index.to_numpy()]).median() / 1e3
    types, type_code = np.unique(dtype.astype(str), return_inverse=True)
    kind = tally.dominant(call, type_code.astype(np.int64), time, len(unique))
    found = []
    for index in np.flatnonzero(calls).tolist():
        texts = [str(value) for value in unique.iloc[index]]
        made = _case(*texts, dtype=str(types[kind[index]]), work=works.get(index))
        model_us, call_us = float(total[index]) / 1e3, float(median[index])
        found.append(replace(made, calls=int(calls[index]), model_us=model_us, call_us=call_us))
    return found


def _unknown(v: View, rows: Ints, inner: Ints, op: np.ndarray, dtype: np.ndarray) -> list[Case]:
    """The rest by operator (or kernel, where no operator is known), type and reason."""
    if not rows.size:
        return []
    # A kernel without an operator is a call of its own.
    call = np.where(inner >= 0, inner, len(v.operators) + np.arange(rows.size))
    frame = pd.DataFrame({"op": op, "dtype": dtype, "call": call, "us": v.dur[rows] / 1e3, "why": _reasons(v, inner)})
    found = []
    for (name, kind, why), group in frame.groupby(["op", "dtype", "why"], sort=False):
        each = group.groupby("call")["us"].sum()
        nothing = (math.nan, math.nan, len(each), float(each.sum()), float(each.median()))
        found.append(Case(str(name), "", "", "", "", str(kind), *nothing, reason=str(why)))
    return found


def _reasons(v: View, inner: Ints) -> list[str]:
    """Why the operator that launched each kernel (-1: none) has no size."""
    if not len(v.operators):
        return [_NO_OPERATOR] * inner.size
    around = np.zeros(len(v.operators), np.bool_)
    above = np.flatnonzero(~np.isnan(v.operators["flops"].to_numpy()))
    while above.size:
        above = np.unique(v.parent_row[above])
        above = above[(above >= 0)]
        above = above[~around[above]]
        around[above] = True
    unique, which = distinct_calls(v.operators)
    plain = {int(index): _why(*map(str, unique.iloc[int(index)])) for index in np.unique(which[inner[inner >= 0]])}
    return [_NO_OPERATOR if row < 0 else _WRAPPER if around[row] else plain[int(which[row])] for row in inner.tolist()]


_WRAPPER = "not timed: wrapper"
_NO_OPERATOR = "not timed: no operator"
_NO_FORMULA = "not timed: no formula"
_NO_SHAPES = "not timed: no shapes"
_NO_SIZE = "not timed: no size"
_EXPLAINED = {
    _WRAPPER: "what these do themselves around operators that have rows of their own",
    _NO_OPERATOR: "none was recorded that launched these kernels, and a kernel's name does not tell its size",
    _NO_FORMULA: "none is known for these operators",
    _NO_SHAPES: "none were recorded (record_shapes=True records them)",
    _NO_SIZE: "what was recorded of the arguments does not tell it",
}


def _why(name: str, shape: str, dtypes: str, values: str) -> str:
    call = Call.parse(name, shape, dtypes, values)
    if call.name not in formulas.FORMULAS:
        return _NO_FORMULA
    return _NO_SIZE if any(part for part in call.shapes) else _NO_SHAPES


def _case(name: str, shape: str, dtypes: str, values: str, *, dtype: str, work: formulas.Work | None = None) -> Case:
    call = Call.parse(name, shape, dtypes, values)
    found = work or formulas.work(call)
    if found is None:  # Operations that another tool recorded, of an operator that has no formula here.
        return Case(
            name, shape, dtypes, values, "", dtype, math.nan, math.nan, reason=_why(name, shape, dtypes, values)
        )
    moved = traffic(call, found, 4) if work is None else None
    return Case(name, shape, dtypes, values, found.label, dtype, found.flops, moved[0] if moved else math.nan)


def sweep(kind: str, dtype: str) -> list[Case]:
    """The background: plain matrix multiplies over powers of two in one type."""
    recorded = {"fp32": "float", "tf32": "float", "fp16": "c10::Half", "bf16": "c10::BFloat16", "fp64": "double"}.get(
        dtype
    )
    if recorded is None:
        return []
    sides = SWEEP_SIDES[kind]
    return [
        _case("aten::mm", f"[[{m},{k}],[{k},{n}]]", f'["{recorded}","{recorded}"]', "", dtype=dtype)
        for m in sides
        for n in sides
        for k in sides
    ]


def study(found: Sequence[Case], answers: Sequence[Mapping[str, Any]], peaks: Peaks | None) -> pd.DataFrame:
    """One row per case, as :data:`STUDY` says. An answer has ``us``, ``times`` and ``sets`` (and a ``note``), or ``reason``."""
    rows = []
    whole = sum(case.model_us for case in found)
    for case, answer in zip(found, answers, strict=True):
        alone = float(answer.get("us", math.nan))
        model = case.call_us
        peak = peaks.tflops(case.dtype) if peaks is not None else math.nan
        moves = peaks.memory_gb_s if peaks is not None else math.nan
        rate = case.flops / alone / 1e6 if alone > 0 else math.nan
        intensity = case.flops / case.bytes if case.bytes > 0 else math.nan
        bound = bound_names(np.array([intensity]), np.array([peak * 1e3 / moves]))[0]
        said = answer.get("reason") or f"{answer['times']} calls, {answer['sets']} sets of inputs"
        said += f"; {answer['note']}" if "note" in answer else ""
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
                case.model_us if case.calls else math.nan,
                100.0 * case.model_us / whole if case.calls and whole else math.nan,
                said,
            )
        )
    return pd.DataFrame(rows, columns=[column.name for column in STUDY.columns])


def account(frame: pd.DataFrame) -> list[str]:
    """In lines for people: how many rows were timed, and why the others were not. The counts add up to all rows but a
    sweep's, the percentages to the recording's GEMM and attention kernel time."""
    own = frame[frame["calls"] > 0]
    timed = own["alone_us"].notna()
    pct = own["pct"]
    lines = [
        f"{int(timed.sum()):,} of {len(own):,} rows are timed: {pct[timed].sum():.1f} % of GEMM and attention kernel time"
    ]
    rest = own[~timed].groupby("measured", sort=False)["pct"].agg(["size", "sum"])
    for why, (count, share) in rest.sort_values("sum", ascending=False, kind="stable").iterrows():
        more = f", {_EXPLAINED[why]}" if why in _EXPLAINED else ""
        lines.append(f"  {int(count):,} {why}{more} ({share:.1f} %)")
    return lines
