"""Ranks side by side: who works longest, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tui.format import significant
from tui.panes.base import TablePane
from tui.widgets.chrome import PaneLine

if TYPE_CHECKING:
    import pandas as pd

    from tui.snapshot import RunView


class RanksPane(TablePane):
    name_ = "ranks"
    title = "Ranks"
    table_name = "ranks"
    help: ClassVar[str] = """
A step of each rank (or device) in three parts: **work** (anything but communication ran), **exposed** communication (nothing
else ran meanwhile) and **idle**. Ranks that reduce together take equally long steps: the fast ones wait in the collective, so
the slowest is the one with most work. **behind** is its work beyond that of the rank with least: the most that a perfect
balance could save of a step. On a CPU a rank that waits in C code is idle.
"""

    said = ""

    def prepare(self, frame: pd.DataFrame, view: RunView) -> pd.DataFrame:
        self.said = verdict(frame)
        return frame

    def describe(self, alert: str = "") -> None:
        super().describe(alert)
        if self.said and not alert:
            line = self.query_one(PaneLine)
            line.show(self.said, [remark for remark in line.right if remark.startswith("hidden")])


def verdict(frame: pd.DataFrame) -> str:
    """The answer in a line; '' for one device."""
    if len(frame) < 2:
        return ""
    slowest = frame[frame["slowest"] != ""]
    if slowest.empty:
        return "None is slower than another: their work differs by 2 % at most"
    row = slowest.iloc[0]
    behind, step = float(row["behind_us"]), float(row["step_us"])
    share = f" ({100 * behind / step:.0f} % of a step)" if step else ""
    return f"Slowest: {row['device']}, +{significant(behind / 1e3)} ms work{share}"
