"""Chains of element-wise kernels, each of which reads and writes what its neighbour has just written."""

from __future__ import annotations

import numpy as np

from profilers.analysis.advice.case import Case, Finding
from profilers.analysis.advice.norms import in_norm
from profilers.analysis.advice.rotary import rotary

GROUPS = ("elementwise", "activation", "random")


def find(case: Case) -> Finding | None:
    """Two or more of one size in a row, outside normalizations and rotary embeddings (rules of their own); priced as if each chain
    cost as much as its longest kernel."""
    member = case.of_group(*GROUPS) & ~in_norm(case) & (rotary(case) < 0)
    chain = case.chains(member, alike=True)
    inside = chain >= 0
    if not inside.any():
        return None
    lengths = np.unique(chain[inside], return_counts=True)[1]
    evidence = (
        f"kernels: {int(inside.sum()) / case.steps:,.0f} a {case.per} in {lengths.size / case.steps:,.0f} chains of "
        f"2 to {int(lengths.max())}, {case.pct(inside):.1f} % of kernel time; most: {case.most('name', inside)}"
    )
    modules = case.most("module", inside)
    where = f" (in {modules})" if modules else ""
    do = f"fuse each chain{where} into one kernel: torch.compile the module that holds it, or write it in Triton"
    return Finding("Element-wise kernels run in chains", evidence, do, case.model.price_each(case.fused(chain)))
