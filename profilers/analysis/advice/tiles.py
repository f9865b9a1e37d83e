"""Matrix multiplies whose sides do not fit the tensor cores' alignment."""

from __future__ import annotations

import re
from math import ceil

import numpy as np

from profilers.analysis import tally
from profilers.analysis.advice.case import Case, Finding
from profilers.analysis.gemms import shapes

ALIGN = {"fp16": 8, "bf16": 8, "int8": 16, "fp8": 16, "tf32": 4}
"""Elements in 16 bytes: the alignment at which cuBLAS uses its fast kernels (NVIDIA's matrix multiplication guide)."""

LEAST_SIDE = 64
"""Smaller sides (a batch of one, say) are what they are: padding them multiplies the work."""

LIKE, LIKE_SIDE = 4.0, 2.0
"""Only multiplies of a quarter to four times the operations, with a smallest side of half to twice as much, say how fast
an aligned one would be."""

_SIDES = re.compile(r"\b([mnk])=(\d+)")


def padded(shape: str, dtype: str) -> dict[str, tuple[int, int]]:
    """Sides that are not aligned: letter -> (now, padded). Empty for what is aligned, small or no matrix multiply."""
    align = ALIGN.get(dtype)
    sides = {letter: int(size) for letter, size in _SIDES.findall(shape)}
    if align is None or len(sides) != 3:
        return {}
    return {
        letter: (size, align * ceil(size / align))
        for letter, size in sides.items()
        if size >= LEAST_SIDE and size % align
    }


def find(case: Case) -> Finding | None:
    """Priced at the median rate of aligned multiplies of like size and type in this very recording; where there are none,
    nothing is said."""
    rows, op, shape, dtype = shapes(case.recording)
    place = np.full(len(case.view.kernels), -1, np.int64)
    place[case.rows] = np.arange(case.rows.size)
    keys, key = np.unique([f"{o}\x1f{s}\x1f{d}" for o, s, d in zip(op, shape, dtype, strict=True)], return_inverse=True)
    if not keys.size:
        return None
    time = tally.total(key, case.view.dur[rows], keys.size)
    flops = tally.total(key, np.nan_to_num(case.view.kernels["flops"].to_numpy()[rows]), keys.size)
    calls = tally.count(key, keys.size)
    on_gpu = np.zeros(keys.size, bool)
    on_gpu[key] = case.gpu[place[rows]]
    parts = [str(text).split("\x1f") for text in keys]
    sides = [padded(part[1], part[2]) for part in parts]
    aligned = np.array(
        [not side and len(_SIDES.findall(part[1])) == 3 for side, part in zip(sides, parts, strict=True)]
    )
    least = np.array([min((int(size) for _, size in _SIDES.findall(part[1])), default=0) for part in parts], float)
    factor = np.ones(case.rows.size)
    told: list[tuple[float, str]] = []
    for index in np.flatnonzero(on_gpu & ~aligned & (flops > 0) & (time > 0)):
        if not sides[index]:
            continue
        work = flops[index] / calls[index]
        like = aligned & on_gpu & (flops > 0) & (time > 0) & np.array([part[2] == parts[index][2] for part in parts])
        like &= (flops / calls >= work / LIKE) & (flops / calls <= work * LIKE)
        like &= (least >= least[index] / LIKE_SIDE) & (least <= least[index] * LIKE_SIDE)
        if not like.any():
            continue
        rate = float(np.median(flops[like] / time[like]))
        more = float(np.prod([after / now for now, after in sides[index].values()]))
        gain = time[index] / (flops[index] * more / rate)
        if gain > 1:
            factor[place[rows[key == index]]] = gain
            change = ", ".join(f"{letter} {now:,} to {after:,}" for letter, (now, after) in sides[index].items())
            told.append(
                (time[index] * (1 - 1 / gain), f"{parts[index][0]} {parts[index][1]} {parts[index][2]}: {change}")
            )
    if not told:
        return None
    told.sort(reverse=True)
    touched = factor > 1
    evidence = (
        f"gemms: {case.pct(touched):.1f} % of kernel time in {len(told)} unaligned shapes, slower than aligned ones of like "
        f"size here; {'; '.join(text for _, text in told[:2])}"
    )
    do = "pad those sides (vocabulary, heads, hidden size) to the multiple named: tensor cores read 16 bytes at a time"
    return Finding("Matrix multiplies do not fit the tensor cores", evidence, do, case.model.price_each(factor))
