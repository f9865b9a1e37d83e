"""What a roofline is drawn of: dots from ``gemms`` and ``roofline_groups``, roofs from ``roofs``, and the scales of both axes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profilers.analysis.roofs import GENERAL, MEMORY
from profilers.rules.names import short_name, visible
from tui import format as fmt
from tui.panes.gemms import group_of

if TYPE_CHECKING:
    import pandas as pd

HEIGHT = 340
DOTS = 500
"""At most so many shapes are drawn, those with most time first."""

NAMED = 5
"""So many of them carry a number and are named below."""

_GEMM_GROUPS = ("matmul", "convolution", "grouped-matmul", "attention")

_MARGIN = 0.3
"""Powers of ten around what is drawn: the highest roof has its label above it."""

_UNITS = (("T", 1.0), ("G", 1e-3), ("M", 1e-6))


@dataclass(frozen=True)
class Axes:
    """Logarithms to base ten of what the picture reaches from and to: FLOP a byte across, TFLOP/s upwards."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, intensity: float) -> float:
        """Percent of the width."""
        return 100.0 * (math.log10(intensity) - self.x0) / (self.x1 - self.x0)

    def y(self, tflops: float) -> float:
        """Pixels from the top."""
        return HEIGHT * (self.y1 - math.log10(tflops)) / (self.y1 - self.y0)


@dataclass(frozen=True)
class Dot:
    """``number``: 1 .. for those that are named below, 0 for the others; ``whole``: a group, not a shape; ``dtype``: the
    roof that holds for it."""

    intensity: float
    tflops: float
    time_us: float
    group: str
    name: str
    dtype: str = GENERAL
    number: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Roof:
    """A row of ``roofs`` that has a figure. ``limit``: TFLOP/s, or GB/s of the memory's."""

    model: str
    name: str
    limit: float
    source: str

    @property
    def estimated(self) -> bool:
        return self.source == "estimated"

    @property
    def label(self) -> str:
        limit = f"{fmt.significant(self.limit)} GB/s" if self.name == MEMORY else rate(self.limit)
        doubt = " (unchecked)" if self.source == "unchecked" else ""
        return f"{self.name} {'≈ ' if self.estimated else ''}{limit}{doubt}"


def dots(gemms: pd.DataFrame, groups: pd.DataFrame) -> list[Dot]:
    """Every row that has a place, those with most time first; groups that are no GEMM last."""
    found: list[Dot] = []
    shapes = ("op", "shape", "dtype", "time_us", "intensity", "tflops_per_s")
    for op, shape, dtype, time, x, y in zip(*(gemms[name] for name in shapes), strict=True):
        if _placed(x, y) and len(found) < DOTS:
            words = " ".join(part for part in (short_name(str(op)), str(shape), str(dtype)) if part)
            number = len(found) + 1 if len(found) < NAMED else 0
            kind = visible(str(dtype)) or GENERAL
            found.append(Dot(float(x), float(y), float(time), group_of(str(op))[0], visible(words), kind, number))
    totals = ("group", "time_us", "intensity", "tflops_per_s")
    for group, time, x, y in zip(*(groups[name] for name in totals), strict=True):
        if _placed(x, y) and str(group) not in _GEMM_GROUPS:
            name = f"all of {visible(str(group))}"
            found.append(Dot(float(x), float(y), float(time), str(group), name, whole=True))
    return found


def _placed(x: float, y: float) -> bool:
    return math.isfinite(x) and math.isfinite(y) and x > 0 and y > 0


def roofs_of(frame: pd.DataFrame) -> list[Roof]:
    """The rows of ``roofs`` that have a figure."""
    out = []
    columns = ("model", "roof", "tflops_per_s", "gb_per_s", "source")
    for model, roof, tflops, gb_s, source in zip(*(frame[name] for name in columns), strict=True):
        limit = float(gb_s if roof == MEMORY else tflops)
        if math.isfinite(limit) and limit > 0:
            out.append(Roof(visible(str(model)), visible(str(roof)), limit, str(source)))
    return out


def axes_of(drawn: Iterable[Dot], roofs: Iterable[Roof]) -> Axes:
    """Room for every dot, every roof and every ridge, at least two powers of ten each way."""
    xs, ys = [], []
    for dot in drawn:
        xs.append(math.log10(dot.intensity))
        ys.append(math.log10(dot.tflops))
    held = list(roofs)
    for roof in held:
        if roof.name != MEMORY:
            ys.append(math.log10(roof.limit))
            meets = ridge(roof, held)
            xs += [math.log10(meets)] if meets else []
    return Axes(*_around(xs), *_around(ys))


def _around(logs: list[float]) -> tuple[float, float]:
    low, high = min(logs) - _MARGIN, max(logs) + _MARGIN
    short = max(2.0 - (high - low), 0.0)
    return low - short / 2, high + short / 2


def ridge(roof: Roof, roofs: Iterable[Roof]) -> float:
    """Where the memory's roof meets this one, in FLOP/B; 0 where the model's memory is not known."""
    memory = next((one.limit for one in roofs if one.model == roof.model and one.name == MEMORY), 0.0)
    return roof.limit * 1e3 / memory if memory else 0.0


def rate(tflops: float) -> str:
    """A rate in the unit that it needs no leading zeros in."""
    unit, size = next((one for one in _UNITS if tflops >= one[1] * (1 - 1e-9)), _UNITS[-1])
    number = fmt.significant(tflops / size)
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}FLOP/s"
