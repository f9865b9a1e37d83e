"""What a person may choose about an analysis. One frozen value, handed down; the defaults are the studies' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

UTIL_EDGES = (10.0, 70.0)
"""SM % and DRAM %: below 10 is L, 10 to 70 inclusive is M, above 70 is H (1,000-kernels study)."""

THREAD_EDGES = (4_000, 32_000)
"""Threads launched: below 4,000 is L, 4,000 to 32,000 inclusive is M, above is H (1,000-kernels study)."""


@dataclass(frozen=True)
class WhatIf:
    """A change to price. Factors are speed-ups (2.0 = twice as fast); ``window`` is the path-forward model's d."""

    gemm: float = 1.0
    nongemm: float = 1.0
    window: int = 1
    groups: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """``attention_as_gemm``: fused attention counts as GEMM in totals (NonGEMM Bench's rule); its class stays visible.

    ``peaks``: device id -> :class:`profilers.analysis.peaks.Peaks` that come before what is looked up by name.
    """

    attention_as_gemm: bool = True
    util_edges: tuple[float, float] = UTIL_EDGES
    thread_edges: tuple[int, int] = THREAD_EDGES
    coverage_levels: tuple[float, ...] = (50.0, 80.0, 90.0, 99.0)
    timeline_bins: int = 200
    whatif: WhatIf | None = None
    peaks: Mapping[str, Any] = field(default_factory=dict, hash=False)
