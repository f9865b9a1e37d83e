"""The quiet lines around the content: title, headline, tabs, the line above a table, and the keys."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual import events
from textual.message import Message

from profilers.rules.names import visible
from tui import bars
from tui.cells import fit, width
from tui.format import amount, ascii_text, duration, significant
from tui.snapshot import RunView
from tui.widgets.lines import Lines


def spread(left: list[Segment], right: list[Segment], cells: int) -> list[Segment]:
    """Left and right parts on one line; the right part gives way first."""
    used = sum(width(s.text) for s in left)
    need = sum(width(s.text) for s in right)
    if used and used + need + 2 > cells:
        return left
    return [*left, Segment(" " * (cells - used - need)), *right]


class TitleLine(Lines):
    """Program, machine, what the selected device does now, and how many runs go on."""

    def __init__(self) -> None:
        super().__init__(id="title")
        self.machine = ""
        self.telemetry: tuple[str, ...] = ()
        self.counts = ""
        self.warning = ""

    def build(self, width: int) -> list[list[Segment]]:
        p = self.palette
        left = [Segment(" kernelscope", p.style(p.group("matmul"), bold=True))]
        if self.warning:
            left.append(Segment("  " + self.warning, p.style(p.warn, bold=True)))
            return [left]
        right = [Segment(self.counts + " ", p.style(p.text, bold=True))] if self.counts else []
        if self.telemetry:
            text = f" {p.mark('dot')} ".join(self.telemetry)
            if len(text) + len(self.counts) + 16 <= width:
                right.insert(0, Segment(text + "   ", p.style(p.muted)))
        used = sum(len(s.text) for s in (*left, *right))
        if self.machine and used + len(self.machine) + 6 <= width:
            machine = ascii_text(self.machine) if p.ascii else self.machine
            left.append(Segment("  " + machine, p.style(p.muted)))
        return [spread(left, right, width)]


class Headline(Lines):
    """The selected run in one or two lines: model, choices, step time, progress; or why it ended."""

    def __init__(self) -> None:
        super().__init__(id="headline")
        self.view: RunView | None = None
        self.place = ""
        """Where this run is in the list (shown when the list itself is folded away)."""

    def show(self, view: RunView | None, place: str) -> None:
        self.view, self.place = view, place
        self.redraw()

    def build(self, cells: int) -> list[list[Segment]]:
        p, view = self.palette, self.view
        if view is None:
            return [[Segment("No run is selected.", p.style(p.muted))], []]
        dot = f" {p.mark('dot')} "
        left = [Segment(view.title, p.style(p.text, bold=True)), Segment("  " + dot.join(view.facts), p.style(p.muted))]
        status = view.status
        right = []
        if status.step_ms is not None:
            spread_text = f" ±{significant(status.step_ms_spread)}" if status.step_ms_spread is not None else ""
            plain = spread_text.replace("±", "+-") if p.ascii else spread_text
            right.append(Segment(f"step {significant(status.step_ms)}{plain} ms", p.style(p.text, bold=True)))
            if view.status.parameters:
                right.insert(0, Segment(f"{amount(view.status.parameters)} parameters   ", p.style(p.muted)))
        if self.place:
            right.append(Segment(f"   {self.place}", p.style(p.muted)))
        while right and sum(width(s.text) for s in (*left, *right)) + 2 > cells and len(right) > 1:
            right.pop(0)
        return [spread(left, right, cells), self._second(cells)]

    def _second(self, cells: int) -> list[Segment]:
        p, view = self.palette, self.view
        assert view is not None
        status = view.status
        if status.state in ("failed", "died"):
            sign = f"{p.mark('failed')} {status.state}: "
            return [
                Segment(fit(visible(sign + (status.cause or "no cause is known")), cells), p.style(p.bad, bold=True))
            ]
        if view.loading:
            return [Segment(view.loading + p.mark("ellipsis"), p.style(p.warn))]
        if status.live:
            return self._progress(cells)
        steps = f"{view.windows:,} window{'s' if view.windows != 1 else ''}"
        words = [status.state if view.kind == "run" else view.kind, steps]
        if status.window_step_ms and status.step_ms and status.window_step_ms > status.step_ms * 1.02:
            words.append(f"a profiled step takes {status.window_step_ms / status.step_ms:.2f} times an unprofiled one")
        lost = sum(note.count for note in view.notes if note.code.startswith(("lost", "dropped", "duplicate", "flag")))
        if view.notes:
            words.append(
                f"{len(view.notes)} note{'s' if len(view.notes) != 1 else ''}"
                + (f", {lost:,} events left out" if lost else "")
            )
        return [Segment(f" {p.mark('dot')} ".join(words), p.style(p.muted))]

    def _progress(self, cells: int) -> list[Segment]:
        p, view = self.palette, self.view
        assert view is not None
        status = view.status
        total = status.windows_total
        text = status.phase or status.state
        if status.state in ("profiling", "reading") and total:
            text = f"window {status.windows_done}/{total}"
            # "window 3 of 20" says no more than that; anything else does.
            if status.phase and not status.phase.startswith("window ") and status.state == "profiling":
                phase = visible(status.phase)
                whole = f"{text} {p.mark('dot')} {phase}"
                text = whole if width(whole) <= cells - 2 else fit(phase, cells - 2, ellipsis=p.mark("ellipsis"))
        left = [Segment(text + "  ", p.style(p.text))]
        tail = ""
        if status.eta_s is not None:
            tail = f"  {duration(status.eta_s)} left"
        room = min(cells - width(text) - width(tail) - 10, 40)
        if total and status.state in ("profiling", "reading") and room >= 5:
            left += bars.progress(status.windows_done / total, room, p)
            left.append(Segment(f" {100 * status.windows_done / total:3.0f} %", p.style(p.muted)))
        left.append(Segment(tail, p.style(p.muted)))
        return left


class TabLine(Lines):
    """The tabs on one line, each with its key. Those that do not fit are reached with the arrows."""

    class Picked(Message):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self) -> None:
        super().__init__(id="tabs")
        self.tabs: tuple[tuple[str, str], ...] = ()
        self.active = ""
        self._places: list[tuple[int, int, str]] = []

    def show(self, tabs: Sequence[tuple[str, str]], active: str) -> None:
        self.tabs, self.active = tuple(tabs), active
        self.redraw()

    def build(self, cells: int) -> list[list[Segment]]:
        p = self.palette
        names = [title for _, title in self.tabs]
        gap = 3 if sum(width(n) + 3 for n in names) <= cells else 1
        keys = [name for name, _ in self.tabs]
        at = keys.index(self.active) if self.active in keys else 0
        first = 0
        while first < at and sum(width(n) + gap for n in names[first : at + 1]) + 4 > cells:
            first += 1
        out: list[Segment] = []
        places = []
        x = 0
        if first:
            out.append(Segment(p.mark("left") + " ", p.style(p.muted)))
            x = 2
        for key, title in self.tabs[first:]:
            if x + width(title) + 2 > cells:
                out.append(Segment(p.mark("right"), p.style(p.muted)))
                break
            on = key == self.active
            label = f"[{title}]" if on and (not p.colour or p.ascii) else f" {title} " if on else title
            style = (
                p.style(p.ink, p.group("matmul"), bold=True)
                if on and not p.ascii
                else p.style(p.text if on else p.muted, bold=on)
            )
            if on and not p.colour:
                style = p.style(bold=True, reverse=not p.ascii)
            places.append((x, x + width(label), key))
            out += [Segment(label, style), Segment(" " * gap)]
            x += width(label) + gap
        self._places = places
        return [out]

    def on_click(self, event: events.Click) -> None:
        for first, last, key in self._places:
            if first <= event.x < last:
                self.post_message(self.Picked(key))


class PaneLine(Lines):
    """What the table below answers, what it is filtered by, and what did not fit."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.question = ""
        self.right: tuple[str, ...] = ()
        self.alert = ""

    def show(self, question: str, right: Sequence[str], alert: str = "") -> None:
        self.question, self.right, self.alert = question, tuple(right), alert
        self.redraw()

    def build(self, cells: int) -> list[list[Segment]]:
        p = self.palette
        if self.alert:
            return [[Segment(fit(self.alert, cells), p.style(p.warn, bold=True))]]
        dot = f"  {p.mark('dot')}  "
        parts = [part for part in self.right if part]
        # What is hidden and how many rows there are outrank what the percentages are of (the headers say it too).
        while len(parts) > 1 and width(dot.join(parts)) > cells:
            parts.pop(1 if len(parts) > 2 else 0)
        right = dot.join(parts)
        if width(right) > cells:
            right = fit(right, cells, ellipsis=p.mark("ellipsis"))
        room = cells - width(right) - 2
        question = fit(self.question, min(room, width(self.question)), ellipsis=p.mark("ellipsis")) if room > 12 else ""
        return [spread([Segment(question, p.style(p.muted))], [Segment(right, p.style(p.muted))], cells)]


