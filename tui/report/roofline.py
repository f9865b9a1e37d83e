"""The roofline as inline SVG: one dot a GEMM shape over the arithmetic intensity, under the roofs of the device.

Both axes are by powers of ten. Across, places are percentages, so that the picture is as wide as its page; upwards they
are pixels. Dots are rows of ``gemms`` (and those of ``roofline_groups`` that have an intensity and are no GEMM), lines are
rows of ``roofs``: nothing here is worked out twice.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from profilers.analysis.roofs import MEMORY
from profilers.rules.names import visible
from profilers.rules.taxonomy import GROUPS
from tui import format as fmt
from tui.report.pictures import group_class, group_items
from tui.report.rooflines import DOTS, HEIGHT, Axes, Dot, Roof, axes_of, dots, rate, ridge, roofs_of

if TYPE_CHECKING:
    import pandas as pd

_LINE = 15
"""Pixels that a line of text takes."""

_SAID = {
    "table": "from the table",
    "unchecked": "unchecked: of the table, but not found again in what it names",
    "estimated": "estimated ≈, dashed",
}

_LETTERS = 40
"""With more dots than this, letters in them would lie on one another."""

_MEMORY_LABEL = 0.75
"""How far up its line the memory's roof has its label."""


def picture(gemms: pd.DataFrame, groups: pd.DataFrame, roofs: pd.DataFrame) -> str:
    """The figure with its legend and the words below, as HTML; one line where nothing has both operations and bytes."""
    drawn = dots(gemms, groups)
    if not drawn:
        return _line("No matrix multiply, convolution or attention has recorded shapes: there is no dot to draw.")
    types = {dot.dtype for dot in drawn}
    lines = [roof for roof in roofs_of(roofs) if roof.name == MEMORY or roof.name in types]
    axes = axes_of(drawn, lines)
    most = max(dot.time_us for dot in drawn)
    said = "Operations a second reached, over operations per byte moved"
    letters = len(drawn) <= _LETTERS
    marks = "".join(_dot(axes, dot, most, letters) for dot in drawn)
    shapes = _grid(axes) + _roof_lines(axes, lines) + marks + _numbers(axes, drawn, most)
    return (
        f'<figure class="roofline"><figcaption>{said} (both by powers of ten)</figcaption>'
        f'<svg class="plot log" width="100%" height="{HEIGHT}" role="img" aria-label="{said}">{shapes}</svg>'
        f"{group_items(dict.fromkeys(dot.group for dot in drawn))}</figure>"
        f"{_named(drawn, gemms)}{_roof_words(roofs, lines)}{_left_out(gemms, drawn)}"
    )


def _grid(axes: Axes) -> str:
    out = []
    across, up = _powers(axes.x0, axes.x1), _powers(axes.y0, axes.y1)
    for power in across:
        x = axes.x(10.0**power)
        unit = " FLOP/B" if power == across[-1] else ""
        out.append(f'<line class="grid" x1="{x:.2f}%" y1="0" x2="{x:.2f}%" y2="{HEIGHT}"/>')
        anchor = "end" if x > 90 else "middle"
        out.append(f'<text x="{x:.2f}%" y="{HEIGHT + _LINE}" text-anchor="{anchor}">{10.0**power:g}{unit}</text>')
    for power in up:
        y = axes.y(10.0**power)
        out.append(f'<line class="grid" x1="0" y1="{y:.1f}" x2="100%" y2="{y:.1f}"/>')
        out.append(f'<text x="0" dx="4" y="{y - 4:.1f}">{rate(10.0**power)}</text>')
    return "".join(out)


def _powers(low: float, high: float) -> range:
    return range(math.ceil(low), math.floor(high) + 1)


def _roof_lines(axes: Axes, roofs: list[Roof]) -> str:
    """Each compute roof from its ridge to the right edge; the memory's roof up to the highest ridge of its model."""
    several = len({roof.model for roof in roofs}) > 1
    out: list[str] = []
    free = -float(_LINE)
    for roof in sorted((roof for roof in roofs if roof.name != MEMORY), key=lambda roof: -roof.limit):
        meets = ridge(roof, roofs)
        left, y = max(axes.x(meets), 0.0) if meets else 0.0, axes.y(roof.limit)
        out.append(_roof_line(roof, (left, y), (100.0, y)))
        # Above its line where there is room, else below; where there is none either, the words below the picture tell.
        place = next((at for at in (y - 4, y + _LINE - 2) if at - free >= _LINE - 1), None)
        if place is not None:
            free = place
            label = f"{roof.model} {roof.label}" if several else roof.label
            out.append(_text("100%", -4, place, label, "end"))
    for roof in (roof for roof in roofs if roof.name == MEMORY):
        tops = [one.limit for one in roofs if one.model == roof.model and one.name != MEMORY]
        highest = max(tops, default=10.0**axes.y1)
        low = max(10.0**axes.x0, 10.0**axes.y0 * 1e3 / roof.limit)
        high = min(10.0**axes.x1, highest * 1e3 / roof.limit)
        if high > low:
            ends = [(axes.x(at), axes.y(at * roof.limit / 1e3)) for at in (low, high)]
            out.append(_roof_line(roof, ends[0], ends[1]))
            # Left of the line and so above it, where no dot is: nothing is faster than its roof.
            at = low * (high / low) ** _MEMORY_LABEL
            label = f"{roof.model} {roof.label}" if several else roof.label
            out.append(_text(f"{axes.x(at):.2f}%", -8, axes.y(at * roof.limit / 1e3) - 2, label, "end"))
    return "".join(out)


