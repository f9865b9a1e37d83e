"""What the run printed, and what happened to it."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from profilers.rules.names import visible
from tui.palette import DARK, Palette
from tui.panes.base import Pane
from tui.snapshot import RunView
from tui.widgets.chrome import PaneLine
from tui.widgets.lines import strip_of


class LogLines(ScrollView, can_focus=True):
    """The last lines of a log. It follows the end until it is scrolled up."""

    DEFAULT_CSS = "LogLines { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False, id="log.up"),
        Binding("down,j", "scroll_down", "Down", show=False, id="log.down"),
        Binding("pageup", "page_up", "Page up", show=False, id="log.page-up"),
        Binding("pagedown", "page_down", "Page down", show=False, id="log.page-down"),
        Binding("end", "scroll_end", "End", show=False, id="log.end"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.lines: tuple[str, ...] = ()

    @property
    def palette(self) -> Palette:
        return getattr(self.app, "palette", DARK)

    def show(self, lines: tuple[str, ...]) -> None:
        if lines == self.lines:
            return
        at_end = self.scroll_offset.y >= self.max_scroll_y - 1
        self.lines = lines
        self.virtual_size = Size(self.size.width, len(lines))
        if at_end:
            self.scroll_end(animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        place = y + round(self.scroll_offset.y)
        if place >= len(self.lines):
            return Strip.blank(self.size.width).apply_style(self.rich_style)
        line = self.lines[place]
        p = self.palette
        bad = any(word in line for word in ("Error", "error:", "Traceback", "Killed", "out of memory"))
        strip = strip_of([Segment(visible(line), p.style(p.bad if bad else p.text))], self.size.width, ascii=p.ascii)
        return strip.apply_style(self.rich_style)


class LogPane(Pane):
    name_ = "log"
    title = "Log"
    help: ClassVar[str] = """
What the run's worker and the model's own code printed (the last 400 lines; the line above names the whole file), then what was
noted about the run: what marked its steps, pauses, where ranks hung.
"""

    def compose(self) -> ComposeResult:
        yield PaneLine()
        yield LogLines()

    def show(self, view: RunView) -> None:
        notes = tuple(f"note: {note}" for note in view.status.notes)
        self.query_one(LogLines).show((*(view.log or ("The run has printed nothing.",)), *notes))
        where = view.log_path if view.log else ""
        self.query_one(PaneLine).show(
            "What the run printed.",
            (where,),
            alert=view.status.cause if view.status.state in ("failed", "died") else "",
        )

    def focus_inside(self) -> None:
        self.query_one(LogLines).focus()
