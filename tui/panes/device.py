"""What the devices and the machine do now: GPUs side by side, telemetry on fixed scales, newest at the right."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import VerticalScroll

from profilers.analysis.registry import Table
from tui.cells import fit
from tui.format import duration
from tui.panes.base import Pane
from tui.panes.device_rows import GpuRows, gpus_of
from tui.snapshot import RunView
from tui.telemetry import SAMPLES, Series
from tui.widgets.cell_lines import CellLines
from tui.widgets.chrome import PaneLine
from tui.widgets.sparkline import sparkline

if TYPE_CHECKING:
    import pandas as pd

LABELS = {
    "util_pct": "kernel resident",
    "sm_pct": "SM",
    "occupancy_pct": "SM occupancy",
    "dram_pct": "DRAM",
    "tensor_pct": "tensor, any",
    "hmma_pct": "tensor fp16/bf16",
    "imma_pct": "tensor int8",
    "dmma_pct": "tensor fp64",
    "dfma_pct": "tensor DFMA",
    "fp16_pct": "fp16",
    "fp32_pct": "fp32",
    "fp64_pct": "fp64",
    "integer_pct": "integer",
    "pcie_tx_mib_s": "PCIe out",
    "pcie_rx_mib_s": "PCIe in",
    "pcie_tx_mb_s": "PCIe out",
    "pcie_rx_mb_s": "PCIe in",
    "nvlink_tx_mib_s": "NVLink out",
    "nvlink_rx_mib_s": "NVLink in",
    "dram_read_gb_s": "memory read",
    "dram_write_gb_s": "memory written",
    "memory_used_gb": "memory used",
    "power_w": "power",
    "temperature_c": "temperature",
    "clock_mhz": "clock",
    "memory_clock_mhz": "memory clock",
    "worker_rss_gb": "worker's memory",
    "worker_cpu_pct": "worker's load",
}

TURN_S = 1.0
GPUS_A_TURN = 8
TOTALS_TURNS = 10
"""A turn draws up to eight GPUs; the times per state are drawn every tenth turn."""

_TOLD_ELSEWHERE = frozenset(
    {"memory_total_gb", "clock_reasons", "sampling_ms", "links_sampling_ms", "energy_j", "processes"}
)


def label(device: str, metric: str) -> str:
    """A metric in words; the driver's utilization is never called more than it is."""
    if metric == "util_pct" and device.startswith("cpu"):
        return "load"
    return LABELS.get(metric, metric.replace("_", " "))


