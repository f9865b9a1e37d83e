"""A picture beside a table: a widget that draws what a pure function returns."""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment

from tui.palette import Palette
from tui.widgets.lines import Lines

Draw = Callable[[int, int, Palette], list[list[Segment]]]


class Picture(Lines):
    """Calls ``draw(width, height, palette)``. Stands beside its table from 150 columns on (see the style sheet)."""

    DEFAULT_CSS = "Picture { height: 1fr; width: 56; padding: 0 0 0 2; display: none; }"

    def __init__(self) -> None:
        super().__init__(classes="picture")
        self.draw: Draw | None = None

    def show(self, draw: Draw) -> None:
        self.draw = draw
        self.redraw()

    def build(self, width: int) -> list[list[Segment]]:
        if self.draw is None or width <= 0:
            return []
        return self.draw(width, max(self.size.height, 4), self.palette)
