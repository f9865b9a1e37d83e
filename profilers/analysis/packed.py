"""Linear layers whose weight is packed into an object without a recorded shape: their output tells its size.

``quantized::linear*`` records its input [..., K] alone, but the output [..., N] that it allocates is its first child
``aten::empty``. Nothing is taken where that child's leading sizes are not the input's.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis.calls import Call
from profilers.analysis.flops import Work, matrix_work

Ints = npt.NDArray[np.int64]

PACKED = re.compile(r"^quantized::linear")


def packed_linears(operators: pd.DataFrame, parent: Ints, unique: pd.DataFrame, which: Ints) -> list[tuple[Ints, Work]]:
    """Rows of such layers with one and the same work, and that work. ``unique`` and ``which`` are the distinct calls of
    :func:`profilers.analysis.costs.distinct_calls`."""
    names = [str(name) for name in operators["name"].cat.categories]
    is_packed = np.array([bool(PACKED.match(name)) for name in names] + [False])
    if not is_packed.any():
        return []
    code = operators["name"].cat.codes.to_numpy()
    is_empty = np.array([name == "aten::empty" for name in names] + [False])[code]
    children = np.flatnonzero(is_empty & (parent >= 0) & is_packed[code[parent]])
    # Operators are in order of start, so the first row of each parent is its first allocation.
    parents, first = np.unique(parent[children], return_index=True)
    pairs, number = np.unique(np.stack([which[parents], which[children[first]]], axis=1), axis=0, return_inverse=True)
    found = []
    for index, (layer, allocation) in enumerate(pairs.tolist()):
        x = Call.parse(*unique.iloc[layer]).matrix(0)
        out = Call.parse(*unique.iloc[allocation]).ints(0)
        if x is None or out is None or len(out) != len(x) or out[:-1] != x[:-1]:
            continue
        found.append((parents[number.reshape(-1) == index], matrix_work(int(np.prod(x[:-1])), out[-1], x[-1])))
    return found
