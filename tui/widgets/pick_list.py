"""A list to pick several entries from, with headings and a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.cells import fit
from tui.palette import DARK, Palette
from tui.widgets.lines import strip_of


@dataclass(frozen=True)
class Item:
    """One entry. ``key`` '' is a heading. ``disabled`` says why it cannot be picked."""

    key: str
    text: str
    detail: str = ""
    disabled: str = ""
    search: str = ""


class _Said(Message):
    """From a list (its ``control``), about the entry with this key; '' where it is about none."""

    def __init__(self, sender: PickList, key: str = "") -> None:
        super().__init__()
        self.sender, self.key = sender, key

    @property
    def control(self) -> PickList:
        return self.sender


class PickList(ScrollView, can_focus=True):
    """Space picks, enter picks and goes on. Headings group entries; the filter looks at text, detail and search words."""

    DEFAULT_CSS = "PickList { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False, id="list.up"),
        Binding("down", "move(1)", "Down", show=False, id="list.down"),
        Binding("pageup", "move(-8)", "Page up", show=False, id="list.page-up"),
        Binding("pagedown", "move(8)", "Page down", show=False, id="list.page-down"),
        Binding("space", "pick", "Pick", id="list.pick"),
        Binding("a", "pick_group", "Pick all of this heading", show=False, id="list.pick-group"),
        Binding("enter", "enter", "Pick and go on", show=False, id="list.enter"),
    ]

    class Changed(_Said):
        """The picks changed."""

    class Moved(_Said):
        """The cursor is on another entry."""

    class Entered(_Said):
        """Enter on an entry."""

    def __init__(self, *, several: bool = True, id: str | None = None) -> None:
        super().__init__(id=id)
        self.items: tuple[Item, ...] = ()
        self.shown: list[Item] = []
        self.picked: dict[str, None] = {}
        self.several = several
        self.cursor = 0
        self.words = ""
        self._column = 14

    @property
    def palette(self) -> Palette:
        return getattr(self.app, "palette", DARK)

    @property
    def current(self) -> Item | None:
        return self.shown[self.cursor] if self.cursor < len(self.shown) else None

    def set_items(self, items: Sequence[Item]) -> None:
        self.items = tuple(items)
        self._column = min(max((len(item.text) for item in items if item.key), default=14), 26)
        self._filter()

    def filter(self, words: str) -> None:
        """Show entries that hold every word, under their headings."""
        self.words = words
        self._filter()

    def _filter(self) -> None:
        words = self.words.lower().split()
        shown: list[Item] = []
        heading: Item | None = None
        for item in self.items:
            if not item.key:
                heading = item
                continue
            where = f"{heading.text if heading else ''} {item.text} {item.detail} {item.search}".lower()
            if all(word in where for word in words):
                if heading is not None:
                    shown.append(heading)
                    heading = None
                shown.append(item)
        self.shown = shown
        self.cursor = next((i for i, item in enumerate(shown) if item.key), 0)
        self.virtual_size = Size(self.size.width, len(shown))
        self.scroll_to(0, 0, animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        return self._line(y).apply_style(self.rich_style)

    def _line(self, y: int) -> Strip:
        p = self.palette
        width = self.size.width
        place = y + round(self.scroll_offset.y)
        if place >= len(self.shown):
            text = "Nothing matches." if not self.shown and y == 0 else ""
            return strip_of([Segment(text, p.style(p.muted))], width, ascii=p.ascii)
        item = self.shown[place]
        if not item.key:
            return strip_of(
                [Segment(fit(item.text, width), p.style(p.group("matmul"), bold=True))], width, ascii=p.ascii
            )
        on = place == self.cursor
        back = p.cursor if on and self.has_focus else ""
        box = (
            p.mark("check" if item.key in self.picked else "uncheck")
            if self.several
            else p.mark("cursor")
            if on
            else " "
        )
        detail = item.disabled or item.detail
        room = max(width - len(box) - 3, 8)
        left = min(self._column + 2, max(room - 12, room // 2))
        segments = [
            Segment(
                (p.mark("cursor") if on and not p.cursor else " ") + box + " ",
                p.style(p.group("matmul") if item.key in self.picked else p.muted, back),
            ),
            Segment(fit(item.text, left - 1) + " ", p.style(p.muted if item.disabled else p.text, back, bold=on)),
            Segment(fit(detail, max(room - left, 0)), p.style(p.warn if item.disabled else p.muted, back)),
        ]
        return strip_of(segments, width, p.style("", back), ascii=p.ascii)

    def action_move(self, step: int) -> None:
        place, direction = self.cursor, 1 if step > 0 else -1
        for _ in range(abs(step)):
            next_place = place + direction
            while 0 <= next_place < len(self.shown) and not self.shown[next_place].key:
                next_place += direction
            if not 0 <= next_place < len(self.shown):
                break
            place = next_place
        self._go(place)

    def _go(self, place: int) -> None:
        self.cursor = place
        top, rows = round(self.scroll_offset.y), max(self.size.height, 1)
        if place < top:
            self.scroll_to(0, max(place - 1, 0), animate=False, immediate=True)
        elif place >= top + rows:
            self.scroll_to(0, place - rows + 1, animate=False, immediate=True)
        self.refresh()
        if self.current is not None:
            self.post_message(self.Moved(self, self.current.key))

    def action_pick(self) -> None:
        item = self.current
        if item is None or not item.key:
            return
        if item.disabled:
            self.app.notify(item.disabled, severity="warning")
            return
        if item.key in self.picked:
            del self.picked[item.key]
        else:
            if not self.several:
                self.picked.clear()
            self.picked[item.key] = None
        self.refresh()
        self.post_message(self.Changed(self))

    def action_pick_group(self) -> None:
        """Pick every entry under the cursor's heading; when all are picked, let go of them."""
        if not self.several or self.current is None:
            return
        first = last = self.cursor
        while first > 0 and self.shown[first - 1].key:
            first -= 1
        while last + 1 < len(self.shown) and self.shown[last + 1].key:
            last += 1
        group = [item.key for item in self.shown[first : last + 1] if item.key and not item.disabled]
        if all(key in self.picked for key in group):
            for key in group:
                del self.picked[key]
        else:
            self.picked.update(dict.fromkeys(group))
        self.refresh()
        self.post_message(self.Changed(self))

    def action_enter(self) -> None:
        if self.current is not None:
            self.post_message(self.Entered(self, self.current.key))

    def on_click(self, event: events.Click) -> None:
        place = event.y + round(self.scroll_offset.y)
        if place < len(self.shown) and self.shown[place].key:
            self._go(place)
            self.action_pick()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.shown))
