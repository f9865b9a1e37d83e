"""GPUs side by side: a line each, with its live states through time; what a state's share is, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.segment import Segment

from tui.bars import merged
from tui.cells import fit
from tui.format import duration
from tui.palette import Palette
from tui.telemetry import Series
from tui.widgets.cell_lines import CellLines
from tui.widgets.sparkline import sparkline
from tui.widgets.state_strip import sign_of

if TYPE_CHECKING:
    from profilers.analysis.livestates import Live, Summary

SLICES_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""How much time a cell of the strip may stand for."""

_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Gpu:
    """One line: newest values (NaN: not known) and histories, oldest first."""

    device: str
    resident: float
    sm: float
    dram: float
    tensor: float
    memory_gb: float
    memory_total_gb: float
    power: tuple[float, ...]
    temperature: float
    live: Live
    summary: Summary


def gpus_of(series: Mapping[tuple[str, str], Series]) -> list[Gpu]:
    """A line for every GPU that was sampled, by number."""
    from profilers.analysis.livestates import live, summary

    names = dict.fromkeys(device for device, _ in series if device.startswith("cuda"))
    found = []
    for name in sorted(names, key=_number):

        def get(metric: str, name: str = name) -> Series | None:
            return series.get((name, metric))

        def newest(metric: str, name: str = name) -> float:
            held = series.get((name, metric))
            return held.newest if held is not None else math.nan

        sm, dram = get("sm_pct"), get("dram_pct")
        states = live(
            name,
            (sm.times_ns, sm.values) if sm else ((), ()),
            (dram.times_ns, dram.values) if dram else ((), ()),
        )
        power = get("power_w")
        found.append(
            Gpu(
                name,
                newest("util_pct"),
                newest("sm_pct"),
                newest("dram_pct"),
                newest("tensor_pct"),
                newest("memory_used_gb"),
                newest("memory_total_gb"),
                power.values if power else (),
                newest("temperature_c"),
                states,
                summary(states),
            )
        )
    return found


def _number(device: str) -> tuple[int, str]:
    number = device.rpartition(":")[2]
    return (int(number) if number.isdigit() else 0, device)


