"""A line through time on a fixed scale. A constant 100 % is drawn full and a constant 0 % is drawn empty."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from tui.palette import Palette

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"


def sparkline(values: Sequence[float], width: int, top: float, palette: Palette, colour: str) -> list[Segment]:
    """The newest ``width`` values against 0..``top``, newest at the right. NaN (not available) stays blank."""
    glyphs = _ASCII if palette.ascii else _BLOCKS
    shown = list(values)[-width:]
    text = " " * (width - len(shown))
    for value in shown:
        if value != value or top <= 0:
            text += " "
            continue
        share = min(max(value / top, 0.0), 1.0)
        text += glyphs[max(round(share * 8), 1 if share > 0 else 0)]
    return [Segment(text, palette.style(colour))]
