"""How few kernels take most of the time, as inline SVG: the share of kernel time that the largest cover."""

from __future__ import annotations

import html
from collections.abc import Sequence

_LEVELS = (50, 80, 90)
_HEIGHT = 200


def picture(times: Sequence[float]) -> str:
    """A rising line (``times``: one per kernel name); nothing for fewer than three names, where there is no tail."""
    ordered = sorted(times, reverse=True)
    whole = sum(ordered)
    if not whole or len(ordered) < 3:
        return ""
    points, covered = ["0,100"], 0.0
    for number, time in enumerate(ordered, start=1):
        covered += time
        points.append(f"{100 * number / len(ordered):.2f},{100 - 100 * covered / whole:.2f}")
    levels = "".join(
        f'<line class="grid" x1="0" y1="{100 - level}%" x2="100%" y2="{100 - level}%"/>'
        f'<text x="100%" dx="-4" y="{100 - level}%" dy="12" text-anchor="end">{level} %</text>'
        for level in _LEVELS
    )
    said = "% of kernel time that the largest kernels cover"
    return (
        f"<figure><figcaption>{html.escape(said)}</figcaption>"
        f'<svg class="plot" width="100%" height="{_HEIGHT}" role="img" aria-label="{html.escape(said)}">{levels}'
        '<svg width="100%" height="100%" viewBox="0 0 100 100" preserveAspectRatio="none">'
        f'<polyline class="line" points="{" ".join(points)}"/></svg></svg>'
        f'<p class="axis"><span>the largest</span><span>all {len(ordered):,} distinct kernels</span></p></figure>'
    )
