"""The type that each kernel computes in, and the peaks that hold for it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from profilers.analysis.calls import Call
from profilers.analysis.costs import compute_dtype, distinct_calls
from profilers.analysis.peaks import Peaks
from profilers.analysis.view import equals, positions
from profilers.tables import Recording

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_TF32 = "tf32|s1688|_tensorop_s"
"""Parts of the names of kernels that multiply fp32 inputs on tensor cores in tf32 (cuBLAS, CUTLASS, nvjet)."""


def operator_dtypes(recording: Recording) -> tuple[Ints, list[str]]:
    """A code per operator and the types that the codes stand for (fp32, bf16 ...; ``''``: not recorded)."""
    unique, which = distinct_calls(recording.operators)
    names = [""]
    place = {"": 0}
    codes = np.zeros(len(unique), np.int64)
    for index, (name, shapes, dtypes, values) in enumerate(unique.itertuples(index=False, name=None)):
        dtype = compute_dtype(Call.parse(name, shapes, dtypes, values)) if dtypes else ""
        if dtype not in place:
            place[dtype] = len(names)
            names.append(dtype)
        codes[index] = place[dtype]
    return codes[which], names


_DTYPES: weakref.WeakKeyDictionary[Recording, tuple[Ints, list[str]]] = weakref.WeakKeyDictionary()


def kernel_dtypes(recording: Recording) -> tuple[Ints, list[str]]:
    """The same per kernel, from its launching operator; fp32 work in a kernel whose name says tf32 is tf32. Worked out
    once a recording."""
    held = _DTYPES.get(recording)
    if held is None:
        held = _DTYPES[recording] = _kernel_dtypes(recording)
    return held


def _kernel_dtypes(recording: Recording) -> tuple[Ints, list[str]]:
    of_operator, names = operator_dtypes(recording)
    kernels = recording.kernels
    row = positions(recording.operators["op_id"].to_numpy(), kernels["op_id"].to_numpy())
    codes = np.zeros(len(kernels), np.int64)
    linked = row >= 0
    codes[linked] = of_operator[row[linked]]
    if "fp32" in names:
        texts = kernels["name"].cat.categories.to_series().astype(str)
        tensor = np.r_[texts.str.contains(_TF32, regex=True).to_numpy(bool), False]
        codes[tensor[kernels["name"].cat.codes.to_numpy()] & (codes == names.index("fp32"))] = len(names)
        names = [*names, "tf32"]
    return codes, names


def kernel_peaks(recording: Recording, peaks: Mapping[str, Peaks]) -> tuple[Floats, Floats]:
    """TFLOP/s and GB/s that each kernel could reach at most on its device; NaN where unknown.

    GEMM and attention kernels have the peak of their type, all others the fp32 rate of the general units.
    """
    kernels = recording.kernels
    codes, names = kernel_dtypes(recording)
    devices = [str(name) for name in kernels["device"].cat.categories]
    compute = np.full((len(devices) + 1, len(names)), np.nan)
    general, memory = np.full(len(devices) + 1, np.nan), np.full(len(devices) + 1, np.nan)
    for index, device in enumerate(devices):
        peak = peaks.get(device)
        if peak is not None:
            compute[index] = [peak.tflops(name) for name in names]
            general[index], memory[index] = peak.fp32, peak.memory_gb_s
    where = kernels["device"].cat.codes.to_numpy()
    heavy = equals(kernels["class"], "gemm") | equals(kernels["class"], "attention")
    return np.where(heavy, compute[where, codes], general[where]), memory[where]


def peak_sources(recording: Recording, peaks: Mapping[str, Peaks], rows: Ints) -> npt.NDArray[np.object_]:
    """Where the peak of the type of each of these kernels is from, on its device, as
    :meth:`profilers.analysis.peaks.Peaks.source_of` says; ``''`` where none is known."""
    codes, names = kernel_dtypes(recording)
    devices = [peaks.get(str(name)) for name in recording.kernels["device"].cat.categories]
    words = np.full((len(devices) + 1, len(names)), "", object)
    for index, peak in enumerate(devices):
        if peak is not None:
            words[index] = [peak.source_of(name) for name in names]
    found: npt.NDArray[np.object_] = words[recording.kernels["device"].cat.codes.to_numpy()[rows], codes[rows]]
    return found