class KeyLine(Lines):
    """The keys that do something now; a click does it too. When they do not all fit, the last words say where the rest is."""

    class Clicked(Message):
        """A key was clicked, as it is shown."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__(id="keys")
        self.keys: tuple[tuple[str, str], ...] = ()
        self._places: list[tuple[int, int, str]] = []

    def show(self, keys: Sequence[tuple[str, str]]) -> None:
        if tuple(keys) != self.keys:
            self.keys = tuple(keys)
            self.redraw()

    def build(self, cells: int) -> list[list[Segment]]:
        p = self.palette
        out = [Segment(" ")]
        x = 1
        self._places = []
        more = "? more"
        for index, (key, text) in enumerate(self.keys):
            last = index == len(self.keys) - 1
            if x + width(key) + width(text) + 3 > cells - (0 if last else len(more) + 1):
                out += [Segment("? ", p.style(p.group("matmul"), bold=True)), Segment("more", p.style(p.muted))]
                self._places.append((x, x + len(more), "?"))
                break
            self._places.append((x, x + width(key) + 1 + width(text), key))
            out += [Segment(key, p.style(p.group("matmul"), bold=True)), Segment(f" {text}  ", p.style(p.muted))]
            x += width(key) + width(text) + 3
        return [out]

    def on_click(self, event: events.Click) -> None:
        for first, end, key in self._places:
            if first <= event.x < end:
                self.post_message(self.Clicked(key))
