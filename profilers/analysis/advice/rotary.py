"""Rotary position embedding written out: halves negated, put together, multiplied and added."""

from __future__ import annotations

import numpy as np

from profilers.analysis.advice.case import Case, Finding, Ints

GROUPS = ("elementwise", "memory")


def rotary(case: Case) -> Ints:
    """Chains of element-wise and copying kernels that negate, concatenate and multiply: rotate-half. -1: none."""
    chain = case.chains(case.of_group(*GROUPS), 4)
    if not (chain >= 0).any():
        return chain
    keep = np.ones(int(chain.max()) + 1, bool)
    for words in (("neg",), ("catarray", "aten::cat"), ("mul",)):
        found = np.zeros(keep.size, bool)
        found[chain[(chain >= 0) & case.named(words)]] = True
        keep &= found
    return np.where((chain >= 0) & keep[chain], chain, -1)


def find(case: Case) -> Finding | None:
    """Priced as if each such chain cost as much as its longest kernel."""
    chain = rotary(case)
    inside = chain >= 0
    if not inside.any():
        return None
    number = np.unique(chain[inside]).size
    evidence = (
        f"kernels: {int(inside.sum()) / number:.1f} in a row that negate, concatenate and multiply, "
        f"{number / case.steps:,.0f} times a {case.per}, {case.pct(inside):.1f} % of kernel time"
    )
    do = "use a fused rotary embedding (an attention library's own kernel), or torch.compile the attention module"
    return Finding(
        "Rotary embedding is written out of many kernels", evidence, do, case.model.price_each(case.fused(chain))
    )
