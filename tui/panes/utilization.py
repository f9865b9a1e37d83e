"""For how much of the time the busiest resource is below x percent: the study's curve."""

from __future__ import annotations

from typing import ClassVar

from tui import pictures
from tui.panes.base import TablePane
from tui.snapshot import RunView
from tui.widgets.lines import Lines
from tui.widgets.picture import Picture


class UtilizationPane(TablePane):
    name_ = "utilization"
    title = "Under x %"
    table_name = "utilization"
    help: ClassVar[str] = """
Kernels sorted by the utilization of their busiest resource, max(SM, DRAM, tensor): for how much of kernel time is it below x %?
Six of the study's ten applications are below 25 % for 60 % of their time.
"""

    def picture(self) -> Lines | None:
        return Picture()

    def show_picture(self, view: RunView) -> None:
        frame = view.tables.get(self.queries()[0])
        if frame is None or not len(frame):
            return
        pairs = zip(frame["below_pct"], frame["time_pct"], strict=True)
        points = sorted((float(x), float(y)) for x, y in pairs if x == x and y == y)
        self.query_one(Picture).show(
            lambda cells, rows, palette: pictures.curve(
                points,
                cells,
                min(rows, 18),
                palette,
                palette.group("elementwise"),
                title="kernel time with every resource below x % of peak",
                y_label="% of kernel time",
                x_label="% of peak",
                x_max=100.0,
            )
        )
