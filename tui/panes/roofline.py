"""Which kernels are limited by arithmetic, which by memory: the table, and the scatter under its roof."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment

from profilers.rules.taxonomy import GROUPS
from tui import pictures
from tui.palette import Palette
from tui.panes.base import TablePane
from tui.snapshot import RunView
from tui.widgets.lines import Lines
from tui.widgets.picture import Picture


class RooflinePane(TablePane):
    name_ = "roofline"
    title = "Roofline"
    table_name = "roofline"
    empty = "No kernel has both operations and bytes."
    help: ClassVar[str] = """
Each kernel's arithmetic intensity (FLOP per byte) and rate against what the device allows at that intensity. Operations and
bytes come from counters where there are any (`ncu`), else by formula from the shapes (`estimate`).
"""

    def picture(self) -> Lines | None:
        return Picture()

    def show_picture(self, view: RunView) -> None:
        frame = view.tables.get(self.queries()[0])
        if frame is None or not len(frame):
            return
        frame = frame.sort_values("time_us")
        rows = list(zip(frame["intensity"], frame["tflops_per_s"], frame["group"], strict=True))
        roofs = frame["roof_tflops_per_s"].to_numpy(dtype=float)
        known = roofs[roofs > 0]
        top = float(known.max()) if len(known) else 0.0
        below = frame[frame["roof_tflops_per_s"] < top * 0.999]
        # Below the ridge the roof is intensity x bandwidth: one such row gives the bandwidth back.
        slope = float((below["roof_tflops_per_s"] / below["intensity"]).max()) * 1000 if len(below) else 0.0
        roof = (top, slope) if top > 0 and slope > 0 else None

        def draw(cells: int, height: int, palette: Palette) -> list[list[Segment]]:
            points = [
                (float(x), float(y), GROUPS[str(g)].letter, palette.group(str(g)))
                for x, y, g in rows
                if str(g) in GROUPS
            ]
            return pictures.scatter(points, roof, cells, min(height, 22), palette)

        self.query_one(Picture).show(draw)
