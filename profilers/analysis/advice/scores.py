"""Attention written out: scores multiplied, softmax taken, multiplied again, each a trip through memory."""

from __future__ import annotations

import numpy as np

from profilers.analysis import tally
from profilers.analysis.advice.case import Bools, Case, Finding, Ints

BETWEEN = ("softmax", "elementwise", "memory", "random", "activation")
"""What may stand between the two products: scale, mask, softmax, cast, dropout (and the same backwards)."""
LONGEST = 12
PRODUCTS = frozenset(("bmm", "baddbmm", "matmul", "einsum"))
"""Attention multiplies batches (heads); a linear layer before a softmax is a classifier or a router."""


def attention(case: Case) -> Ints:
    """The number of the chain between two batched products that holds a softmax, for each kernel; -1: none."""
    chain = case.chains(case.of_group(*BETWEEN), 1)
    if not (chain >= 0).any():
        return chain
    count = int(chain.max()) + 1
    rows = np.flatnonzero(chain >= 0)
    first = np.full(count, chain.size)
    last = np.full(count, -1)
    np.minimum.at(first, chain[rows], rows)
    np.maximum.at(last, chain[rows], rows)
    keep = tally.total(chain[rows], case.of_group("softmax")[rows].astype(float), count) > 0
    keep &= (first > 0) & (last < chain.size - 1) & (last - first < LONGEST)
    first, last = np.where(keep, first, 1), np.where(keep, last, 0)
    product = _products(case)
    if chain.size > 1:
        keep &= product[first - 1] & product[last + 1] & _beside(case, first - 1, first) & _beside(case, last, last + 1)
    return np.where((chain >= 0) & keep[chain], chain, -1)


def _products(case: Case) -> Bools:
    """Matrix multiplies that an operator on batches launched; where operators are not known, any."""
    operators = case.view.operators
    found = case.of_group("matmul")
    if not len(operators):
        return found
    texts = tally.texts(operators["name"])
    batched = np.array([str(name).rpartition("::")[2] in PRODUCTS for name in texts], bool)
    row = case.view.operator_row[case.rows]
    return np.asarray(found & ((row < 0) | batched[tally.codes(operators["name"])[row]]))


def _beside(case: Case, one: Ints, other: Ints) -> Bools:
    """Whether two kernels ran on one device and stream in one step."""
    same = np.ones(one.size, bool)
    for column in ("stream", "step"):
        values = case.view.kernels[column].to_numpy()[case.rows]
        same &= values[one] == values[other]
    return np.asarray(same & (case.model.device[one] == case.model.device[other]))


def find(case: Case) -> Finding | None:
    """Priced as if what stands between the products took no time, and the products stayed as they are: a fused kernel
    keeps the scores on the chip, which mostly makes the products faster, too."""
    chain = attention(case)
    inside = chain >= 0
    if not inside.any():
        return None
    number = np.unique(chain[inside]).size
    evidence = (
        f"kernels: softmax between two batched products {number / case.steps:,.0f} times a {case.per}; what stands between "
        f"them is {case.pct(inside):.1f} % of kernel time; most: {case.most('name', inside)}"
    )
    do = (
        "use torch.nn.functional.scaled_dot_product_attention (attn_implementation='sdpa' in transformers), or "
        "flex_attention where scores are changed in ways of their own"
    )
    return Finding(
        "Attention is written out of many kernels", evidence, do, case.model.price_each(np.where(inside, np.inf, 1.0))
    )
