"""Every matrix multiply, convolution and attention shape: the table, and how fast each is over its arithmetic intensity."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment

from tui import pictures
from tui.palette import Palette
from tui.panes.base import TablePane, remarks
from tui.snapshot import RunView
from tui.widgets.chrome import PaneLine
from tui.widgets.line_table import LineTable
from tui.widgets.lines import Lines
from tui.widgets.picture import Picture


class GemmsPane(TablePane):
    name_ = "gemms"
    title = "GEMMs"
    table_name = "gemms"
    empty = "No matrix multiply, convolution or attention was recorded."
    help: ClassVar[str] = """
Every distinct matrix multiply, convolution and attention shape: operations and bytes by formula from the shapes, time as
measured. **bound** says which limit of the device this shape meets first (roofline). **peak from** says where the peak of that
type is from: the table of datasheets (unchecked: a figure of it that was not found again in one), measured by
`kernelscope calibrate`, given in your `peaks.toml`, or estimated.
"""

    def picture(self) -> Lines | None:
        return Picture()

    def describe(self, alert: str = "") -> None:
        """The line above the table also says where the peaks are from: there is rarely room for that column."""
        grid = self.query_one(LineTable).grid
        said = remarks(grid)
        if grid is not None and any(shown.column.name == "pct_of_peak" for shown in grid.columns):
            sources = sorted(set(grid.frame["peak_source"]) - {""})
            said[1:1] = [f"peak: {' and '.join(sources)}"] if sources else []
        self.query_one(PaneLine).show(self.table.question, said, alert)

    def show_picture(self, view: RunView) -> None:
        frame = view.tables.get(self.queries()[0])
        if frame is None or not len(frame):
            return
        frame = frame.sort_values("time_us")  # the largest is drawn last, over the others
        rows = [
            (float(x), float(y), group_of(str(op)))
            for op, x, y in zip(frame["op"], frame["intensity"], frame["tflops_per_s"], strict=True)
        ]

        def draw(cells: int, height: int, palette: Palette) -> list[list[Segment]]:
            points = [(x, y, letter, palette.group(group)) for x, y, (group, letter) in rows]
            return pictures.scatter(points, None, cells, min(height, 22), palette)

        self.query_one(Picture).show(draw)


def group_of(op: str) -> tuple[str, str]:
    """The group of an operator of this table, and its letter."""
    name = op.lower()
    if "attention" in name or "flash" in name or "fmha" in name:
        return "attention", "A"
    return ("convolution", "C") if "conv" in name else ("matmul", "G")
