"""What a change would buy: Amdahl's law over measured kernel times, and the path-forward model of the study.

``e`` divides the time of GEMM kernels, ``m`` that of all others. With a window ``d`` above 1, kernels in different
utilization states may overlap: walking the kernels of a device in order, a window takes in the next one while it holds
fewer than d and none of its state; a window costs its longest kernel instead of the sum. By construction (2, 1, 1) is
``1 / (1 - g/2)``, (1, 2, 1) is ``1 / (1 - (1 - g)/2)`` with g the GEMM share of kernel time, and (2, 2, 1) is 2.

In wall time only busy time shrinks; idle time stays. Without a window each kernel's own share of the wall shrinks by
its factor; with one the device's busy time shrinks as its kernel time does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options, WhatIf
from profilers.analysis.states import state_codes
from profilers.analysis.view import View, view
from profilers.tables import Recording

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_COLUMNS = ["case", "gemm", "nongemm", "window", "device_speedup", "wall_speedup"]


class WhatIfError(ValueError):
    """A change that cannot be priced; the message says which part and what would be right."""


@dataclass(frozen=True)
class Priced:
    """Time before over time after; NaN where nothing ran. ``inf`` where the change leaves nothing."""

    device_speedup: float
    wall_speedup: float


def whatif(recording: Recording, options: Options) -> pd.DataFrame:
    """The study's cases, GEMM ten times as fast, everything else for free, the largest group twice as fast, and
    ``options.whatif`` (case ``chosen``). Speed-ups are over all devices added up."""
    v = view(recording)
    if not v.rows.size:
        return pd.DataFrame(columns=_COLUMNS)
    model = Model(recording, options)
    rows = []
    for case, change in cases(v, options):
        priced = model.price(change)
        rows.append((case, change.gemm, change.nongemm, change.window, priced.device_speedup, priced.wall_speedup))
    return pd.DataFrame(rows, columns=_COLUMNS)


def cases(v: View, options: Options) -> list[tuple[str, WhatIf]]:
    """The cases that :func:`whatif` shows, in order."""
    found = [
        ("GEMM x2", WhatIf(gemm=2)),
        ("others x2", WhatIf(nongemm=2)),
        ("GEMM and others x2", WhatIf(gemm=2, nongemm=2)),
        ("window 2", WhatIf(window=2)),
        ("GEMM and others x2, window 2", WhatIf(gemm=2, nongemm=2, window=2)),
        ("GEMM x10", WhatIf(gemm=10)),
        ("others free", WhatIf(nongemm=math.inf)),
    ]
    names = tally.texts(v.kernels["group"])
    time = tally.total(tally.codes(v.kernels["group"])[v.rows], v.dur[v.rows], names.size)
    largest = str(names[int(time.argmax())])
    if largest:
        found.append((f"{largest} x2", WhatIf(groups={largest: 2.0})))
    if options.whatif is not None:
        found.append(("chosen", options.whatif))
    return found


class Model:
    """A recording made ready for pricing many changes (a slider asks often): times, states and wall shares once."""

    def __init__(self, recording: Recording, options: Options) -> None:
        v = self._view = view(recording)
        self.rows = v.in_time
        self.time: Floats = v.dur[self.rows].astype(np.float64)
        self.device = v.device[self.rows]
        self.gemm = v.gemm_like(options)[self.rows]
        self._group = tally.codes(v.kernels["group"])[self.rows]
        self._name = tally.codes(v.kernels["name"])[self.rows]
        self._state = state_codes(v, options)[self.rows]
        self._wall_time, self._wall = 0.0, np.zeros(self.rows.size)
        for index in range(len(v.devices)):
            share, wall = v.wall_share(index)
            self._wall_time += wall
            self._wall += share[self.rows]

    def factors(self, change: WhatIf) -> Floats:
        """How many times as fast each kernel becomes (in order of device and start): its name's factor, else its
        group's, else its class's. Raises :class:`WhatIfError` for a factor that is not above 0 or an unknown name."""
        asked = {"gemm": change.gemm, "nongemm": change.nongemm, **change.groups, **change.kernels}
        for what, value in asked.items():
            if not value > 0:
                raise WhatIfError(f"{what}: a speed-up must be above 0, not {value:g}")
        if change.window < 1:
            raise WhatIfError(f"window: must be 1 or more, not {change.window}")
        factor: Floats = np.where(self.gemm, float(change.gemm), float(change.nongemm))
        for column, codes, wanted in (
            ("group", self._group, change.groups),
            ("name", self._name, change.kernels),
        ):
            names = list(map(str, self._view.kernels[column].cat.categories))
            for name, value in wanted.items():
                if name not in names:
                    raise WhatIfError(f"{name}: no kernel of this recording has that {column}")
                factor[codes == names.index(name)] = value
        return factor

    def price(self, change: WhatIf) -> Priced:
        """The speed-up of kernel time and of wall time under a change."""
        factor = self.factors(change)
        if change.window == 1:
            return self.price_each(factor)
        after = self.time / factor
        before = float(self.time.sum())
        if not before:
            return Priced(math.nan, math.nan)
        cost, wall = 0.0, self._wall_time
        for index in range(len(self._view.devices)):
            mine = np.flatnonzero(self.device == index)
            part, whole = windowed(after[mine], self._state[mine], change.window), float(self.time[mine].sum())
            cost += part
            if whole:
                wall -= float(self._wall[mine].sum()) * (1 - part / whole)
        return Priced(_ratio(before, cost), _ratio(self._wall_time, wall))

    def price_each(self, factor: Floats, waiting_ns: float = 0.0) -> Priced:
        """The speed-ups when each kernel (in the order of ``rows``) becomes so many times as fast, and ``waiting_ns`` of
        the wall time in which nothing runs go away."""
        before = float(self.time.sum())
        if not before:
            return Priced(math.nan, math.nan)
        wall = self._wall_time - float((self._wall * (1 - 1 / factor)).sum()) - waiting_ns
        return Priced(_ratio(before, float((self.time / factor).sum())), _ratio(self._wall_time, wall))

    @property
    def wall_ns(self) -> float:
        """Wall time of all devices added up: their steps, or their spans where there are none."""
        return self._wall_time


def _ratio(before: float, after: float) -> float:
    if not before:
        return math.nan
    # What floating point leaves of nothing is nothing.
    return before / after if after > 1e-9 * before else math.inf


def windowed(time: Floats, state: Ints, window: int) -> float:
    """The cost of one device's kernels, in order, under the greedy window model: the sum of each window's longest."""
    if window == 1 or not time.size:
        return float(time.sum())
    first = np.array(_pair_starts(state) if window == 2 else _window_starts(state.tolist(), window), np.int64)
    return float(np.maximum.reduceat(time, first).sum())


def _pair_starts(state: Ints) -> Ints:
    """Where windows of two begin. Between two neighbours in one state a window always ends, so within each stretch
    without such neighbours every second kernel opens one."""
    breaks = np.r_[True, state[1:] == state[:-1]]
    stretch_start = np.maximum.accumulate(np.where(breaks, np.arange(state.size), 0))
    return np.flatnonzero((np.arange(state.size) - stretch_start) % 2 == 0)


def _window_starts(states: Iterable[int], window: int) -> list[int]:
    """Where greedy windows begin, for any length. A loop over kernels, for where a window ends depends on all before."""
    starts: list[int] = []
    seen, room = 0, 0
    for index, state in enumerate(states):
        bit = 1 << state
        if room and not seen & bit:
            seen |= bit
            room -= 1
        else:
            starts.append(index)
            seen, room = bit, window - 1
    return starts