def _roof_line(roof: Roof, begin: tuple[float, float], end: tuple[float, float]) -> str:
    kind = "roof estimated" if roof.estimated else "roof"
    places = f'x1="{begin[0]:.3f}%" y1="{begin[1]:.2f}" x2="{end[0]:.3f}%" y2="{end[1]:.2f}"'
    name, model = html.escape(roof.name), html.escape(roof.model)
    return f'<line class="{kind}" data-roof="{name}" data-model="{model}" {places}><title>{html.escape(roof.label)}</title></line>'


def _text(x: str, dx: float, y: float, words: str, anchor: str, cls: str = "label") -> str:
    return f'<text class="{cls}" x="{x}" dx="{dx:g}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def _dot(axes: Axes, dot: Dot, most: float, letters: bool) -> str:
    x, y = axes.x(dot.intensity), axes.y(dot.tflops)
    size = _size(dot, most)
    rates = f"{rate(dot.tflops)} at {fmt.significant(dot.intensity)} FLOP/B"
    title = f"<title>{html.escape(f'{dot.name}: {rates}, {_time(dot.time_us)}')}</title>"
    data = f'data-x="{dot.intensity!r}" data-y="{dot.tflops!r}"'
    place = f'cx="{x:.3f}%" cy="{y:.2f}"'
    cls = group_class(dot.group) + (" whole" if dot.whole else "")
    out = f'<circle class="{cls}" {place} r="{size:.1f}" {data}>{title}</circle>'
    letter = GROUPS[dot.group].letter if dot.group in GROUPS else "?"
    if dot.whole or (letters and size >= 6):
        out += _text(f"{x:.3f}%", 0, y + 4, letter, "middle", f"in {group_class(dot.group)}")
    return out


def _size(dot: Dot, most: float) -> float:
    """The radius in pixels: a dot's area above the least grows with its time."""
    return 3.0 + 8.0 * math.sqrt(dot.time_us / most) if most else 3.0


def _numbers(axes: Axes, drawn: list[Dot], most: float) -> str:
    """The numbers of the dots that are named, each on a side of its dot that has none yet."""
    out: list[str] = []
    taken: list[tuple[float, float]] = []
    for dot in drawn:
        if not dot.number:
            continue
        x, y, off = axes.x(dot.intensity), axes.y(dot.tflops) + 4, _size(dot, most) + 3
        sides = [(off, 0.0, "start"), (-off, 0.0, "end"), (0.0, off + 6, "middle"), (0.0, -off - 2, "middle")]
        free = [(dx, dy, anchor) for dx, dy, anchor in sides if _room(x + dx / 8, y + dy, taken)]
        dx, dy, anchor = (free or sides)[0]
        taken.append((x + dx / 8, y + dy))
        out.append(_text(f"{x:.3f}%", dx, y + dy, str(dot.number), anchor, "label number"))
    return "".join(out)


def _room(x: float, y: float, taken: list[tuple[float, float]]) -> bool:
    """Whether a digit fits there; a hundredth of the width is taken as 8 pixels."""
    return all(abs(x - other_x) > 1.5 or abs(y - other_y) > _LINE - 4 for other_x, other_y in taken)


def _time(us: float) -> str:
    return f"{fmt.significant(us / 1e3)} ms" if us >= fmt.MS_FROM_US else f"{fmt.significant(us)} µs"


def _named(drawn: list[Dot], gemms: pd.DataFrame) -> str:
    whole = float(gemms["time_us"].sum())
    items = []
    for dot in drawn:
        if dot.number:
            pct = 100 * dot.time_us / whole
            words = f"{rate(dot.tflops)}, {_time(dot.time_us)}, {pct:.1f} % of GEMM and attention time"
            items.append(f"<li><b>{html.escape(dot.name)}</b>: {words}</li>")
    return f'<ol class="named">{"".join(items)}</ol>' if items else ""


def _roof_words(frame: pd.DataFrame, drawn: list[Roof]) -> str:
    """Where every roof comes from; one line for devices that nothing is known of."""
    out = []
    for model in dict.fromkeys(roof.model for roof in drawn):
        rows = frame[frame["model"].map(lambda name: visible(str(name))) == model]
        where, cite = visible(str(rows["devices"].iloc[0])), visible(str(rows["cite"].iloc[0]))
        mine = [roof for roof in drawn if roof.model == model]
        said = ", ".join(dict.fromkeys(_SAID.get(roof.source, roof.source) for roof in mine))
        labels = "; ".join(roof.label for roof in mine)
        out.append(f"Roofs of {model} ({where}): {labels}. Dense rates, {said}: {cite}.")
    for row in frame.itertuples(index=False):
        if row.source == "none":
            out.append(f"No roof for {visible(str(row.devices))}: {visible(str(row.cite))}.")
    out.append(
        "A larger dot has more time. Operations are by formula from the shapes; bytes are counters' where there are any, "
        "else each counted once (an estimate ≈: real traffic is at least that). No formula counts the operations of "
        "other groups, so they have no dot; their memory traffic is in the table below."
    )
    return "".join(_line(text) for text in out)


def _left_out(gemms: pd.DataFrame, drawn: list[Dot]) -> str:
    shapes = sum(not dot.whole for dot in drawn)
    rest = len(gemms) - shapes
    if rest <= 0:
        return ""
    time = float(gemms["time_us"].sum()) - sum(dot.time_us for dot in drawn if not dot.whole)
    pct = 100 * time / float(gemms["time_us"].sum())
    why = "without recorded shapes" if shapes < DOTS else "with least time or without recorded shapes"
    return _line(f"Not drawn: {rest:,} of {len(gemms):,} rows, {pct:.1f} % of GEMM and attention time, {why}.")


def _line(text: str) -> str:
    return f'<p class="more">{html.escape(text)}</p>'
