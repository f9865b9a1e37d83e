"""What every rule looks at: one recording, its activities in order, the what-if model, and the waits by cause."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from profilers.analysis import idle, intervals, tally
from profilers.analysis.options import Options
from profilers.analysis.view import View, is_cpu, view
from profilers.analysis.whatif import Model, Priced
from profilers.tables import Recording

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LEAST_GAIN = 1.02
"""A change that buys less than 2 % of kernel time and of wall time is no advice."""


@dataclass(frozen=True)
class Finding:
    """``evidence`` names the tables and the figures that it rests on; ``do`` is in the user's own terms."""

    finding: str
    evidence: str
    do: str
    priced: Priced

    @property
    def worth(self) -> tuple[float, float]:
        """By what findings are ordered: wall time first, then kernel time."""
        return self.priced.wall_speedup, self.priced.device_speedup

    @property
    def pays(self) -> bool:
        """Whether it buys enough to be told."""
        return max(self.worth) >= LEAST_GAIN


class Case:
    """A recording made ready for the rules. Arrays are by kernel in the order of device and start (``model.rows``)."""

    def __init__(self, recording: Recording, options: Options) -> None:
        self.recording, self.options = recording, options
        self.view: View = view(recording)
        self.model = Model(recording, options)

    @property
    def rows(self) -> Ints:
        return self.model.rows

    @property
    def time(self) -> Floats:
        return self.model.time

    @cached_property
    def total_ns(self) -> float:
        return float(self.time.sum())

    @cached_property
    def gpu(self) -> Bools:
        """Kernels of a GPU (not of the host's processors)."""
        cpu = np.array([is_cpu(device) for device in self.view.devices] + [True])
        return np.asarray(~cpu[self.view.device[self.rows]])

    @cached_property
    def steps(self) -> int:
        """Steps in which kernels were launched; 1 where no step is recorded."""
        found = np.unique(self.view.kernels["step"].to_numpy()[self.rows])
        return max(int((found >= 0).sum()), 1)

    @property
    def per(self) -> str:
        return "step" if len(self.view.steps) else "recording"

    def texts(self, column: str) -> tuple[npt.NDArray[np.object_], Ints]:
        """The values of a text column of ``kernels``, and each kernel's position among them."""
        series = self.view.kernels[column]
        return tally.texts(series), tally.codes(series)[self.rows]

    def of_group(self, *groups: str) -> Bools:
        names, codes = self.texts("group")
        return np.asarray(np.isin(names, groups)[codes])

    def named(self, words: Iterable[str]) -> Bools:
        """Kernels whose name holds one of the words, in any case."""
        names, codes = self.texts("name")
        words = tuple(words)
        return np.array([any(word in str(name).lower() for word in words) for name in names], bool)[codes]

    @cached_property
    def modules(self) -> tuple[npt.NDArray[np.object_], Ints]:
        """Class names of modules, and each kernel's position among them (the last one, '', where none is known)."""
        names = tally.texts(self.view.operators["module"])
        row = self.view.operator_row[self.rows]
        code = np.full(row.size, names.size - 1, np.int64)
        if len(self.view.operators):
            code[row >= 0] = tally.codes(self.view.operators["module"])[row[row >= 0]]
        return names, code % names.size

    def pct(self, mask: Bools) -> float:
        """Percent of all kernel time."""
        return 100.0 * float(self.time[mask].sum()) / self.total_ns if self.total_ns else 0.0

    def most(self, column: str, mask: Bools, count: int = 3) -> str:
        """The values of a column with most time among these kernels, e.g. ``mul, add, gelu``."""
        from profilers.rules.names import short_names

        names, codes = self.texts(column) if column != "module" else self.modules
        time = tally.total(codes[mask], self.time[mask], names.size)
        top = [str(names[i]) for i in np.argsort(-time, kind="stable")[:count] if time[i] > 0 and names[i]]
        return ", ".join(short_names(top) if column == "name" else top)

    # -- chains ------------------------------------------------------------------------------------------------------

    @cached_property
    def elements(self) -> Ints:
        """Elements of the largest input of each kernel's operator; without recorded shapes minus the threads launched."""
        size = np.array([_largest(str(text)) for text in tally.texts(self.view.operators["input_shapes"])], np.int64)
        row = self.view.operator_row[self.rows]
        found = -self.view.kernels["threads"].to_numpy()[self.rows]
        if len(self.view.operators):
            known = size[tally.codes(self.view.operators["input_shapes"])[row]]
            found = np.where((row >= 0) & (known > 0), known, found)
        return np.asarray(found, np.int64)

    def chains(self, member: Bools, least: int = 2, *, alike: bool = False) -> Ints:
        """The number of the chain that each kernel is in, -1: none. A chain is ``least`` or more members in a row, on one
        device and stream, in one step; ``alike``: of as many elements each, so that they may be of one tensor."""
        stream = self.view.kernels["stream"].to_numpy()[self.rows]
        step = self.view.kernels["step"].to_numpy()[self.rows]
        device = self.model.device
        same = member[1:] & member[:-1]
        same &= (stream[1:] == stream[:-1]) & (step[1:] == step[:-1]) & (device[1:] == device[:-1])
        if alike:
            same &= self.elements[1:] == self.elements[:-1]
        number = np.cumsum(np.r_[True, ~same]) - 1 if member.size else np.zeros(0, np.int64)
        long = (np.bincount(number) >= least)[number] if member.size else np.zeros(0, bool)
        return np.where(member & long, number, -1).astype(np.int64)

    def fused(self, chain: Ints) -> Floats:
        """Factors that make every chain cost as much as its longest kernel: one pass over memory instead of many."""
        factor = np.ones(chain.size)
        inside = chain >= 0
        if inside.any():
            size = int(chain.max()) + 1
            longest = np.zeros(size)
            np.maximum.at(longest, chain[inside], self.time[inside])
            whole = tally.total(chain[inside], self.time[inside], size)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(longest > 0, whole / longest, 1.0)
            factor[inside] = ratio[chain[inside]]
        return factor

    # -- waits -------------------------------------------------------------------------------------------------------

    @cached_property
    def waits(self) -> dict[str, tuple[int, float]]:
        """Cause of idle -> number of gaps and nanoseconds of wall time, over the devices."""
        v = self.view
        host = idle.Host.of(self.recording)
        names = list(idle.CAUSES)
        found = dict.fromkeys(names, (0, 0.0))
        for device in range(len(v.devices)):
            left, right, cause = idle.classified_gaps(v, device, host)
            inside = intervals.covered(left, right, *v.wall(device))
            time, gaps = tally.total(cause, inside, len(names)), tally.count(cause, len(names))
            for index, name_ in enumerate(names):
                held = found[name_]
                found[name_] = held[0] + int(gaps[index]), held[1] + float(time[index])
        return found

    def without_wait(self, cause: str) -> Priced:
        """The price of never waiting for this cause again."""
        return self.model.price_each(np.ones(self.rows.size), self.waits[cause][1])

    def wall_pct(self, ns: float) -> float:
        return 100.0 * ns / self.model.wall_ns if self.model.wall_ns else 0.0


def _largest(shapes: str) -> int:
    """Elements of the largest tensor in a JSON list of shapes (0: none)."""
    try:
        found = json.loads(shapes) if shapes else []
    except ValueError:
        return 0
    sizes = [prod(s) for s in found if isinstance(s, list) and s and all(isinstance(n, int) for n in s)]
    return max(sizes, default=0)
