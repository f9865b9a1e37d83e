"""A widget that is a list of lines: the base of everything live. Only lines whose content changed are painted again."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from tui.palette import DARK, Palette
from tui.plain_filter import plain_cells


def strip_of(segments: Sequence[Segment], width: int, style: Style | None = None, *, ascii: bool = False) -> Strip:
    """Segments as a strip of exactly ``width`` cells; in ASCII alone where asked (a sign for a sign, so widths stay)."""
    if ascii:
        segments = [s if s.text.isascii() else Segment(plain_cells(s.text), s.style) for s in segments]
    return Strip(segments).adjust_cell_length(width, style)


class Lines(Widget):
    """Draws ``build(width)``: a list of segment lists. ``redraw`` compares with what is on screen, line by line."""

    DEFAULT_CSS = "Lines { height: auto; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._strips: list[Strip] = []
        self._built_for = -1

    @property
    def palette(self) -> Palette:
        return getattr(self.app, "palette", DARK)

    def build(self, width: int) -> list[list[Segment]]:
        """The lines for this width. Pure: no state is changed here."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Build again and repaint the lines that differ."""
        width = self.size.width
        if width <= 0:
            return
        new = [strip_of(line, width, ascii=self.palette.ascii) for line in self.build(width)]
        old, self._strips = self._strips, new
        grown = len(new) != len(old)
        if grown and self.styles.height is not None and self.styles.height.is_auto:
            self.refresh(layout=True)
            return
        changed = [Region(0, y, width, 1) for y, strip in enumerate(new) if y >= len(old) or strip != old[y]]
        changed += [Region(0, y, width, 1) for y in range(len(new), len(old))]
        if self._built_for != width:
            self._built_for = width
            self.refresh()
        elif changed:
            self.refresh(*changed)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(len(self.build(width)), 1)

    def on_resize(self) -> None:
        self.redraw()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if self._built_for != width:
            self._strips = [strip_of(line, width, ascii=self.palette.ascii) for line in self.build(width)]
            self._built_for = width
        strip = self._strips[y] if y < len(self._strips) else Strip.blank(width)
        return strip.apply_style(self.rich_style)
