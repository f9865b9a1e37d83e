"""A screen as SVG: what is drawn, in a file that loads nothing from elsewhere."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from textual.screen import Screen

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FONTS = 'ui-monospace, "JetBrains Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace'


def screen_svg(screen: Screen[object], *, title: str = "kernelscope") -> str:
    """The screen as it is drawn now. Fonts are the viewer's own: web fonts would tell their server who looks."""
    width, height = screen.app.size
    console = Console(
        width=width,
        height=height,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        record=True,
        legacy_windows=False,
    )
    console.print(screen._compositor.render_update(full=True))
    text = _FONT_FACE.sub("", console.export_svg(title=title))
    return text.replace("Fira Code, monospace", _FONTS).replace("font-family: Fira Code", f"font-family: {_FONTS}")
