"""Lines whose cells change a few at a time: only the changed stretch of a line goes to the terminal."""

from __future__ import annotations

from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

from tui.widgets.lines import Lines, strip_of


class CellLines(Lines):
    """As :class:`~tui.widgets.lines.Lines`, for wide lines of which one cell or one number changes at a tick."""

    def redraw(self) -> None:
        """Build again and repaint, in each line, from the first to the last cell that differs."""
        width = self.size.width
        if width <= 0 or self._built_for != width:
            super().redraw()
            return
        new = [strip_of(line, width, ascii=self.palette.ascii) for line in self.build(width)]
        if len(new) != len(self._strips):
            super().redraw()
            return
        old, self._strips = self._strips, new
        changed = [
            Region(first, y, last - first, 1)
            for y, (before, after) in enumerate(zip(old, new, strict=True))
            if before != after
            for first, last in [changed_cells(before, after)]
            if last > first
        ]
        if changed:
            self.refresh(*changed)


def changed_cells(before: Strip, after: Strip) -> tuple[int, int]:
    """From which cell up to before which two strips of one width differ; all of it where glyphs are wider than a cell."""
    a, b = _cells(before), _cells(after)
    if len(a) != len(b) or len(b) != after.cell_length:
        return 0, after.cell_length
    first = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(b))
    if first == len(b):
        return 0, 0
    last = next(i for i in range(len(b), first, -1) if a[i - 1] != b[i - 1])
    return first, last


def _cells(strip: Strip) -> list[tuple[str, Style | None]]:
    return [(sign, segment.style) for segment in strip for sign in segment.text]
