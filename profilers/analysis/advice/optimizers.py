"""An optimizer update in many passes over the parameters."""

from __future__ import annotations

import numpy as np

from profilers.analysis import tally
from profilers.analysis.advice.case import Case, Finding

WORDS_FUSED, WORDS_PASS = 7.0, 4.0
"""A fused Adam reads parameter, gradient and both moments and writes three of them: 7 words a parameter. The longest
single pass (addcdiv or addcmul) reads three and writes one: 4."""

FUSED = ("fusedadam", "fusedsgd", "fusedadagrad", "fused_adam", "fused_sgd", "fused_adagrad", "fusedoptimizer", "lamb")


def find(case: Case) -> Finding | None:
    """Three or more different kernels for the update, none of them a fused one; priced as one pass that moves 7/4 of what
    the longest of them moves, as fast."""
    update = case.of_group("optimizer")
    names, codes = case.texts("name")
    different = np.unique(codes[update])
    if different.size < 3 or (update & case.named(FUSED)).any():
        return None
    passes = tally.total(codes[update], case.time[update], names.size)
    whole, one = float(passes.sum()), float(passes.max()) * WORDS_FUSED / WORDS_PASS
    if one >= whole:
        return None
    factor = np.where(update, whole / one, 1.0)
    evidence = (
        f"groups: optimizer {case.pct(update):.1f} % of kernel time; kernels: {int(update.sum()) / case.steps:,.0f} a "
        f"{case.per} in {different.size} kinds of pass; most: {case.most('name', update)}"
    )
    do = "create the optimizer with fused=True (Adam, AdamW, SGD, Adagrad): one kernel reads and writes each value once"
    return Finding("The optimizer goes over the parameters in many passes", evidence, do, case.model.price_each(factor))
