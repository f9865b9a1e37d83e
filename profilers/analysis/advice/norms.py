"""A normalization in many kernels, where one fused kernel would do."""

from __future__ import annotations

import numpy as np

from profilers.analysis.advice.case import Bools, Case, Finding

LEAST = 4
"""A fused normalization takes one kernel, batch normalization in training up to three; one of four or more is written out
of primitive operators."""


def in_norm(case: Case) -> Bools:
    """Kernels of chains that are one normalization."""
    return case.chains(_member(case), LEAST) >= 0


def _member(case: Case) -> Bools:
    """Kernels launched inside a module whose class ends in Norm, or classified as normalization."""
    names, codes = case.modules
    module = np.array([str(name).rstrip("0123456789d").endswith("Norm") for name in names], bool)[codes]
    return (module | case.of_group("normalization")) & ~case.of_group("matmul", "convolution", "attention", "optimizer")


def find(case: Case) -> Finding | None:
    """Four or more kernels in a row in one normalization; priced as if each cost as much as its longest kernel."""
    chain = case.chains(_member(case), LEAST)
    inside = chain >= 0
    if not inside.any():
        return None
    number = np.unique(chain[inside]).size
    modules = case.most("module", inside)
    where = f" ({modules})" if modules else ""
    evidence = (
        f"kernels: {int(inside.sum()) / number:.1f} in a row for a normalization{where}, "
        f"{number / case.steps:,.0f} times a {case.per}, {case.pct(inside):.1f} % of kernel time; most: {case.most('name', inside)}"
    )
    do = "use a fused kernel: torch.nn.functional.rms_norm or layer_norm, or torch.compile the module"
    return Finding(
        "Normalization is written out of many kernels", evidence, do, case.model.price_each(case.fused(chain))
    )
