"""A small form: one line a choice, left and right change the one that is marked, digits are typed into numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from tui.cells import fit, width
from tui.widgets.lines import Lines


@dataclass(frozen=True)
class Choice:
    """One line. ``options`` empty: a number (or text of digits and commas) that is typed; '' means the default, and
    ``hint`` says what that is."""

    name: str
    label: str
    options: tuple[str, ...]
    value: str
    hint: str = ""


class Choices(Lines, can_focus=True):
    """Draws :class:`Choice` lines; posts ``Changed`` at every change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "pick(-1)", "Up", show=False, id="choices.up"),
        Binding("down", "pick(1)", "Down", show=False, id="choices.down"),
        Binding("left", "turn(-1)", "Change", show=False, id="choices.left"),
        Binding("right,space", "turn(1)", "Change", show=False, id="choices.right"),
        Binding("enter", "done", "Done", show=False, id="choices.done"),
    ]

    class Changed(Message):
        def __init__(self, name: str, value: str) -> None:
            super().__init__()
            self.name, self.value = name, value

    class Done(Message):
        """Enter: the form is filled in."""

    def __init__(self, choices: Sequence[Choice], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.choices = list(choices)
        self.at = 0

    def value(self, name: str) -> str:
        return next(c.value for c in self.choices if c.name == name)

    def set_choices(self, choices: Sequence[Choice]) -> None:
        """Other choices (another model is marked); values that are still allowed stay."""
        self.choices = list(choices)
        self.at = min(self.at, max(len(self.choices) - 1, 0))
        self.redraw()

    @property
    def _label(self) -> int:
        """Cells of the column of labels."""
        return max((len(c.label) for c in self.choices), default=0) + 2

    def build(self, width: int) -> list[list[Segment]]:
        p = self.palette
        out = []
        label = self._label
        for index, choice in enumerate(self.choices):
            on = self.has_focus and index == self.at
            sign = p.mark("cursor") if on else " "
            line = [Segment(f"{sign} {fit(choice.label, label)}", p.style(p.text if on else p.muted, bold=on))]
            if choice.options:
                room = width - label - 2
                for text, chosen in window(choice.options, choice.value, room, p.mark("ellipsis")):
                    line.append(Segment(text, p.style(p.group("matmul") if chosen else p.muted, bold=chosen)))
            else:
                shown = choice.value or "default"
                line.append(
                    Segment(
                        shown + ("_" if on else ""),
                        p.style(p.text if choice.value else p.muted, bold=bool(choice.value)),
                    )
                )
            if choice.hint and (choice.options or not choice.value):
                left = width - sum(segment.cell_length for segment in line)
                hint = fit(f"  {choice.hint}", left, ellipsis=p.mark("ellipsis"))
                line.append(Segment(hint, p.style(p.faint if not on else p.muted)))
            out.append(line)
        return out

    def action_pick(self, step: int) -> None:
        place = self.at + step
        if 0 <= place < len(self.choices):
            self.at = place
            self.redraw()
        elif step > 0:
            self.screen.focus_next()
        else:
            self.screen.focus_previous()

    def action_done(self) -> None:
        self.post_message(self.Done())

    def action_turn(self, step: int) -> None:
        choice = self.choices[self.at]
        if choice.options:
            place = choice.options.index(choice.value) if choice.value in choice.options else 0
            self._set(choice.options[(place + step) % len(choice.options)])

    def on_key(self, event: events.Key) -> None:
        if not self.choices or self.choices[self.at].options:
            return
        value = self.choices[self.at].value
        if event.key == "backspace":
            self._set(value[:-1])
        elif event.character and (event.character.isdigit() or event.character in ",."):
            self._set(value + event.character)
        else:
            return
        event.stop()
        event.prevent_default()

    def _set(self, value: str) -> None:
        choice = self.choices[self.at]
        if value != choice.value:
            self.choices[self.at] = replace(choice, value=value)
            self.redraw()
            self.post_message(self.Changed(choice.name, value))

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """The option under the mouse is chosen, a sign of cut ones turns towards them; elsewhere a line is marked first."""
        if not 0 <= event.y < len(self.choices):
            return
        marked, self.at = self.at == event.y, event.y
        choice = self.choices[event.y]
        ellipsis = self.palette.mark("ellipsis")
        shown = (
            window(choice.options, choice.value, self.size.width - self._label - 2, ellipsis) if choice.options else []
        )
        left, hit = self._label + 2, ""
        for place, (text, _) in enumerate(shown):
            if left <= event.x < left + width(text):
                cut = text == ellipsis
                hit = "" if cut else text[1:-1]
                if cut:
                    self.action_turn(1 if place else -1)
                    marked = False
            left += width(text)
        if hit:
            self._set(hit)
        elif marked:
            self.action_turn(1)
        self.redraw()


def window(options: Sequence[str], chosen: str, room: int, ellipsis: str) -> list[tuple[str, bool]]:
    """The options that fit into ``room`` cells, the chosen one among them, as (text, is chosen); a sign where some are cut.

    Every option takes its length and two cells more, in which the chosen one has its brackets.
    """
    texts = [(f"[{o}]" if o == chosen else f" {o} ", o == chosen) for o in options]
    if sum(width(text) for text, _ in texts) <= room:
        return texts
    at = next((i for i, (_, on) in enumerate(texts) if on), 0)
    first, last = at, at + 1
    left = room - width(texts[at][0]) - 2 * width(ellipsis)
    while True:  # the next to the right where it fits, else to the left
        if last < len(texts) and width(texts[last][0]) <= left:
            left -= width(texts[last][0])
            last += 1
        elif first > 0 and width(texts[first - 1][0]) <= left:
            first -= 1
            left -= width(texts[first][0])
        else:
            break
    before = [(ellipsis, False)] if first > 0 else []
    return before + texts[first:last] + ([(ellipsis, False)] if last < len(texts) else [])
