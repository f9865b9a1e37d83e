"""Operations, bytes and work items of every operator, from its recorded shapes.

Each distinct (name, shapes, types, values) is worked out once and mapped to all its calls. No torch is needed: a
recording from another machine is priced here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis import flops as formulas
from profilers.analysis.calls import Call, plain, short_dtype, size_of
from profilers.analysis.packed import packed_linears
from profilers.analysis.traffic import traffic
from profilers.analysis.view import positions

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NODE = re.compile(r"Backward\d+$")

_KEYS = ["name", "input_shapes", "input_dtypes", "input_values"]


@dataclass(frozen=True, eq=False)
class Costs:
    """One entry per operator. ``flops`` NaN: no formula applies; ``bytes`` NaN: not known; ``items`` are the elements
    worked on (those of the largest tensor; 0 for a view or a wrapper, which moves nothing; -1: not known).

    ``call_bytes`` and ``call_items`` are those of the whole call, whatever its descendants count already.
    """

    flops: Floats
    bytes: Floats
    items: Ints
    call_bytes: Floats
    call_items: Ints


def distinct_calls(operators: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """The distinct (name, shapes, types, values) as text columns, and the number of each operator's row in them."""
    if not len(operators):
        return pd.DataFrame({key: pd.Series([], dtype=object) for key in _KEYS}), np.zeros(0, np.int64)
    combined = np.zeros(len(operators), np.int64)
    for key in _KEYS:
        codes = operators[key].cat.codes.to_numpy().astype(np.int64) + 1
        # Renumbered after every column, so that the product never overflows.
        combined = pd.factorize(combined * (int(codes.max()) + 1) + codes)[0].astype(np.int64)
    first = np.full(int(combined.max()) + 1, -1, np.int64)
    first[combined[::-1]] = np.arange(combined.size)[::-1]
    rows = operators.iloc[first]
    return pd.DataFrame({key: rows[key].astype(object).fillna("").to_numpy() for key in _KEYS}), combined


def element_size(operators: pd.DataFrame) -> int:
    """Bytes of the recording's commonest floating type, which stands for the unrecorded type of tensor lists."""
    counts = operators["input_dtypes"].value_counts()
    totals: dict[int, int] = {}
    for text, count in counts[counts > 0].items():
        for part in str(text).replace('"', " ").strip("[]").split(","):
            if plain(part) in ("float", "half", "bfloat16", "double"):
                size = size_of(part) or 4
                totals[size] = totals.get(size, 0) + int(count)
    return max(totals, key=lambda size: totals[size]) if totals else 4


def is_wrapper(name: str) -> bool:
    """Whether an operator only calls others: a node of the autograd engine."""
    return name.startswith(("autograd::", "torch::autograd")) or bool(_NODE.search(name))


def costs(operators: pd.DataFrame) -> Costs:
    """Operations, bytes and items of every operator; a count that a descendant has already is not counted twice.

    An operator whose descendant has operations of its own counts none (``aten::linear`` over ``aten::addmm``: the leaf
    decides). One without operations whose descendant moves at least half of its bytes is a wrapper and moves none.
    """
    unique, which = distinct_calls(operators)
    size = len(unique)
    flop, byte, item = np.full(size, np.nan), np.full(size, np.nan), np.full(size, -1, np.int64)
    fallback = element_size(operators) if len(operators) else 4
    for index, (name, shapes, dtypes, values) in enumerate(unique.itertuples(index=False, name=None)):
        if is_wrapper(name):
            byte[index], item[index] = 0.0, 0
        if not shapes or is_wrapper(name):
            continue
        call = Call.parse(name, shapes, dtypes, values)
        work = formulas.work(call)
        if work is not None:
            flop[index] = work.flops
        moved = traffic(call, work, fallback)
        if moved is not None:
            byte[index], item[index] = moved
    flops_, bytes_, items = flop[which], byte[which], item[which]
    call_bytes = bytes_
    parent = positions(operators["op_id"].to_numpy(), operators["parent_id"].to_numpy())
    for rows, work in packed_linears(operators, parent, unique, which):
        # The weight's type is packed away, too: its bytes are not known.
        flops_[rows], bytes_[rows], items[rows] = work.flops, np.nan, work.elements
    depth = operators["depth"].to_numpy()
    below = _largest_below(np.nan_to_num(flops_), parent, depth)
    flops_ = np.where(below > 0, np.nan, flops_)
    below = _largest_below(np.nan_to_num(bytes_), parent, depth)
    bytes_ = np.where(np.isnan(flops_) & (below > 0) & (below >= 0.5 * bytes_), 0.0, bytes_)
    return Costs(flops_, bytes_, np.where(bytes_ == 0, 0, items), call_bytes, items)


def _largest_below(values: Floats, parent: Ints, depth: Ints) -> Floats:
    """The largest value among the descendants of every row (0: none)."""
    largest = np.zeros(values.size)
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero((depth == level) & (parent >= 0))
        np.maximum.at(largest, parent[rows], np.maximum(values[rows], largest[rows]))
    return largest


def workers(operators: pd.DataFrame, parent: Ints) -> Ints:
    """Per operator the row of the nearest one with operations of its own: itself or a caller (-1: none)."""
    near = np.where(np.isnan(operators["flops"].to_numpy()), -1, np.arange(len(operators)))
    depth = operators["depth"].to_numpy()
    for level in range(1, int(depth.max(initial=0)) + 1):
        below = np.flatnonzero((depth == level) & (near < 0) & (parent >= 0))
        near[below] = near[parent[below]]
    return near


def labels(operators: pd.DataFrame) -> tuple[list[str], list[str], Ints]:
    """For rows with work: the shape as people write it and the type of the first tensor, per distinct call, and the
    distinct call of each row."""
    unique, which = distinct_calls(operators)
    shapes, dtypes = [], []
    for name, shape, dtype, values in unique.itertuples(index=False, name=None):
        call = Call.parse(name, shape, dtype, values)
        work = formulas.work(call) if shape else None
        shapes.append(work.label if work else "")
        dtypes.append(compute_dtype(call))
    return shapes, dtypes, which


def compute_dtype(call: Call) -> str:
    """The type that a call computes in: that of its first tensor of at least one dimension."""
    kinds = [(bool(shape), kind) for shape, kind in call.tensors() if kind]
    kind = next((kind for solid, kind in kinds if solid), kinds[0][1] if kinds else "")
    return short_dtype(kind) if kind else ""
