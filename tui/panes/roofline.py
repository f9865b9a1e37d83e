"""Which kernels are limited by arithmetic, which by memory: the table, and the scatter under its roof."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment

from profilers.rules.taxonomy import GROUPS
from tui import pictures
from tui.palette import Palette
from tui.panes.base import TablePane
from tui.snapshot import Query, RunView
from tui.widgets.lines import Lines
from tui.widgets.picture import Picture

if TYPE_CHECKING:
    import pandas as pd


ROOFS = Query("roofs")


class RooflinePane(TablePane):
    name_ = "roofline"
    title = "Roofline"
    table_name = "roofline"
    help: ClassVar[str] = """
Each kernel's arithmetic intensity (FLOP per byte) and rate against what the device allows at that intensity. Operations and
bytes come from counters where there are any (`ncu`), else by formula from the shapes (`estimate`).
"""

    def queries(self) -> tuple[Query, ...]:
        return (Query(self.table_name), ROOFS)

    def picture(self) -> Lines | None:
        return Picture()

    def show_picture(self, view: RunView) -> None:
        frame = view.tables.get(self.queries()[0])
        if frame is None or not len(frame):
            return
        frame = frame.sort_values("time_us")
        rows = list(zip(frame["intensity"], frame["tflops_per_s"], frame["group"], strict=True))
        allowed = view.tables.get(ROOFS)
        roof = highest(allowed) if allowed is not None else None

        def draw(cells: int, height: int, palette: Palette) -> list[list[Segment]]:
            points = [
                (float(x), float(y), GROUPS[str(g)].letter, palette.group(str(g)))
                for x, y, g in rows
                if str(g) in GROUPS
            ]
            return pictures.scatter(points, roof, cells, min(height, 22), palette)

        self.query_one(Picture).show(draw)


def highest(roofs: pd.DataFrame) -> tuple[float, float] | None:
    """TFLOP/s of the fastest type that occurs and GB/s of the fastest memory; None where either is not known."""
    compute, memory = roofs["tflops_per_s"].max(), roofs["gb_per_s"].max()
    return (float(compute), float(memory)) if compute > 0 and memory > 0 else None