class Details(CellLines):
    """The run's own device and the host: one line a metric, then the cores, then what is not available and why."""

    def __init__(self) -> None:
        super().__init__()
        self.series: list[Series] = []
        self.reasons: Sequence[tuple[str, str, str]] = ()

    def show(self, series: list[Series], reasons: Sequence[tuple[str, str, str]]) -> None:
        self.series, self.reasons = series, reasons
        self.redraw()

    def build(self, width: int) -> list[list[Segment]]:
        p = self.palette
        if not self.series:
            return [[Segment("No telemetry was sampled for this run.", p.style(p.muted))]]
        main = [s for s in self.series if "/" not in s.device]
        out: list[list[Segment]] = []
        for device in dict.fromkeys(s.device for s in main):
            mine = [s for s in main if s.device == device]
            sources = ", ".join(dict.fromkeys(s.source for s in mine if s.source != "self"))
            out.append(
                [Segment(f"{device}  ", p.style(p.text, bold=True)), Segment(f"from {sources}", p.style(p.muted))]
            )
            out += [self._line(s, width) for s in mine if s.metric not in _TOLD_ELSEWHERE]
            out += [self._words("clocks held by", text) for text in _held_back(mine)]
            out += [self._words("energy", text) for text in _energy(mine)]
        return [*out, *self._cores([s for s in self.series if "/" in s.device], width), *self._missing(width)]

    def _line(self, s: Series, width: int) -> list[Segment]:
        p = self.palette
        room = max(width - 20 - 32, 8)
        unit = s.unit.partition(" of ")[0]
        top = 100.0 if s.unit == "%" else max((v for v in s.values if v == v), default=1.0) or 1.0
        scale = f"of 100 {s.unit}" if s.unit == "%" else f"top {top:,.4g} {s.unit}"
        value = p.mark("dash") if s.newest != s.newest else f"{s.newest:,.1f} {unit}"
        return [
            Segment(fit("  " + label(s.device, s.metric), 19), p.style(p.muted)),
            *sparkline(s.values, room, top, p, p.group("elementwise")),
            Segment(fit(value, 14, True), p.style(p.text, bold=True)),
            Segment("  " + fit(scale, 18), p.style(p.faint)),
        ]

    def _words(self, name: str, text: str) -> list[Segment]:
        p = self.palette
        return [Segment(fit("  " + name, 19), p.style(p.muted)), Segment(text, p.style(p.text, bold=True))]

    def _cores(self, parts: Iterable[Series], width: int) -> list[list[Segment]]:
        """Cores side by side, as many to a line as fit."""
        p = self.palette
        cells: list[list[Segment]] = []
        for s in parts:
            if s.unit != "%":
                continue
            cells.append(
                [
                    Segment(fit(s.device.split("/")[-1], 4, True) + " ", p.style(p.muted)),
                    *sparkline(s.values, 12, 100.0, p, p.group("memory")),
                    Segment(f"{s.newest:5.0f} %  " if s.newest == s.newest else "    -    ", p.style(p.text)),
                ]
            )
        if not cells:
            return []
        per_line = max(width // 26, 1)
        out = [[Segment("cores", p.style(p.text, bold=True))]]
        for first in range(0, len(cells), per_line):
            out.append([segment for cell in cells[first : first + per_line] for segment in cell])
        return out

    def _missing(self, width: int) -> list[list[Segment]]:
        """What is not available, by reason."""
        p = self.palette
        by_reason: dict[tuple[str, str], list[str]] = {}
        for device, metric, reason in self.reasons:
            by_reason.setdefault((device, reason), []).append(label(device, metric))
        if not by_reason:
            return []
        out = [[Segment("not available", p.style(p.text, bold=True))]]
        for (device, reason), names in by_reason.items():
            what = f"{device} {', '.join(dict.fromkeys(names))}: "
            for text in textwrap.wrap(what + reason, max(width - 2, 20), subsequent_indent="  "):
                out.append([Segment("  " + text, p.style(p.muted))])
        return out


def _held_back(series: list[Series]) -> list[str]:
    """Why clocks are held back now, and how often they were; [] where the driver does not tell."""
    from profilers.collectors.telemetry.nvml import clock_reasons

    found = next((s for s in series if s.metric == "clock_reasons"), None)
    if found is None or not found.values:
        return []
    # Idle and clocks that somebody set are states, not a lack of something.
    held = [
        [name for name in clock_reasons(int(v)) if name not in ("idle", "application clocks")] for v in found.values
    ]
    share = 100 * sum(map(bool, held)) / len(held)
    return [f"{', '.join(held[-1]) or 'nothing'}  (something in {share:.0f} % of samples)"]


def _energy(series: list[Series]) -> list[str]:
    """Joules between the first and the last sample that are held."""
    found = next((s for s in series if s.metric == "energy_j"), None)
    if found is None or len(found.values) < 2 or found.values[-1] < found.values[0]:
        return []
    seconds = (found.times_ns[-1] - found.times_ns[0]) / 1e9
    return [f"{found.values[-1] - found.values[0]:,.0f} J in {duration(seconds)}"]


class DevicePane(Pane):
    name_ = "device"
    title = "Device"
    help: ClassVar[str] = """
Telemetry, sampled about once a second while the run goes on. Each GPU has a line; the run's own device is drawn below on fixed
scales, 0 to 100 % or 0 to the largest value seen, which is written beside it.

**kernel resident** is the driver's utilization: the share of time in which any kernel was there, not how well it used the chip.
**SM, DRAM, tensor** come from the driver's performance monitor on Hopper and newer. Their states have a dot for the thread
axis, which telemetry does not know: **·MH** is SM medium and DRAM high (edges 10 and 70 %, as for kernels). A cell of the strip
is a slice of time in the state that took most of it; a flip is a change between two samples, so flips faster than the sampling
are not seen. GPUs that no run of this launch is on are sampled every few seconds, and only in part.

The line above says how old the newest sample is and what sampling costs the machine; it never goes faster than twice a second.
"""

    def compose(self) -> ComposeResult:
        yield PaneLine()
        with VerticalScroll():
            yield GpuRows()
            yield Details()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._view: RunView | None = None
        self._drawn: RunView | None = None
        self._turns = 0

    def on_mount(self) -> None:
        self.set_interval(TURN_S, self._turn)

    def show(self, view: RunView) -> None:
        before, self._view = self._view, view
        if before is None or before.key != view.key or not view.status.live:
            self._draw(view, totals=True)

    def _turn(self) -> None:
        """While a run goes on what arrives is drawn once a turn, and with many GPUs less often: bytes are dear over SSH."""
        view = self._view
        if view is None or not self.is_on_screen:
            return
        self._turns += 1
        gpus = len(self.query_one(GpuRows).gpus)
        if view is not self._drawn and self._turns % max(-(-gpus // GPUS_A_TURN), 1) == 0:
            self._draw(view, totals=self._turns % TOTALS_TURNS == 0)
        else:
            self._describe(view)

    def _draw(self, view: RunView, totals: bool) -> None:
        self._drawn = view
        series = view.telemetry.series
        gpus = gpus_of(series)
        rows = self.query_one(GpuRows)
        rows.display = bool(gpus)
        rows.show(gpus, totals)
        own = next((device for device, _ in series if device.startswith("cuda")), "")
        rest = [s for s in series.values() if s.device == own or not s.device.startswith("cuda")]
        rest.sort(key=lambda s: (s.device.count("/"), s.device != own, s.device, s.unit != "%"))
        self.query_one(Details).show(rest, view.unavailable)
        self._describe(view)

    def _describe(self, view: RunView) -> None:
        """The line above: how old the newest sample is (while the run goes on), and what sampling costs."""
        series = view.telemetry.series.values()
        words = [f"{view.telemetry.count:,} samples"] if view.telemetry.count else []
        newest = max((s.times_ns[-1] for s in series if s.times_ns), default=0)
        if newest and view.status.live:
            age = (time.time_ns() - newest) / 1e9
            words.append(f"newest {duration(age)} old")
        costs = [sorted(s.values)[len(s.values) // 2] for s in series if s.metric == "sampling_ms" and s.values]
        if costs:
            words.append(f"a sample costs {costs[0]:.2g} ms")
        self.query_one(PaneLine).show("What do the devices do now?", words)

    def exported(self) -> tuple[Table, pd.DataFrame] | None:
        view = self._view
        return (SAMPLES, view.samples) if view is not None and view.telemetry.count else None

    def focus_inside(self) -> None:
        self.query_one(VerticalScroll).focus()
