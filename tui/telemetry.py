"""Telemetry as the screen holds it: one series a metric of a device, without pandas, since it grows twice a second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profilers.analysis.registry import Col, Table

if TYPE_CHECKING:
    import pandas as pd

KEPT = 600
"""Newest values kept of each series: ten minutes at one a second; the run folder keeps all."""

SAMPLES = Table(
    "samples",
    "What did the devices say of themselves meanwhile?",
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
"""The columns of telemetry, on the screen and on the command line."""

Row = tuple[int, str, str, float, str, str]
"""``t_ns device metric value unit source``, as in :data:`profilers.tables.SAMPLES`."""


@dataclass(frozen=True)
class Series:
    """One metric of one device through time, newest last."""

    device: str
    metric: str
    unit: str
    source: str
    times_ns: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    @property
    def newest(self) -> float:
        """The newest value (NaN where there is none)."""
        return self.values[-1] if self.values else float("nan")


@dataclass(frozen=True)
class Telemetry:
    """Every series so far, in order of first appearance. ``plus`` gives a new value; series that got no row are shared."""

    series: Mapping[tuple[str, str], Series] = field(default_factory=dict)
    count: int = 0

    def plus(self, rows: Iterable[Row]) -> Telemetry:
        """With these rows added."""
        added: dict[tuple[str, str], list[Row]] = {}
        count = 0
        for row in rows:
            added.setdefault((row[1], row[2]), []).append(row)
            count += 1
        if not count:
            return self
        series = dict(self.series)
        for key, new in added.items():
            held = series.get(key)
            times = (*(held.times_ns if held else ()), *(row[0] for row in new))[-KEPT:]
            values = (*(held.values if held else ()), *(float(row[3]) for row in new))[-KEPT:]
            series[key] = Series(key[0], key[1], new[-1][4], new[-1][5], times, values)
        return Telemetry(series, self.count + count)

    def frame(self) -> pd.DataFrame:
        """What is held as a table (:data:`profilers.tables.SAMPLES`), in order of time: for exports."""
        import pandas as pd

        from profilers.tables import SAMPLES as schema

        rows = [
            (t, s.device, s.metric, v, s.unit, s.source)
            for s in self.series.values()
            for t, v in zip(s.times_ns, s.values, strict=True)
        ]
        rows.sort(key=lambda row: row[0])
        return schema.conform(pd.DataFrame(rows, columns=schema.names)) if rows else schema.empty()
