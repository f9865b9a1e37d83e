"""Telemetry as inline SVG: a small curve a metric, all on one axis of time, with the profiled windows marked.

A curve lies in a box of 1,000 by 100 that is stretched to the page; its line keeps its width. Where nothing was sampled
the line stops.
"""

from __future__ import annotations

import html
import math
from itertools import groupby

from profilers.rules.names import visible
from tui import format as fmt
from tui.report.telemetry import GAP, Curve, Telemetry

WIDE, HIGH = 1000.0, 100.0

_EDGE = 3.0
"""Room above and below the scale."""

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
_TICKS = 6
_LEAST_WINDOW = 1.5
"""A window is at least so wide (of 1,000), else it would not be seen."""


def picture(telemetry: Telemetry, names: dict[str, str]) -> str:
    """A figure per device (``names``: what each is called) with a curve a metric; all figures have the same axis."""
    first, last = telemetry.span
    marks = _windows(telemetry, first, last)
    figures = []
    for device, curves in groupby(telemetry.curves, key=lambda curve: curve.device):
        parts = "".join(_curve(curve, first, last, marks) for curve in curves)
        name = f"{device} ({names[device]})" if names.get(device) else device
        figures.append(
            f'<figure class="curves"><figcaption>{_text(name)}</figcaption>{parts}{_axis(first, last)}</figure>'
        )
    said = [
        f"Time from the first sample, {fmt.moment(first / 1e9)}. "
        f"The line stops where nothing was sampled for over {GAP} usual intervals."
    ]
    if telemetry.windows:
        said.append(_shaded(len(telemetry.windows)))
    else:
        said.append("The profiled windows carry no clock time, so they are not marked.")
    return "".join(figures) + f'<p class="more">{_text(" ".join(said))}</p>'


def _text(text: str) -> str:
    """As text of the page, whatever a device or a unit is called."""
    return html.escape(visible(text))


def _x(at: int, first: int, last: int) -> float:
    return WIDE * (at - first) / max(last - first, 1)


def height(value: float, top: float) -> float:
    """How far below the box's upper edge a value lies; a line at either end of the scale is drawn whole."""
    return HIGH - _EDGE - (HIGH - 2 * _EDGE) * min(max(value / top, 0.0), 1.0)


def _windows(telemetry: Telemetry, first: int, last: int) -> str:
    out = []
    for begin, end in telemetry.windows:
        x = _x(begin, first, last)
        width = max(_x(end, first, last) - x, _LEAST_WINDOW)
        out.append(f'<rect class="window" x="{min(x, WIDE - width):.2f}" y="0" width="{width:.2f}" height="{HIGH:g}"/>')
    return "".join(out)


def _curve(curve: Curve, first: int, last: int, marks: str) -> str:
    known = curve.known
    write = fmt.significant
    numbers = (
        f"median {write(_median(known))}, from {write(min(known))} to {write(max(known))}" if known else "nothing known"
    )
    said = f"{curve.title}: {numbers} ({curve.unit})"
    lines = "".join(_piece(piece, curve.top, first, last) for piece in curve.pieces())
    scale = f"scale 0 to {write(curve.top)} {curve.unit.partition(' of ')[0]}"
    return (
        f'<p class="axis"><span><b>{_text(curve.title)}</b> {_text(f"{numbers}, in {curve.unit}")}</span>'
        f"<span>{_text(scale)}</span></p>"
        f'<svg class="plot curve" data-metric="{_text(curve.metric)}" width="100%" height="48" role="img" '
        f'viewBox="0 0 {WIDE:g} {HIGH:g}" preserveAspectRatio="none" aria-label="{_text(said)}">{marks}{lines}</svg>'
    )


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _piece(piece: list[tuple[int, float]], top: float, first: int, last: int) -> str:
    """A line; a lone sample is a line as short as the page can show."""
    places = [(_x(at, first, last), height(value, top)) for at, value in piece]
    if len(places) == 1:
        x, y = places[0]
        places = [(max(x - 1, 0.0), y), (min(x + 1, WIDE), y)]
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in _thinned(places))
    return f'<polyline class="line" points="{points}"/>'


def _thinned(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most four points for each thousandth of the width: first, least, most, last. No peak is lost."""
    if len(places) <= 2 * WIDE:
        return places
    out: list[tuple[float, float]] = []
    for _, group in groupby(places, key=lambda place: math.floor(place[0])):
        held = list(group)
        low, high = min(held, key=lambda p: p[1]), max(held, key=lambda p: p[1])
        out += sorted({held[0], low, high, held[-1]})
    return out


def _axis(first: int, last: int) -> str:
    seconds = max((last - first) / 1e9, 1e-9)
    step = next((s for s in _STEPS_S if seconds / s <= _TICKS), math.ceil(seconds / _TICKS / 86_400) * 86_400)
    out = []
    for number in range(int(seconds / step) + 1):
        x = 100 * number * step / seconds
        anchor = "start" if number == 0 else "end" if x > 95 else "middle"
        out.append(f'<text x="{x:.2f}%" y="13" text-anchor="{anchor}">{_length(number * step, step)}</text>')
    return f'<svg class="ticks" width="100%" height="18" aria-hidden="true">{"".join(out)}</svg>'


def _length(seconds: int, step: int) -> str:
    """A time in the unit that the steps between ticks are whole in."""
    unit, size = ("s", 1) if step % 60 else ("min", 60) if step % 3600 else ("h", 3600)
    return f"{seconds // size:,} {unit}"


def _shaded(windows: int) -> str:
    return "The profiled window is shaded." if windows == 1 else f"The {windows:,} profiled windows are shaded."
