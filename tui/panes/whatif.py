"""What a change would buy: sliders for the factors, the study's cases below."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message

from profilers.analysis.options import Options, WhatIf
from profilers.analysis.registry import TABLES
from tui import bars
from tui.cells import fit
from tui.headers import of_the_span
from tui.panes.base import TablePane
from tui.widgets.chrome import PaneLine
from tui.widgets.line_table import LineTable
from tui.widgets.lines import Lines

FACTORS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 100.0)
WINDOWS = (1, 2, 3, 4, 8)
NAMES = ("GEMM faster by", "the rest faster by", "overlap window")


class Sliders(Lines, can_focus=True):
    """Three sliders; left and right change the one that is marked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "pick(-1)", "Slider", show=False, id="whatif.up"),
        Binding("down,j", "pick(1)", "Slider", show=False, id="whatif.down"),
        Binding("left,h,minus", "turn(-1)", "Less", id="whatif.less"),
        Binding("right,l,plus", "turn(1)", "More", id="whatif.more"),
        Binding("0", "reset", "Reset", id="whatif.reset"),
    ]

    class Changed(Message):
        """The person chose other factors."""

        def __init__(self, whatif: WhatIf) -> None:
            super().__init__()
            self.whatif = whatif

    def __init__(self) -> None:
        super().__init__()
        self.places = [0, 0, 0]
        self.at = 0
        self.result = ""

    @property
    def whatif(self) -> WhatIf:
        return WhatIf(gemm=FACTORS[self.places[0]], nongemm=FACTORS[self.places[1]], window=WINDOWS[self.places[2]])

    def build(self, width: int) -> list[list[Segment]]:
        p = self.palette
        room = min(max(width - 34, 8), 50)
        out = []
        for index, name in enumerate(NAMES):
            steps = WINDOWS if index == 2 else FACTORS
            on = self.has_focus and index == self.at
            chosen = steps[self.places[index]]
            unit = (" kernel" if chosen == 1 else " kernels") if index == 2 else "x" if p.ascii else "×"
            value = f"{chosen:g}{unit}"
            sign = p.mark("cursor") if on else " "
            out.append(
                [
                    Segment(f"{sign} {fit(name, 19)}", p.style(p.text if on else p.muted, bold=on)),
                    *bars.progress(self.places[index] / (len(steps) - 1), room, p),
                    Segment(f"  {value}", p.style(p.text, bold=True)),
                ]
            )
        out.append([Segment("  " + self.result, p.style(p.group("matmul"), bold=True))])
        return out

    def action_pick(self, step: int) -> None:
        self.at = min(max(self.at + step, 0), 2)
        self.redraw()

    def action_turn(self, step: int) -> None:
        steps = WINDOWS if self.at == 2 else FACTORS
        self.places[self.at] = min(max(self.places[self.at] + step, 0), len(steps) - 1)
        self.redraw()
        self.post_message(self.Changed(self.whatif))

    def action_reset(self) -> None:
        self.places = [0, 0, 0]
        self.redraw()
        self.post_message(self.Changed(self.whatif))

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()


class WhatIfPane(TablePane):
    name_ = "whatif"
    title = "What-if"
    table_name = "whatif"
    help: ClassVar[str] = """
What a change would buy, on the measured kernel times. `←` `→` change the marked factor, `↑` `↓` pick another one.

**device** is kernel time before over after (Amdahl); **wall** is step time before over after: time in which the device was idle
or copied is not sped up. The **overlap window** is the study's path-forward model: up to so many kernels in a row that are in different
states run at once and cost as much as the longest of them. (GEMM 2, rest 2, window 1) is exactly 2.
"""

    def compose(self) -> ComposeResult:
        yield PaneLine()
        yield Sliders()
        with Horizontal(classes="pane-body"):
            yield LineTable(TABLES["whatif"])

    def show(self, view) -> None:  # type: ignore[no-untyped-def]
        super().show(view)
        frame = view.tables.get(self.queries()[0])
        sliders = self.query_one(Sliders)
        if frame is None or not len(frame):
            return
        chosen = sliders.whatif
        if chosen == WhatIf():
            sliders.result = "Move a slider: the answer appears here, and below as the row “chosen”."
        else:
            row = frame[
                (frame["gemm"] == chosen.gemm)
                & (frame["nongemm"] == chosen.nongemm)
                & (frame["window"] == chosen.window)
            ]
            if len(row):
                device, wall = float(row["device_speedup"].iloc[0]), float(row["wall_speedup"].iloc[0])
                times = "x" if self.app.palette.ascii else "×"  # type: ignore[attr-defined]
                wall_text = f"{wall:.2f}{times}" if wall == wall else "not known (no steps)"
                of = "of the span" if of_the_span(view) else "of step time"
                sliders.result = f"device {device:.2f}{times} of kernel time · wall {wall_text} {of}"
        sliders.redraw()

    def focus_inside(self) -> None:
        self.query_one(Sliders).focus()


def with_whatif(options: Options, whatif: WhatIf) -> Options:
    """Options that ask for this change (none when every factor is 1)."""
    import dataclasses

    return dataclasses.replace(options, whatif=None if whatif == WhatIf() else whatif)
