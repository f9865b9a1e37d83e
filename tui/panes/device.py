"""What the device and the machine do now: telemetry on fixed scales, newest at the right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import VerticalScroll

from profilers.analysis.registry import Col, Table
from tui.cells import fit
from tui.panes.base import Pane
from tui.snapshot import RunView
from tui.widgets.chrome import PaneLine
from tui.widgets.lines import Lines
from tui.widgets.sparkline import sparkline

if TYPE_CHECKING:
    import pandas as pd

SAMPLES_TABLE = Table(
    "samples",
    "What did the device report, when?",
    (
        Col("t_ns", "time ns"),
        Col("device", "device"),
        Col("metric", "metric"),
        Col("value", "value", "number"),
        Col("unit", "unit"),
        Col("source", "source"),
    ),
    "",
)

LABELS = {
    "util_pct": "kernel resident",
    "sm_pct": "SM",
    "dram_pct": "DRAM",
    "tensor_pct": "tensor",
    "memory_used_gb": "memory used",
    "memory_pct": "memory used",
    "power_w": "power",
    "temperature_c": "temperature",
    "clock_sm_mhz": "SM clock",
    "clock_mhz": "clock",
    "load_pct": "load",
    "rss_gb": "worker's memory",
}


@dataclass(frozen=True)
class Series:
    """One metric of one device through time."""

    device: str
    metric: str
    unit: str
    values: tuple[float, ...]
    top: float
    source: str

    @property
    def label(self) -> str:
        if self.metric == "util_pct" and self.device.startswith("cpu"):
            return "load"
        return LABELS.get(self.metric, self.metric.replace("_", " "))


def series_of(samples: pd.DataFrame, capacity: dict[str, float] | None = None) -> list[Series]:
    """Telemetry as series. Percentages are on 0-100; others on 0 to the largest value seen (said beside them)."""
    out = []
    for (device, metric), part in samples.groupby(["device", "metric"], observed=True, sort=False):
        values = tuple(float(v) for v in part["value"])
        unit = str(part["unit"].iloc[-1])
        top = 100.0 if unit == "%" else max((v for v in values if v == v), default=1.0) or 1.0
        out.append(Series(str(device), str(metric), unit, values, top, str(part["source"].iloc[-1])))
    return sorted(out, key=lambda s: (s.device.count("/"), s.device, s.unit != "%"))


class Telemetry(Lines):
    """One line a metric: label, line through time, newest value."""

    def __init__(self) -> None:
        super().__init__()
        self.series: list[Series] = []

    def show(self, series: list[Series]) -> None:
        self.series = series
        self.redraw()

    def build(self, width: int) -> list[list[Segment]]:
        p = self.palette
        if not self.series:
            return [[Segment("No telemetry was sampled for this run.", p.style(p.muted))]]
        main = [s for s in self.series if "/" not in s.device]
        parts = [s for s in self.series if "/" in s.device]
        out = []
        device = ""
        for s in main:
            if s.device != device:
                device = s.device
                out.append(
                    [Segment(f"{device}  ", p.style(p.text, bold=True)), Segment(f"from {s.source}", p.style(p.muted))]
                )
            out.append(self._line(s, width))
        out += self._cores(parts, width)
        return out

    def _line(self, s: Series, width: int) -> list[Segment]:
        p = self.palette
        room = max(width - 20 - 26, 8)
        scale = f"of 100 {s.unit}" if s.unit == "%" else f"top {s.top:,.4g} {s.unit}"
        now = next((v for v in reversed(s.values) if v == v), float("nan"))
        value = p.mark("dash") if now != now else f"{now:,.1f} {s.unit}"
        return [
            Segment(fit("  " + s.label, 19), p.style(p.muted)),
            *sparkline(s.values, room, s.top, p, p.group("elementwise")),
            Segment(fit(value, 12, True), p.style(p.text, bold=True)),
            Segment("  " + fit(scale, 14), p.style(p.faint)),
        ]

    def _cores(self, parts: Iterable[Series], width: int) -> list[list[Segment]]:
        """Cores side by side, as many to a line as fit."""
        p = self.palette
        cells: list[list[Segment]] = []
        for s in parts:
            if s.unit != "%":
                continue
            now = s.values[-1] if s.values else float("nan")
            cells.append(
                [
                    Segment(fit(s.device.split("/")[-1], 4, True) + " ", p.style(p.muted)),
                    *sparkline(s.values, 12, 100.0, p, p.group("memory")),
                    Segment(f"{now:5.0f} %  " if now == now else "    -    ", p.style(p.text)),
                ]
            )
        if not cells:
            return []
        per_line = max(width // 26, 1)
        out = [[Segment("cores", p.style(p.text, bold=True))]]
        for first in range(0, len(cells), per_line):
            out.append([segment for cell in cells[first : first + per_line] for segment in cell])
        return out


class DevicePane(Pane):
    name_ = "device"
    title = "Device"
    help: ClassVar[str] = """
Telemetry of the device, sampled once or twice a second while the run goes on. Percentages are drawn on a fixed scale of 0 to
100; other values from 0 to the largest seen, which is written beside them. **kernel resident** is the driver's utilization: the
share of time in which any kernel was there, not how well it used the chip.
"""

    def compose(self) -> ComposeResult:
        yield PaneLine()
        with VerticalScroll():
            yield Telemetry()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._samples: pd.DataFrame | None = None

    def show(self, view: RunView) -> None:
        self._samples = view.samples
        series = series_of(view.samples) if view.samples is not None and len(view.samples) else []
        self.query_one(Telemetry).show(series)
        count = 0 if view.samples is None else len(view.samples)
        self.query_one(PaneLine).show("What does the device do now?", (f"{count:,} samples",) if count else ())

    def exported(self) -> tuple[Table, pd.DataFrame] | None:
        return (SAMPLES_TABLE, self._samples) if self._samples is not None else None

    def focus_inside(self) -> None:
        self.query_one(VerticalScroll).focus()
