"""The roofs that the kernels of a recording are measured against: one a type that they compute in, and the memory's."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks, recording_peaks
from profilers.analysis.rates import kernel_dtypes
from profilers.analysis.view import ATTENTION_CODE, GEMM_CODE, view
from profilers.tables import Recording

MEMORY = "memory"
"""What the memory's roof is called; every other one is a type."""

NO_PEAK = "no peak is known: kernelscope calibrate measures one on that machine, and writes it to peaks.toml"

GENERAL = "fp32"
"""The type whose rate kernels other than GEMM and attention are measured against (:mod:`profilers.analysis.rates`)."""


def roofs(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per model of device and roof, memory first, then types from the slowest; devices without kernels have none.

    Dense TFLOP/s (``int8``: TOP/s) or GB/s, NaN where the device's peaks lack that figure. ``source``: where the
    figure is from (:meth:`profilers.analysis.peaks.Peaks.source_of`). A device that nothing is known of has one row, of
    source ``none``.
    """
    peaks = recording_peaks(recording, options)
    found: list[tuple[str, str, str, float, float, str, str]] = []
    for held, devices, types in _models(recording, peaks):
        where = ", ".join(devices)
        if held is None:
            found.append(("", where, "", math.nan, math.nan, "none", NO_PEAK))
            continue
        found.append((held.name, where, MEMORY, math.nan, held.memory_gb_s, _memory_source(held), held.cite))
        rates = sorted(((held.tflops(name), name) for name in types), key=lambda one: (math.isnan(one[0]), *one))
        found += [(held.name, where, name, rate, math.nan, held.source_of(name), held.cite) for rate, name in rates]
    model, where_, roof, tflops, gb_s, source, cite = zip(*found, strict=True) if found else ((),) * 7
    return tally.frame(
        model=np.array(model, object),
        devices=np.array(where_, object),
        roof=np.array(roof, object),
        tflops_per_s=np.array(tflops, float),
        gb_per_s=np.array(gb_s, float),
        source=np.array(source, object),
        cite=np.array(cite, object),
    )


def _memory_source(peaks: Peaks) -> str:
    """As :meth:`Peaks.source_of` says of a type."""
    if math.isnan(peaks.memory_gb_s):
        return ""
    return "unchecked" if peaks.source == "table" and "memory_gb_s" in peaks.unchecked else peaks.source


def _models(recording: Recording, peaks: dict[str, Peaks]) -> list[tuple[Peaks | None, list[str], set[str]]]:
    """Peaks, the devices that have just these, and the types that are computed in on them."""
    v = view(recording)
    codes, names = kernel_dtypes(recording)
    heavy = (v.cls == GEMM_CODE) | (v.cls == ATTENTION_CODE)
    found: list[tuple[Peaks | None, list[str], set[str]]] = []
    for index, device in enumerate(v.kernels["device"].cat.categories):
        rows = v.rows[v.device[v.rows] == index]
        if not rows.size:
            continue
        types = {names[code] or GENERAL for code in np.unique(codes[rows[heavy[rows]]])}
        if not heavy[rows].all():
            types.add(GENERAL)
        held = peaks.get(str(device))
        # Peaks hold NaN, which differs from itself: their text does not.
        same = next((one for one in found if repr(one[0]) == repr(held)), None)
        if same is None:
            found.append((held, [str(device)], types))
        else:
            same[1].append(str(device))
            same[2].update(types)
    return found
