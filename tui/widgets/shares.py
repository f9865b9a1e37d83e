"""The three shares as stacked bars, one under the other, with a legend: what the kernels, the operators and the clock say."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment

from profilers.rules.taxonomy import GROUPS
from tui import bars
from tui.cells import fit, width
from tui.palette import Palette
from tui.widgets.lines import Lines

SHORT = {"device": "of kernels", "operator": "of host+dev", "wall": "of step", "span": "of span"}
OF = {"device": "of kernel time", "operator": "of host+device time", "wall": "of step time", "span": "of the span"}


@dataclass(frozen=True)
class Share:
    """One bar. ``parts``: (group or class, time) with GEMM first; ``idle`` is time in which nothing ran."""

    name: str
    parts: tuple[tuple[str, float], ...]
    gemm_pct: float
    with_attention: bool = False
    """Whether ``gemm_pct`` holds fused attention too; the bar says so."""
    idle: float = 0.0
    of: str = ""
    """A key of :data:`OF`, where it is not the share's name."""
    where: str = ""
    """Which of several devices the bar is of."""


class ShareBars(Lines):
    """Draws :class:`Share` rows. The legend names only what occurs, largest first, GEMM always leftmost."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shares: tuple[Share, ...] = ()

    def show(self, shares: tuple[Share, ...]) -> None:
        self.shares = shares
        self.redraw()

    def build(self, width: int) -> list[list[Segment]]:
        palette = self.palette
        if not self.shares:
            return [[Segment("No window has arrived yet.", palette.style(palette.muted))]]
        label = 9
        narrow = width < 90
        verdict = 24 if narrow else 37
        bar = max(width - label - verdict - 1, 10)
        lines = []
        for share in self.shares:
            line = [Segment(fit(share.name, label), palette.style(palette.text, bold=True))]
            line += bars.stacked(slices(share, palette), bar, palette)
            text = f" {share.gemm_pct:5.1f} %"
            sign = (" G" if narrow else " GEMM") + ("+A" if share.with_attention else "")
            line.append(Segment(sign + text, palette.style(palette.group("matmul"), bold=True)))
            of = (SHORT if narrow else OF).get(share.of or share.name, "")
            line.append(Segment((" " if narrow else "  ") + of, palette.style(palette.muted)))
            lines.append(line)
        lines.append(legend(self.shares, width - label, palette, label, self.shares[0].where))
        return lines


def slices(share: Share, palette: Palette) -> list[bars.Slice]:
    """A share as slices of a stacked bar."""
    out = [
        bars.Slice(time, palette.group(name), GROUPS[name].letter if name in GROUPS else "?")
        for name, time in share.parts
    ]
    if share.idle > 0:
        out.append(bars.Slice(share.idle, palette.faint, hatched=True))
    return out


def legend(shares: tuple[Share, ...], room: int, palette: Palette, indent: int, lead: str = "") -> list[Segment]:
    """Letters and names of the groups that occur, as many as fit; then how many more there are. ``lead`` stands before."""
    total: dict[str, float] = {}
    for share in shares:
        whole = sum(time for _, time in share.parts) + share.idle
        for name, time in share.parts:
            total[name] = max(total.get(name, 0.0), time / whole if whole else 0.0)
    order = [name for name in GROUPS if name in total]
    order.sort(key=lambda name: (GROUPS[name].cls != "gemm", GROUPS[name].cls != "attention", -total[name]))
    order = [name for name in order if total[name] >= 0.0005]
    lead = fit(lead, max(indent, width(lead) + 2))
    out = [Segment(lead, palette.style(palette.muted))]
    used = width(lead) - indent
    for index, name in enumerate(order):
        need = width(name) + 4
        more = f"+{len(order) - index}"
        if used + need + (0 if index == len(order) - 1 else width(more) + 1) > room - 7:
            out.append(Segment(more, palette.style(palette.muted)))
            break
        out.append(Segment(GROUPS[name].letter, palette.style(palette.group(name), bold=True)))
        out.append(Segment(f" {name}  ", palette.style(palette.muted)))
        used += need
    if any(share.idle > 0 for share in shares):
        out.append(Segment(f" {palette.mark('idle')} idle", palette.style(palette.muted)))
    return out
