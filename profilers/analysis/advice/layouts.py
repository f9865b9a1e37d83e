"""Convolutions that change the memory layout before and after they compute."""

from __future__ import annotations

import numpy as np

from profilers.analysis.advice.case import Case, Finding

TRANSFORMS = ("nchwtonhwc", "nhwctonchw", "nchw2nhwc", "nhwc2nchw", "converttensor", "nchwaddpadding")
"""What cuDNN's and MIOpen's layout kernels are called."""


def find(case: Case) -> Finding | None:
    """Layout changes beside convolutions; priced as if there were none."""
    change = case.gpu & case.named(TRANSFORMS)
    if not change.any():
        return None
    convolution = case.of_group("convolution") & ~change
    evidence = (
        f"kernels: {int(change.sum()) / case.steps:,.0f} layout changes a {case.per}, {case.pct(change):.1f} % of kernel "
        f"time, beside {case.pct(convolution):.1f} % in convolutions; most: {case.most('name', change)}"
    )
    do = "keep tensors in channels-last: model.to(memory_format=torch.channels_last), and the input as well"
    priced = case.model.price_each(np.where(change, np.inf, 1.0))
    return Finding("Convolutions change the memory layout back and forth", evidence, do, priced)
