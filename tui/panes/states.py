"""In which utilization states the chip is: the table of states, and which follows which."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment

from tui.cells import fit
from tui.palette import Palette
from tui.panes.base import TablePane
from tui.snapshot import Query, RunView
from tui.widgets.lines import Lines
from tui.widgets.picture import Picture


class StatesPane(TablePane):
    name_ = "states"
    title = "States"
    table_name = "states"
    help: ClassVar[str] = """
A state has three letters: **threads launched** (L below 4,000, M to 32,000, H above), **SM %** and **DRAM %** (L below 10,
M to 70, H above). With few threads the other two hardly matter: `L**`. Nineteen states in all, edges from the 1,000-kernels
study. **kernels/run** is how many kernels in a row stay in one state: near 1, the chip changes its state with every kernel.

Where counters were not collected, SM % and DRAM % are **estimates**: operations and bytes by formula over the device's peaks.
"""

    def queries(self) -> tuple[Query, ...]:
        return Query("states"), Query("transitions")

    def picture(self) -> Lines | None:
        return Picture()

    def show_picture(self, view: RunView) -> None:
        frame = view.tables.get(Query("transitions"))
        if frame is None:
            return
        pairs = [(str(a), str(b), int(n)) for a, b, n in zip(frame["from"], frame["to"], frame["count"], strict=True)]
        self.query_one(Picture).show(lambda cells, rows, palette: matrix(pairs, cells, rows, palette))


def matrix(pairs: list[tuple[str, str, int]], cells: int, rows: int, palette: Palette) -> list[list[Segment]]:
    """Transitions as a matrix, rows from, columns to; percent of all transitions."""
    total = sum(n for _, _, n in pairs)
    if not total:
        return [[Segment("No transition yet.", palette.style(palette.muted))]]
    weight: dict[str, int] = {}
    for a, b, n in pairs:
        weight[a] = weight.get(a, 0) + n
        weight[b] = weight.get(b, 0) + n
    most = max(min((cells - 6) // 6, rows - 3, len(weight)), 1)
    names = sorted(weight, key=lambda s: -weight[s])[:most]
    count = {(a, b): n for a, b, n in pairs}
    out = [
        [Segment(fit("from (row) to (column), % of all transitions", cells), palette.style(palette.text, bold=True))]
    ]
    out.append(
        [Segment(" " * 5, palette.style())] + [Segment(f"{n:>6}", palette.style(palette.state_text(n))) for n in names]
    )
    for a in names:
        line = [Segment(f"{a:<5}", palette.style(palette.state_text(a)))]
        for b in names:
            share = 100 * count.get((a, b), 0) / total
            line.append(
                Segment(
                    f"{share:6.1f}" if share else f"{palette.mark('idle'):>6}",
                    palette.style(palette.text if share >= 1 else palette.muted),
                )
            )
        out.append(line)
    hidden = len(weight) - len(names)
    if hidden > 0:
        out.append([Segment(f"{hidden} more states: kernelscope show … transitions", palette.style(palette.muted))])
    return out
