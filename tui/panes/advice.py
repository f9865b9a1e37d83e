"""Next: what to do about what the other tabs show."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import VerticalScroll

from profilers.analysis.registry import TABLES, Table
from tui.advice_text import CAVEAT, NOTHING, blocks, folded
from tui.cells import fit, width
from tui.panes.base import Pane
from tui.snapshot import Query, RunView
from tui.widgets.chrome import PaneLine
from tui.widgets.lines import Lines

if TYPE_CHECKING:
    import pandas as pd

QUERY = Query("advice")


class Findings(Lines):
    """One block a finding."""

    def __init__(self) -> None:
        super().__init__()
        self.frame: pd.DataFrame | None = None

    def show(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.redraw()

    def build(self, cells: int) -> list[list[Segment]]:
        p = self.palette
        if self.frame is None:
            return [[]]
        if not len(self.frame):
            return [[Segment(NOTHING, p.style(p.muted))]]
        out: list[list[Segment]] = []
        for block in blocks(self.frame, p.ascii):
            buys = block.buys
            room = cells - width(buys) - 2
            title = fit(block.title, room, ellipsis=p.mark("ellipsis")) if room > 20 else block.title
            out.append(
                [
                    Segment(title + "  ", p.style(p.text, bold=True)),
                    Segment(buys, p.style(p.group("matmul"), bold=True)),
                ]
            )
            for label, text in folded(block, cells):
                out.append(
                    [
                        Segment("   " + fit(label, 10), p.style(p.muted)),
                        Segment(text, p.style(p.text if block.lines[0][1].find(text) >= 0 else p.muted)),
                    ]
                )
            out.append([])
        return out


class AdvicePane(Pane):
    name_ = "advice"
    title = "Next"
    help: ClassVar[str] = """
What to do next: at most five findings, those that buy most of the step's wall time first. Each names the tables and figures
that it rests on. **wall** and **device** are time before over after, from the what-if model on the recorded times, of this
change alone and at best; a rule that cannot price its change says nothing.
"""

    def compose(self) -> ComposeResult:
        yield PaneLine()
        with VerticalScroll():
            yield Findings()

    def queries(self) -> tuple[Query, ...]:
        return (QUERY,)

    def show(self, view: RunView) -> None:
        frame = view.tables.get(QUERY)
        if frame is not None:
            self.query_one(Findings).show(frame)
        question = CAVEAT if frame is not None and len(frame) else TABLES["advice"].question
        self.query_one(PaneLine).show(question, (), view.problems.get(QUERY, ""))

    def exported(self) -> tuple[Table, pd.DataFrame] | None:
        frame = self.query_one(Findings).frame
        return (TABLES["advice"], frame) if frame is not None else None

    def focus_inside(self) -> None:
        self.query_one(VerticalScroll).focus()
