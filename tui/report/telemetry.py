"""What a run's telemetry is in a report: which metrics of which device, in what order, and what their numbers are of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profilers.analysis.registry import Col, Table
from tui.panes.device import label

if TYPE_CHECKING:
    import pandas as pd

    from profilers.runs.folder import RunFolder
    from profilers.tables import Recording

TELEMETRY = Table(
    "telemetry",
    "What did the devices and the machine do meanwhile?",
    (
        Col("device", "device"),
        Col("metric", "metric"),
        Col("unit", "unit", doc="and what a percentage is of"),
        Col("samples", "samples", "count"),
        Col("least", "least", "number"),
        Col("median", "median", "number"),
        Col("most", "most", "number"),
        Col("source", "source"),
    ),
    "",
)

NOTHING = "No telemetry was sampled while this was recorded: kernelscope samples the runs that it starts itself."

_GPU = ("util_pct", "sm_pct", "dram_pct", "tensor_pct", "memory_used_gb", "power_w", "temperature_c", "clock_mhz")
_HOST = ("util_pct", "worker_cpu_pct", "memory_used_gb", "worker_rss_gb", "clock_mhz")

_OF = {
    "util_pct": "% of time with a kernel resident",
    "sm_pct": "% of the SMs busy",
    "dram_pct": "% of peak DRAM bandwidth",
    "tensor_pct": "% of time in tensor pipes",
    "worker_cpu_pct": "% of one core",
    "temperature_c": "°C",
}

GAP = 2.5
"""Samples this many usual intervals apart have a gap between them."""


@dataclass(frozen=True)
class Curve:
    """One metric of one device, in order of time. A value is NaN where nothing was known; ``top`` is the scale's upper
    end (its lower one is 0)."""

    device: str
    metric: str
    unit: str
    source: str
    times_ns: tuple[int, ...]
    values: tuple[float, ...]
    top: float

    @property
    def title(self) -> str:
        return label(self.device, self.metric)

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if math.isfinite(value)]

    def pieces(self) -> list[list[tuple[int, float]]]:
        """The samples as unbroken pieces: a gap is where nothing was known, or nothing was sampled for several times the
        usual interval (the median)."""
        steps = [after - before for before, after in zip(self.times_ns, self.times_ns[1:], strict=False)]
        most = GAP * statistics.median(steps) if steps else 0.0
        out: list[list[tuple[int, float]]] = [[]]
        before = None
        for at, value in zip(self.times_ns, self.values, strict=True):
            if before is not None and at - before > most:
                out.append([])
            before = at
            if math.isfinite(value):
                out[-1].append((at, value))
            else:
                out.append([])
        return [piece for piece in out if piece]


@dataclass(frozen=True)
class Telemetry:
    """The curves of a run, its own devices first. ``windows``: begin and end of every profiled window whose time is known,
    in nanoseconds since the epoch like the samples."""

    curves: tuple[Curve, ...] = ()
    windows: tuple[tuple[int, int], ...] = ()

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last sample that is drawn."""
        return min(c.times_ns[0] for c in self.curves), max(c.times_ns[-1] for c in self.curves)

    def frame(self) -> pd.DataFrame:
        """The numbers of the curves, as :data:`TELEMETRY` says."""
        import pandas as pd

        rows = []
        for c in self.curves:
            known = c.known
            numbers = (min(known), statistics.median(known), max(known)) if known else (math.nan,) * 3
            rows.append((c.device, c.title, c.unit, len(known), *numbers, c.source))
        return pd.DataFrame(rows, columns=[column.name for column in TELEMETRY.columns])


def telemetry(run: RunFolder | None, recording: Recording) -> Telemetry:
    """What a run sampled; empty for a recording that came as a file."""
    if run is None:
        return Telemetry()
    from profilers.runs.folder import SampleTail
    from profilers.runs.windows import extents

    own = [device.id.rpartition("/")[2] for device in recording.devices]
    found = curves(SampleTail(run).rows(), own)
    if not found:
        return Telemetry()
    marked = [(epoch, epoch + end - start) for start, end, epoch in extents(recording) if epoch >= 0]
    first, last = Telemetry(found).span
    return Telemetry(found, tuple((max(a, first), min(b, last)) for a, b in marked if b > first and a < last))


def curves(rows: Iterable[tuple[int, str, str, float, str, str]], own: Sequence[str]) -> tuple[Curve, ...]:
    """Samples (``t_ns device metric value unit source``) as curves: devices of the run, the host, then other devices;
    single cores are left out."""
    held: dict[tuple[str, str], list[tuple[int, str, str, float, str, str]]] = {}
    for row in rows:
        held.setdefault((row[1], row[2]), []).append(row)
    devices = dict.fromkeys(device for device, _ in held if "/" not in device)
    order = sorted(devices, key=lambda name: (name not in own, name != "cpu", len(name), name))
    return tuple(
        _curve(sorted(held[device, metric], key=lambda row: row[0]), held)
        for device in order
        for metric in (_HOST if device == "cpu" else _GPU)
        if (device, metric) in held
    )


def _curve(
    rows: list[tuple[int, str, str, float, str, str]],
    held: Mapping[tuple[str, str], list[tuple[int, str, str, float, str, str]]],
) -> Curve:
    _, device, metric, _, unit, source = rows[-1]
    values = tuple(float(row[3]) for row in rows)
    of = "% of all cores" if (device, metric) == ("cpu", "util_pct") else _OF.get(metric, unit)
    total = [row[3] for row in held.get((device, "memory_total_gb"), ()) if math.isfinite(row[3])]
    if metric == "memory_used_gb" and total:
        top, of = max(total), f"{unit} of {max(total):,.0f} {unit}"
    elif unit == "%":
        top = 100.0
    else:
        top = _round_up(max((value for value in values if math.isfinite(value)), default=1.0))
    return Curve(device, metric, of, source, tuple(int(row[0]) for row in rows), values, top)


def _round_up(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value), 10 * power)
