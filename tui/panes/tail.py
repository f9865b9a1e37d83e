"""The heavy tail: how many kernels must be fast before most of the time is covered."""

from __future__ import annotations

from typing import ClassVar

from tui import pictures
from tui.panes.base import TablePane
from tui.snapshot import Query, RunView
from tui.widgets.lines import Lines
from tui.widgets.picture import Picture


class TailPane(TablePane):
    name_ = "tail"
    title = "Tail"
    table_name = "coverage"
    help: ClassVar[str] = """
How many distinct kernels cover 50, 80, 90 and 99 % of kernel time. **GEMM lumped** counts all GEMM kernels as one, as the
1,000-kernels study does: it asks how many *other* kernels somebody would have to make fast.
"""

    def queries(self) -> tuple[Query, ...]:
        return Query("coverage"), Query("kernels")

    def picture(self) -> Lines | None:
        return Picture()

    def show_picture(self, view: RunView) -> None:
        frame = view.tables.get(Query("kernels"))
        if frame is None or not len(frame):
            return
        covered = sorted(frame["time_us"].to_numpy(dtype=float), reverse=True)
        total = sum(covered) or 1.0
        points, sum_ = [(0.0, 0.0)], 0.0
        for index, time in enumerate(covered, 1):
            sum_ += time
            points.append((float(index), 100 * sum_ / total))
        reach = float(len(covered))
        self.query_one(Picture).show(
            lambda cells, rows, palette: pictures.curve(
                points,
                cells,
                min(rows, 18),
                palette,
                palette.group("matmul"),
                title="kernel time covered by the largest kernels",
                y_label="%",
                x_label="distinct kernels",
                x_max=reach,
            )
        )
