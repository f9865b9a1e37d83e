"""The table of every pane: a :class:`tui.grid.Grid` drawn line by line, with a cursor, sorting and a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from profilers.analysis.registry import Table
from tui import bars
from tui import format as fmt
from tui.cells import GAP, fit, fit_middle
from tui.palette import CLASS_GROUP, DARK, Palette
from tui.widgets.lines import strip_of

if TYPE_CHECKING:
    import pandas as pd

    from tui.grid import Grid, Shown


class LineTable(ScrollView, can_focus=True):
    """Shows a :class:`Grid`. Rows that did not change are not painted again when newer data arrive."""

    DEFAULT_CSS = "LineTable { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; scrollbar-gutter: stable; }"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="table.up"),
        Binding("down,j", "move(1)", "Down", show=False, id="table.down"),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False, id="table.page-up"),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False, id="table.page-down"),
        Binding("home", "end(-1)", "First", show=False, id="table.first"),
        Binding("end", "end(1)", "Last", show=False, id="table.last"),
        Binding("s", "sort(1)", "Sort", id="table.sort", tooltip="Sort by the next column"),
        Binding("S", "sort(-1)", "Sort back", show=False, id="table.sort-back"),
        Binding("r", "reverse", "Reverse", show=False, id="table.reverse", tooltip="Turn the order round"),
        Binding("enter", "choose", "Drill", id="table.choose", tooltip="What this row is made of"),
    ]

    class Chosen(Message):
        """Enter on a row, or a click on the row that has the cursor."""

        def __init__(self, sender: LineTable, row: pd.Series) -> None:
            super().__init__()
            self.sender, self.row = sender, row

        @property
        def control(self) -> LineTable:
            return self.sender

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, sender: LineTable, row: pd.Series | None) -> None:
            super().__init__()
            self.sender, self.row = sender, row

        @property
        def control(self) -> LineTable:
            return self.sender

    class Arranged(Message):
        """Other columns fit now (the table got its size, or another one)."""

    def __init__(self, table: Table, *, empty: str = "Nothing yet.", id: str | None = None) -> None:
        super().__init__(id=id)
        self.table = table
        self.empty = empty
        self.grid: Grid | None = None
        self.cursor = 0
        self._follow: Any = None
        self._drawn: dict[int, Strip] = {}

    @property
    def palette(self) -> Palette:
        return getattr(self.app, "palette", DARK)

    # -- data --------------------------------------------------------------------------------------------------------

    def show(self, frame: pd.DataFrame) -> None:
        """Show a newer frame. The cursor stays on the row that it was moved to, wherever that row is now."""
        if self.grid is not None and frame is self.grid.frame:
            return
        if self.grid is None:
            from tui.grid import Grid  # pandas: not before there is a table to show

            self.grid = Grid(self.table, frame, ascii=self.palette.ascii)
        else:
            self.grid.replace(frame)
        if self._follow is not None:
            self.cursor = self._find(self._follow)
        self.cursor = min(self.cursor, max(len(self.grid.order) - 1, 0))
        self._lay_out()
        self._repaint()

    def say_empty(self, text: str) -> None:
        """What stands in place of rows while there are none."""
        if text != self.empty:
            self.empty = text
            self._drawn.clear()
            self.refresh()

    def set_filter(self, text: str) -> None:
        """Show only rows that match (see :func:`tui.grid.matching`)."""
        if self.grid is not None and text != self.grid.filter:
            self.grid.filter = text
            self.grid.rearrange()
            self.cursor = 0
            self._follow = None
            self._lay_out()
            self.scroll_to(0, 0, animate=False)
            self._repaint()

    @property
    def filter(self) -> str:
        return self.grid.filter if self.grid else ""

    @property
    def row(self) -> pd.Series | None:
        """The row under the cursor."""
        return self.grid.row(self.cursor) if self.grid else None

    def _key(self, place: int) -> Any:
        if self.grid is None or not 0 <= place < len(self.grid.order):
            return None
        first = self.table.columns[0].name
        row = self.grid.frame.iloc[self.grid.order[place]]
        return tuple(
            str(row[c.name]) for c in self.table.columns if c.name == first or c.format in ("name", "class", "state")
        )

    def _find(self, key: Any) -> int:
        assert self.grid is not None
        first = self.table.columns[0].name
        wanted = key[0]
        column = self.grid.frame[first].astype(str).to_numpy()[self.grid.order]
        for place in (column == wanted).nonzero()[0]:
            if self._key(int(place)) == key:
                return int(place)
        return self.cursor

    # -- painting ----------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        if self.grid is None or self.size.width <= 0:
            return
        before = self.grid.columns, self.grid.bar_width
        self.grid.lay_out(self._inner_width())
        size = Size(self._inner_width(), len(self.grid.order) + 1)
        if self.virtual_size != size:
            self.virtual_size = size
        if before != (self.grid.columns, self.grid.bar_width):
            self._drawn.clear()
            self.post_message(self.Arranged())

    def _inner_width(self) -> int:
        return self.scrollable_content_region.width or self.size.width

    def _repaint(self, *, everything: bool = False) -> None:
        width = self.size.width
        changed = []
        for y in range(self.size.height):
            strip = self._line(y, width)
            if everything or self._drawn.get(y) != strip:
                self._drawn[y] = strip
                changed.append(Region(0, y, width, 1))
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        self._lay_out()
        self._drawn.clear()
        self.refresh()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._drawn.clear()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        strip = self._drawn.get(y)
        if strip is None or strip.cell_length != width:
            strip = self._drawn[y] = self._line(y, width)
        return strip.apply_style(self.rich_style)

    def _line(self, y: int, width: int) -> Strip:
        palette = self.palette
        if self.grid is None or not len(self.grid.frame):
            text = self.empty if y == 1 else ""
            return strip_of([Segment(text, palette.style(palette.muted))], width, ascii=palette.ascii)
        if y == 0:
            return self._header(width)
        place = y - 1 + round(self.scroll_offset.y)
        if place >= len(self.grid.order):
            nothing = f"No row matches “{self.grid.filter}”. Escape clears the filter."
            text = nothing if place == 0 and self.grid.filter else ""
            return strip_of([Segment(text, palette.style(palette.muted))], width, ascii=palette.ascii)
        return self._row(place, width)

    def _header(self, width: int) -> Strip:
        assert self.grid is not None
        palette = self.palette
        out: list[Segment] = []
        for index, shown in enumerate(self.grid.columns):
            text = fmt.header(shown.column, shown.unit, ascii=palette.ascii)
            sorted_by = shown.column.name == self.grid.sort
            if sorted_by:
                sign = palette.mark("down" if self.grid.descending else "up")
                text = f"{sign} {text}" if shown.right else f"{text} {sign}"
            if index:
                out.append(Segment(" " * GAP))
            out.append(
                Segment(
                    fit(text, shown.width, shown.right), palette.style(palette.text if sorted_by else palette.muted)
                )
            )
        return strip_of(out, width, ascii=palette.ascii)

    def _row(self, place: int, width: int) -> Strip:
        assert self.grid is not None
        palette = self.palette
        at_cursor = place == self.cursor
        focused = at_cursor and self.has_focus
        row = self.grid.order[place]
        frame = self.grid.frame
        colour = self._row_colour(row)
        background = palette.cursor if at_cursor else ""
        out: list[Segment] = []
        for index, shown in enumerate(self.grid.columns):
            if index:
                out.append(Segment(" " * GAP, palette.style("", background)))
            value = frame[shown.column.name].iat[row]
            text = self.grid.text(value, shown.column)
            named = shown.column.format == "name"
            text = fit_middle(text, shown.width) if named else fit(text, shown.width, shown.right)
            out.append(Segment(text, self._cell_style(shown, value, index, colour, background, focused)))
        if self.grid.bar_width:
            out.append(Segment(" " * GAP, palette.style("", background)))
            out.extend(
                bars.single(
                    self.grid.share(place),
                    self._full_scale(),
                    self.grid.bar_width,
                    colour or palette.muted,
                    palette,
                    background,
                )
            )
        return strip_of(out, width, palette.style("", background), ascii=palette.ascii)

    def _cell_style(self, shown: Shown, value: Any, index: int, colour: str, background: str, focused: bool) -> Any:
        palette = self.palette
        kind = shown.column.format
        reverse = focused and index == 0 and not palette.cursor
        if kind in ("group", "class"):
            return palette.style(colour, background)
        if kind == "state":
            return palette.style(palette.state_text(str(value)), background)
        return palette.style(palette.text, background, bold=focused and index == 0, reverse=reverse)

    def _row_colour(self, row: int) -> str:
        assert self.grid is not None
        frame, palette = self.grid.frame, self.palette
        if "group" in frame.columns:
            return palette.group(str(frame["group"].iat[row]))
        if "class" in frame.columns:
            name = str(frame["class"].iat[row])
            return palette.faint if name == "idle" else palette.group(CLASS_GROUP.get(name, "elementwise"))
        if "state" in frame.columns:
            return palette.state(str(frame["state"].iat[row]))
        return palette.group("elementwise")

    def _full_scale(self) -> float:
        """Bars are drawn against the largest row, so that the shape shows; the number beside says the percentage."""
        assert self.grid is not None
        for name in ("pct", "time_pct", "pct_of_roof"):
            if name in self.grid.frame.columns and len(self.grid.order):
                top = float(self.grid.frame[name].iloc[self.grid.order].max())  # what is not known has no bar
                return top if top > 0 else 100.0
        return 100.0

    # -- keys --------------------------------------------------------------------------------------------------------

    def _go(self, place: int) -> None:
        if self.grid is None:
            return
        last = max(len(self.grid.order) - 1, 0)
        self.cursor = min(max(place, 0), last)
        self._follow = self._key(self.cursor)
        top, rows = round(self.scroll_offset.y), max(self.size.height - 1, 1)
        if self.cursor < top:
            self.scroll_to(0, self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + rows:
            self.scroll_to(0, self.cursor - rows + 1, animate=False, immediate=True)
        self._repaint()
        self.post_message(self.Moved(self, self.row))

    def action_move(self, step: int) -> None:
        self._go(self.cursor + step)

    def action_page(self, step: int) -> None:
        self._go(self.cursor + step * max(self.size.height - 2, 1))

    def action_end(self, side: int) -> None:
        self._go(0 if side < 0 else len(self.grid.order) - 1 if self.grid else 0)

    def action_sort(self, step: int) -> None:
        if self.grid is not None:
            self.grid.sort_next(step)
            self._after_sort()

    def action_reverse(self) -> None:
        if self.grid is not None and self.grid.sort:
            self.grid.sort_by(self.grid.sort)
            self._after_sort()

    def _after_sort(self) -> None:
        assert self.grid is not None
        self.cursor, self._follow = 0, None
        self.scroll_to(0, 0, animate=False)
        self._lay_out()
        self._drawn.clear()
        self._repaint(everything=True)

    def action_choose(self) -> None:
        row = self.row
        if row is not None:
            self.post_message(self.Chosen(self, row))

    def on_click(self, event: events.Click) -> None:
        if self.grid is None:
            return
        if event.y == 0:
            at = 0
            for shown in self.grid.columns:
                if at <= event.x < at + shown.width + GAP:
                    self.grid.sort_by(shown.column.name)
                    self._after_sort()
                    return
                at += shown.width + GAP
            return
        place = event.y - 1 + round(self.scroll_offset.y)
        if place == self.cursor:
            self.action_choose()
        elif place < len(self.grid.order):
            self._go(place)

    def on_focus(self) -> None:
        self._repaint()

    def on_blur(self) -> None:
        self._repaint()
