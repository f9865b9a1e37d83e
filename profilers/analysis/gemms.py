"""Every distinct matrix multiply, convolution and attention: how often, how long, and how near to the device's peak."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.costs import labels, workers
from profilers.analysis.options import Options
from profilers.analysis.peaks import recording_peaks
from profilers.analysis.rates import kernel_dtypes, kernel_peaks, peak_sources
from profilers.analysis.roofline import bound_names
from profilers.analysis.view import ATTENTION_CODE, GEMM_CODE, View, view
from profilers.tables import NONE, Recording

Ints = npt.NDArray[np.int64]

_COLUMNS = [
    "op", "shape", "dtype", "calls", "time_us", "gflops", "gbytes", "intensity", "tflops_per_s", "pct_of_peak", "bound",
    "peak_source",
]  # fmt: skip


def gemms(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per operator, shape and type, longest first; ``time_us`` adds up to all GEMM and attention kernel time.

    The operator is the innermost one with a FLOP formula around the launch. A kernel without one has the operator that
    launched it, else its own name, and no shape. ``pct_of_peak``: operations over what the device could have done in
    that time; ``bound``: by the roofline at this intensity; ``peak_source``: where that peak is from.
    """
    v = view(recording)
    heavy = v.is_kernel & ((v.cls == GEMM_CODE) | (v.cls == ATTENTION_CODE))
    rows = np.flatnonzero(heavy)
    if not rows.size:
        return pd.DataFrame(columns=_COLUMNS)
    peaks = recording_peaks(recording, options)
    flop_peak, byte_peak = (part[rows] for part in kernel_peaks(recording, peaks))
    types, type_names = kernel_dtypes(recording)
    worker = _worker(v, rows)
    key, op, shape = _keys(recording, v, rows, worker)
    key, first = _numbered(key * len(type_names) + types[rows])
    size = first.size
    dur, seconds = v.dur[rows], v.dur[rows] / 1e9
    # A call is one operator, however many kernels it took; a kernel without an operator is a call of its own.
    call = np.where(worker >= 0, worker, len(v.operators) + np.arange(rows.size))
    calls = tally.distinct(key, call, size)
    flops, moved = (v.kernels[column].to_numpy()[rows] for column in ("flops", "bytes"))
    time = tally.total(key, dur, size)
    could = tally.total(key, seconds * flop_peak * 1e12, size)
    flops, moved = tally.total(key, flops, size), tally.total(key, moved, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity = flops / moved
        ridge = could / tally.total(key, seconds * byte_peak * 1e9, size)
        frame = tally.frame(
            op=op[first],
            shape=shape[first],
            dtype=np.array(type_names, object)[types[rows][first]],
            calls=calls,
            time_us=time / 1e3,
            gflops=flops / calls / 1e9,
            gbytes=moved / calls / 1e9,
            intensity=intensity,
            tflops_per_s=flops / time / 1e3,
            pct_of_peak=100 * flops / could,
            bound=bound_names(intensity, ridge),
            peak_source=peak_sources(recording, peaks, rows[first]),
        )
    return frame.sort_values("time_us", ascending=False, kind="stable", ignore_index=True)


def shapes(recording: Recording) -> tuple[Ints, np.ndarray, np.ndarray, np.ndarray]:
    """The rows of ``kernels`` that are GEMM or attention, and for each its operator, shape and type as in :func:`gemms`."""
    v = view(recording)
    rows = np.flatnonzero(v.is_kernel & ((v.cls == GEMM_CODE) | (v.cls == ATTENTION_CODE)))
    _, op, shape = _keys(recording, v, rows, _worker(v, rows))
    types, names = kernel_dtypes(recording)
    return rows, op, shape, np.array([*names, ""], object)[types[rows]]


def _worker(v: View, rows: Ints) -> Ints:
    """The nearest operator with operations of its own around each launch (else the launching one; -1: none)."""
    inner = v.operator_row[rows]
    if not len(v.operators):
        return inner
    near = np.where(inner >= 0, workers(v.operators, v.parent_row)[inner], NONE)
    return np.where(near >= 0, near, inner)


def _keys(recording: Recording, v: View, rows: Ints, worker: Ints) -> tuple[Ints, np.ndarray, np.ndarray]:
    """A number per kernel for its (operator, shape), and both as text."""
    op_names, kernel_names = tally.texts(v.operators["name"]), tally.texts(v.kernels["name"])
    name = tally.codes(v.kernels["name"])[rows]
    linked = worker >= 0
    op = kernel_names[name]
    shape = np.full(rows.size, "", dtype=object)
    key = name + 0
    if linked.any():
        texts, _, which = labels(v.operators)
        has_work = ~np.isnan(v.operators["flops"].to_numpy()[worker[linked]])
        op[linked] = op_names[tally.codes(v.operators["name"])[worker[linked]]]
        shape[linked] = np.where(has_work, np.array(texts, object)[which[worker[linked]]], "")
    key = pd.factorize(op)[0].astype(np.int64) * (rows.size + 1) + pd.factorize(shape)[0]
    return key, op, shape


def _numbered(key: Ints) -> tuple[Ints, Ints]:
    """Keys as 0, 1, 2 ... and the first row of each."""
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return number.astype(np.int64), first.astype(np.int64)