def frame_of(gpus: Sequence[Gpu], cells: int) -> tuple[int, int]:
    """(first ns, slice ns) of a strip of so many cells that holds all that is known; 0, 0 where nothing is.

    The beginning moves in steps of a quarter of the strip, so that most ticks change one cell and scroll nothing.
    """
    starts = [int(gpu.live.start_ns[0]) for gpu in gpus if gpu.live.t_ns.size]
    if not starts or cells <= 0:
        return 0, 0
    first, last = min(starts), max(int(gpu.live.t_ns[-1]) for gpu in gpus if gpu.live.t_ns.size)
    for seconds in SLICES_S:
        size = seconds * _SECOND
        step = max(cells // 4, 1) * size
        begin = first // step * step
        if last - begin <= cells * size:
            return begin, size
    size = SLICES_S[-1] * _SECOND
    return last - cells * size, size


class GpuRows(CellLines):
    """A header, a line a GPU, and a line a GPU with the time per state."""

    def __init__(self) -> None:
        super().__init__()
        self.gpus: list[Gpu] = []
        self._totals: list[Gpu] = []

    def show(self, gpus: list[Gpu], totals: bool = True) -> None:
        """Draw these; ``totals`` False leaves the times per state as they were (they move slowly, and cost bytes)."""
        self.gpus = gpus
        if totals or len(self._totals) != len(gpus):
            self._totals = gpus
        self.redraw()

    def build(self, width: int) -> list[list[Segment]]:
        p, gpus = self.palette, self.gpus
        if not gpus:
            return [[Segment("")]]
        name = max(len(gpu.device) for gpu in gpus) + 1
        wide = width >= 100
        spark = 16 if wide else 6
        fixed = name + 9 + 5 + 6 + 8 + 11 + 6 + spark + (5 if wide else 0) + 5
        room = max(width - fixed - 1, 0)
        first, size = frame_of(gpus, room)
        muted = p.style(p.muted)
        scale = f"states, {duration(size // _SECOND)} a cell" if size and room >= 12 else ""
        head = fit("GPU", name) + fit("resident", 9, True) + fit("SM", 5, True) + fit("DRAM", 6, True)
        head += fit("tensor", 8, True) + fit("memory GB", 11, True) + fit("W", 6, True) + " " * spark
        head += (fit("C", 5, True) if wide else "") + "     " + " " + fit(scale, room)
        out = [[Segment(head, muted)]]
        top = max((value for gpu in gpus for value in gpu.power if value == value), default=0.0)
        for gpu in gpus:
            out.append(self._row(gpu, name, spark, wide, room, first, size, top))
        with_states = [gpu for gpu in self._totals if gpu.summary.shares]
        if with_states:
            out.append([])
            out.append([Segment("time per state", p.style(p.text, bold=True)), Segment("  % of sampled time", muted)])
            out += [self._shares(gpu, name, width) for gpu in with_states]
        return out

    def _row(
        self,
        gpu: Gpu,
        name: int,
        spark: int,
        wide: bool,
        room: int,
        first: int,
        size: int,
        top: float,
    ) -> list[Segment]:
        p = self.palette
        text = p.style(p.text)
        memory = _dash(p) if gpu.memory_gb != gpu.memory_gb else f"{gpu.memory_gb:.1f}"
        if gpu.memory_total_gb == gpu.memory_total_gb:
            memory += f"/{gpu.memory_total_gb:.0f}"
        watts = gpu.power[-1] if gpu.power else math.nan
        numbers = _pct(gpu.sm, 5, p) + _pct(gpu.dram, 6, p) + _pct(gpu.tensor, 8, p) + fit(memory, 11, True)
        state = shown(gpu.summary.newest, p) or _dash(p)
        out = [
            Segment(fit(gpu.device, name), p.style(p.text, bold=True)),
            Segment(_pct(gpu.resident, 9, p) + numbers + _whole(watts, 6, p) + " ", text),
            *sparkline(gpu.power, spark - 1, top, p, p.group("elementwise")),
        ]
        if wide:
            out.append(Segment(_whole(gpu.temperature, 5, p), text))
        out.append(Segment(fit(state, 4, True) + "  ", p.style(p.state(gpu.summary.newest), bold=True)))
        return [*out, *states_strip(gpu.live, first, size, room, p)]

    def _shares(self, gpu: Gpu, name: int, width: int) -> list[Segment]:
        p = self.palette
        out = [Segment(fit(gpu.device, name), p.style(p.text))]
        tail = f"{gpu.summary.flips_per_minute:.0f} flips/min over {duration(gpu.summary.known_s)}"
        used = name + len(tail) + 2
        for state, _, pct in gpu.summary.shares:
            text = f"{shown(state, p)} {pct:.0f} %"
            if used + len(text) + 4 > width:
                break
            used += len(text) + 4
            sign = p.mark("swatch") if p.colour and not p.ascii else sign_of(state)
            out.append(Segment(f"{sign} ", p.style(p.state(state), bold=True)))
            out.append(Segment(text + "  ", p.style(p.text)))
        return [*out, Segment(tail, p.style(p.muted))]


def states_strip(live: Live, first: int, size: int, cells: int, p: Palette) -> list[Segment]:
    """The states of one GPU through time: a colour a slice that is over (a letter without colour), a dot where nobody
    sampled between its first sample and its newest."""
    from profilers.analysis.livestates import strip

    if not size or cells <= 0 or not live.t_ns.size:
        return []
    begin, end = max(int(live.start_ns[0] - first) // size, 0), min((int(live.t_ns[-1]) - first) // size, cells)
    out = []
    for place, state in enumerate(strip(live, first, size, end)):
        if place < begin:
            out.append(Segment(" "))
        elif not state:
            out.append(Segment(p.mark("idle"), p.style(p.faint)))
        elif p.ascii or not p.colour:
            out.append(Segment(sign_of(state), p.style(p.state(state))))
        else:
            out.append(Segment(" ", p.style("", p.state(state))))
    return merged(out)


def shown(state: str, p: Palette) -> str:
    """A state's letters as this terminal can draw them."""
    return state.replace("·", ".") if p.ascii else state


def _dash(p: Palette) -> str:
    return p.mark("dash")


def _pct(value: float, cells: int, p: Palette) -> str:
    return fit(_dash(p) if value != value else f"{value:.0f} %", cells, True)


def _whole(value: float, cells: int, p: Palette) -> str:
    return fit(_dash(p) if value != value else f"{value:.0f}", cells, True)
