"""The chip's states through time: one cell a slice of time, with a thin mark above where GEMM ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment

from tui.bars import merged
from tui.cells import fit, width
from tui.palette import Palette
from tui.widgets.lines import Lines


@dataclass(frozen=True)
class StripData:
    """Slices in time order: (state, share of the slice that was GEMM, share that was busy), and the legend's shares."""

    cells: tuple[tuple[str, float, float], ...] = ()
    legend: tuple[tuple[str, float], ...] = ()
    """(state, % of kernel time), largest first."""
    run_length: float = 0.0
    estimated: bool = True
    device: str = ""


class StateStrip(Lines):
    """Draws :class:`StripData` over three lines: GEMM marks, states, legend."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.data = StripData()

    def show(self, data: StripData) -> None:
        if data != self.data:
            self.data = data
            self.redraw()

    def build(self, width: int) -> list[list[Segment]]:
        palette, data, label = self.palette, self.data, 9
        if not data.cells:
            return [[Segment("")], [Segment("")], [Segment("")]]
        room = max(width - label, 10)
        cells = resample(data.cells, room)
        marks, states = [], []
        for state, gemm, busy in cells:
            full = gemm >= 0.5 * max(busy, 1e-9) and busy > 0.02
            sign = ("G" if palette.ascii or not palette.colour else "▄") if full else " "
            marks.append(Segment(sign, palette.style(palette.group("matmul"))))
            states.append(_cell(state, busy, palette))
        return [
            [Segment(fit("GEMM", label), palette.style(palette.muted)), *merged(marks)],
            [Segment(fit("state", label), palette.style(palette.text, bold=True)), *merged(states)],
            _legend(data, room, palette, label),
        ]


def _cell(state: str, busy: float, palette: Palette) -> Segment:
    if busy <= 0.02 or not state:
        return Segment(palette.mark("idle"), palette.style(palette.faint))
    if palette.ascii or not palette.colour:
        return Segment(sign_of(state), palette.style(palette.state(state)))
    return Segment(" ", palette.style("", palette.state(state)))


def sign_of(state: str) -> str:
    """One letter for a state where there is no colour: the resource that is used most (C compute, D data, B both)."""
    if state.startswith("L"):
        return "l"
    sm, dram = state[1:2], state[2:3]
    rank = {"L": 0, "M": 1, "H": 2}
    a, b = rank.get(sm, -1), rank.get(dram, -1)
    if a < 0 and b < 0:
        return "?"
    if a == b:
        return "bB"[a == 2] if a else "-"
    return ("C" if a == 2 else "c") if a > b else ("D" if b == 2 else "d")


def resample(cells: Sequence[tuple[str, float, float]], size: int) -> list[tuple[str, float, float]]:
    """The slices on ``size`` cells: where several fall into one cell the busiest decides, where one spans several it repeats."""
    count = len(cells)
    if count == 0 or size <= 0:
        return []
    out = []
    for cell in range(size):
        first = cell * count // size
        last = max((cell + 1) * count // size, first + 1)
        part = cells[first:last]
        best = max(part, key=lambda c: c[2])
        out.append((best[0], sum(c[1] for c in part) / len(part), sum(c[2] for c in part) / len(part)))
    return out


def _legend(data: StripData, room: int, palette: Palette, indent: int) -> list[Segment]:
    out = [Segment(" " * indent)]
    tail = f"{data.run_length:.1f} kernels/run" if data.run_length else ""
    if data.estimated:
        tail = f"{palette.mark('estimate')} estimated" + (f"  {tail}" if tail else "")
    used = 0
    for state, pct in data.legend:
        text = f"{state} {pct:.1f} %  "
        if used + width(text) + 2 + width(tail) > room:
            break
        sign = palette.mark("swatch") if palette.colour and not palette.ascii else sign_of(state)
        out.append(Segment(f"{sign} ", palette.style(palette.state(state), bold=True)))
        out.append(Segment(text, palette.style(palette.muted)))
        used += width(text) + 2
    out.append(Segment(tail, palette.style(palette.text)))
    return out
