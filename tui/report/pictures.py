"""The pictures as inline SVG. Lengths are percentages, so that a picture is as wide as its page and its text keeps its size;
colours are classes of the page's style sheet, so that light, dark and print need no second picture."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from profilers.rules.taxonomy import GROUPS
from tui.widgets.shares import OF, Share
from tui.widgets.state_strip import StripData

LETTER_PCT = 2.5
"""A slice of at least so many percent carries its letter."""


def group_class(name: str) -> str:
    """The class name of a group: groups may come from a person's own rules, so only letters, digits and dashes pass."""
    return "g-" + "".join(char if char.isascii() and char.isalnum() else "-" for char in name)


def state_class(name: str) -> str:
    return "s-" + "".join(char if char.isascii() and char.isalnum() else "x" for char in name)


def bars(shares: Sequence[Share]) -> str:
    """The three shares as stacked bars, GEMM first, idle left blank, each with its verdict above."""
    out = []
    for share in shares:
        whole = (sum(time for _, time in share.parts) + share.idle) or 1.0
        sign = "GEMM and attention" if share.with_attention else "GEMM"
        said = f"{share.name}: {sign} {share.gemm_pct:.1f} % {OF.get(share.name, '')}"
        at, parts = 0.0, []
        for name, time in share.parts:
            pct = 100 * time / whole
            letter = GROUPS[name].letter if name in GROUPS else "?"
            parts.append(_slice(at, pct, f"{name} {pct:.1f} %", group_class(name), letter if pct >= LETTER_PCT else ""))
            at += pct
        if share.idle > 0:
            pct = 100 * share.idle / whole
            parts.append(_slice(at, pct, f"idle {pct:.1f} %", "idle", ""))
        out.append(f'<p class="verdict">{html.escape(said)}</p>')
        out.append(
            f'<svg class="bar" width="100%" height="26" role="img" aria-label="{html.escape(said)}">{"".join(parts)}</svg>'
        )
    return "\n".join(out)


def _slice(at: float, pct: float, title: str, cls: str, letter: str) -> str:
    text = f'<text x="{at + pct / 2:.3f}%" y="18" text-anchor="middle">{html.escape(letter)}</text>' if letter else ""
    rect = f'<rect class="{cls}" x="{at:.3f}%" y="0" width="{pct:.3f}%" height="26"/>'
    return f"<g><title>{html.escape(title)}</title>{rect}{text}</g>"


def group_legend(shares: Sequence[Share]) -> str:
    """Colour, letter and name of every group that occurs, in the taxonomy's order."""
    present = {name for share in shares for name, time in share.parts if time > 0}
    order = [*(name for name in GROUPS if name in present), *sorted(present - set(GROUPS))]
    items = [
        f'<li class="{group_class(name)}"><b>{html.escape(GROUPS[name].letter if name in GROUPS else "?")}</b> {html.escape(name)}</li>'
        for name in order
    ]
    if any(share.idle > 0 for share in shares):
        items.append('<li class="none">idle (left blank)</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def strip(data: StripData) -> str:
    """The states through time, one slice a cell, with a mark above where most of the busy time was GEMM."""
    if not data.cells:
        return ""
    width = 100 / len(data.cells)
    out = []
    for first, last, (state, gemm) in _runs(
        (s if b > 0.02 else "", g >= 0.5 * max(b, 1e-9) and b > 0.02) for s, g, b in data.cells
    ):
        x, w = first * width, (last - first) * width
        if gemm:
            out.append(f'<rect class="{group_class("matmul")}" x="{x:.3f}%" y="0" width="{w:.3f}%" height="5"/>')
        if state:
            out.append(
                f'<rect class="{state_class(state)}" x="{x:.3f}%" y="8" width="{w:.3f}%" height="24">'
                f"<title>{html.escape(state)}</title></rect>"
            )
    legend = "".join(
        f'<li class="{state_class(name)}"><b>{html.escape(name)}</b> {pct:.1f} %</li>' for name, pct in data.legend
    )
    how = "estimated from shapes and the device's peaks" if data.estimated else "from counters"
    said = (
        f"{data.device}: utilization states in order of time ({how}); {data.run_length:.1f} kernels in a row on average"
    )
    return (
        f'<p class="verdict">{html.escape(said)}</p>'
        f'<svg class="bar" width="100%" height="32" role="img" aria-label="{html.escape(said)}">{"".join(out)}</svg>'
        f'<ul class="legend">{legend}</ul>'
    )


def _runs(cells: Iterable[tuple[str, bool]]) -> Iterable[tuple[int, int, tuple[str, bool]]]:
    """Equal neighbours as one: (first, past the last, what)."""
    first, held, index = 0, None, -1
    for index, cell in enumerate(cells):
        if held is not None and cell != held:
            yield first, index, held
            first = index
        held = cell
    if held is not None:
        yield first, index + 1, held


def tail(times: Sequence[float]) -> str:
    """The share of kernel time that the largest kernels cover, over their number (``times``: one per kernel name)."""
    ordered = sorted(times, reverse=True)
    whole = sum(ordered)
    if not whole:
        return ""
    points, covered = ["0,100"], 0.0
    for number, time in enumerate(ordered, start=1):
        covered += time
        points.append(f"{100 * number / len(ordered):.2f},{100 - 100 * covered / whole:.2f}")
    line = f'<polyline class="line" points="{" ".join(points)}"/>'
    return _plot(line, "", "% of kernel time covered by the largest kernels", "0", f"{len(ordered):,} distinct kernels")


def scatter(points: Sequence[tuple[float, float, str, str]]) -> str:
    """TFLOP/s over FLOP/B, both by powers of ten; points are (intensity, TFLOP/s, group, name)."""
    good = [p for p in points if all(math.isfinite(v) and v > 0 for v in p[:2])]
    if not good:
        return ""
    xs, ys = [math.log10(p[0]) for p in good], [math.log10(p[1]) for p in good]
    x0, x1 = math.floor(min(xs)), max(math.ceil(max(xs)), math.floor(min(xs)) + 1)
    y0, y1 = math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1)
    dots = "".join(
        f'<circle class="{group_class(group)}" cx="{100 * (x - x0) / (x1 - x0):.2f}%" cy="{100 - 100 * (y - y0) / (y1 - y0):.2f}%" '
        f'r="4"><title>{html.escape(name)}: {10**x:.3g} FLOP/B, {10**y:.3g} TFLOP/s</title></circle>'
        for x, y, (_, _, group, name) in zip(xs, ys, good, strict=True)
    )
    label = f"TFLOP/s, from {10.0**y0:g} at the bottom to {10.0**y1:g}; both axes by powers of ten"
    return _plot("", dots, label, f"{10.0**x0:g}", f"{10.0**x1:g} FLOP/B")


def _plot(lines: str, marks: str, label: str, left: str, right: str) -> str:
    """A framed picture: ``lines`` in a box of 100 by 100, ``marks`` in percentages, words as HTML around it."""
    box = (
        f'<svg width="100%" height="100%" viewBox="0 0 100 100" preserveAspectRatio="none">{lines}</svg>'
        if lines
        else ""
    )
    return (
        f"<figure><figcaption>{html.escape(label)}</figcaption>"
        f'<svg class="plot" width="100%" height="200" role="img" aria-label="{html.escape(label)}">{box}{marks}</svg>'
        f'<p class="axis"><span>{html.escape(left)}</span><span>{html.escape(right)}</span></p></figure>'
    )
