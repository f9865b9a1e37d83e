"""The runs at the left: live ones first, each with its state, its GEMM bar and its progress."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui import bars
from tui.cells import fit
from tui.palette import DARK, Palette
from tui.snapshot import RunRow
from tui.widgets.lines import strip_of


class RunList(ScrollView, can_focus=True):
    """Draws :class:`RunRow` entries. A run's height is three or four lines; the selected one has the cursor's colour."""

    DEFAULT_CSS = "RunList { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Previous run", show=False, id="runs.up"),
        Binding("down,j", "move(1)", "Next run", show=False, id="runs.down"),
        Binding("home", "edge(-1)", "First run", show=False, id="runs.first"),
        Binding("end", "edge(1)", "Last run", show=False, id="runs.last"),
    ]

    class Selected(Message):
        """Another run was selected."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: tuple[RunRow, ...] = ()
        self.selected = ""
        self._drawn: list[Strip] = []
        self._owner: list[str] = []

    @property
    def palette(self) -> Palette:
        return getattr(self.app, "palette", DARK)

    def show(self, rows: tuple[RunRow, ...], selected: str) -> None:
        """Show the runs; only lines that changed are painted."""
        self.rows, self.selected = rows, selected
        self._redraw()

    def _redraw(self) -> None:
        width = self.scrollable_content_region.width or self.size.width
        if width <= 0:
            return
        lines: list[Strip] = []
        owner: list[str] = []
        for row in self.rows:
            for segments in draw(row, width, self.palette, selected=row.key == self.selected):
                background = self.palette.cursor if row.key == self.selected else ""
                lines.append(strip_of(segments, width, self.palette.style("", background), ascii=self.palette.ascii))
                owner.append(row.key)
            lines.append(Strip.blank(width))
            owner.append("")
        old, self._drawn, self._owner = self._drawn, lines, owner
        if self.virtual_size != Size(width, len(lines)):
            self.virtual_size = Size(width, len(lines))
        top = round(self.scroll_offset.y)
        changed = [
            Region(0, y - top, self.size.width, 1)
            for y in range(top, min(max(len(lines), len(old)), top + self.size.height))
            if y >= len(old) or y >= len(lines) or old[y] != lines[y]
        ]
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        self._redraw()
        self.refresh()

    def on_focus(self) -> None:
        self._redraw()

    def render_line(self, y: int) -> Strip:
        place = y + round(self.scroll_offset.y)
        width = self.size.width
        strip = self._drawn[place].adjust_cell_length(width) if place < len(self._drawn) else Strip.blank(width)
        return strip.apply_style(self.rich_style)

    def step(self, by: int) -> None:
        """Select the run ``by`` places further down."""
        keys = [row.key for row in self.rows]
        if not keys:
            return
        place = keys.index(self.selected) if self.selected in keys else 0
        self._select(keys[min(max(place + by, 0), len(keys) - 1)])

    def _select(self, key: str) -> None:
        if key and key != self.selected:
            self.selected = key
            self._redraw()
            if key in self._owner:
                first = self._owner.index(key)
                last = len(self._owner) - 1 - self._owner[::-1].index(key)
                top, height = round(self.scroll_offset.y), self.size.height
                if first < top:
                    self.scroll_to(0, first, animate=False)
                elif last >= top + height:
                    self.scroll_to(0, last - height + 1, animate=False)
            self.post_message(self.Selected(key))

    def action_move(self, step: int) -> None:
        self.step(step)

    def action_edge(self, side: int) -> None:
        self.step(side * len(self.rows))

    def on_click(self, event: events.Click) -> None:
        place = event.y + round(self.scroll_offset.y)
        if place < len(self._owner):
            self._select(self._owner[place])


def draw(row: RunRow, width: int, palette: Palette, *, selected: bool = False) -> list[list[Segment]]:
    """The lines of one run."""
    back = palette.cursor if selected else ""
    sign, colour = sign_of(row, palette)
    if selected and not palette.cursor:
        sign = palette.mark("cursor")
    lines = [
        [
            Segment(f"{sign} ", palette.style(colour, back, bold=True)),
            Segment(fit(row.title, width - 2), palette.style(palette.text, back, bold=True)),
        ],
        [Segment("  " + fit(row.subtitle, width - 2), palette.style(palette.muted, back))],
    ]
    bar = max(width - 11, 5)
    if row.gemm_pct is not None:
        line = [Segment("  ", palette.style("", back))]
        line += bars.single(row.gemm_pct, 100.0, bar, palette.group("matmul"), palette, _track(palette))
        line.append(Segment(f"{row.gemm_pct:6.1f} %", palette.style(palette.text, back)))
        lines.append(line)
    if row.live and row.progress is not None:
        line = [Segment("  ", palette.style("", back)), *bars.progress(row.progress, bar, palette, back)]
        line.append(Segment(f"{row.progress * 100:6.0f} %", palette.style(palette.muted, back)))
        lines.append(line)
    return lines


def _track(palette: Palette) -> str:
    return {"dark": "#33414f", "light": "#c9d3de"}.get(palette.name, "bright_black")


def sign_of(row: RunRow, palette: Palette) -> tuple[str, str]:
    """The sign and colour of a run's state."""
    if row.state in ("queued",):
        return palette.mark("waiting"), palette.muted
    if row.live:
        return palette.mark("running"), palette.group("matmul")
    if row.state in ("failed", "died"):
        return palette.mark("failed"), palette.bad
    if row.state == "stopped":
        return palette.mark("stopped"), palette.muted
    if row.kind == "recording":
        return palette.mark("recording"), palette.group("elementwise")
    return palette.mark("finished"), palette.good
