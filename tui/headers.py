"""From tables to the pictures above the tabs: the three shares, the state strip, the words in the title."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.snapshot import Query, RunView
from tui.widgets.shares import Share
from tui.widgets.state_strip import StripData

if TYPE_CHECKING:
    import pandas as pd

SHARED_QUERIES = (Query("shares_by_group"), Query("shares"), Query("timeline"), Query("states"), Query("summary"))
_ORDER = ("device", "operator", "wall")


def shares_of(view: RunView) -> tuple[Share, ...]:
    """The three shares of the device with most kernel time, by group, GEMM first."""
    frame = view.tables.get(Query("shares_by_group"))
    if frame is None or not len(frame):
        return ()
    device = main_device(view, frame)
    several = len(set(frame.loc[frame["share"] == "device", "device"].astype(str)))
    where = f"{device} of {several}" if several > 1 else ""
    out = []
    for name in _ORDER:
        part = frame[(frame["share"] == name) & frame["device"].isin([device, "all"])]
        if not len(part):
            continue
        idle = float(part.loc[part["class"] == "idle", "time_us"].sum())
        busy = part[part["class"] != "idle"]
        rank = {"gemm": 0, "attention": 1, "nongemm": 2, "communication": 3, "unclassified": 4}
        rows = sorted(
            (
                (str(c), str(g), float(t))
                for c, g, t in zip(busy["class"], busy["group"], busy["time_us"], strict=True)
                if t > 0
            ),
            key=lambda r: (rank.get(r[0], 5), -r[2]),
        )
        whole = sum(t for _, _, t in rows) + idle
        attention = view.attention_as_gemm and any(c == "attention" for c, _, _ in rows)
        pct = gemm_share(view, rows, whole)
        of = "span" if name == "wall" and of_the_span(view, device) else ""
        out.append(Share(name, tuple((g, t) for _, g, t in rows), pct, attention, idle, of, where))
    return tuple(out)


def of_the_span(view: RunView, device: str = "") -> bool:
    """Whether the wall share of a device (of the first one) is of its span, since no steps were recorded."""
    frame = view.tables.get(Query("shares"))
    if frame is None:
        return False
    wall = frame[(frame["share"] == "wall") & ((frame["device"] == device) | (device == ""))]
    return len(wall) > 0 and str(wall["of"].iloc[0]).startswith("span")


def gemm_share(view: RunView, rows: list[tuple[str, str, float]], whole: float) -> float:
    """GEMM's percentage of a share: matrix multiply and convolution, and attention where the option says so."""
    counted = {"gemm", "attention"} if view.attention_as_gemm else {"gemm"}
    return 100.0 * sum(t for c, _, t in rows if c in counted) / whole if whole else 0.0


def main_device(view: RunView, frame: pd.DataFrame) -> str:
    """The device with most kernel time."""
    summary = view.tables.get(Query("summary"))
    if summary is not None and len(summary):
        return str(summary["device"].iloc[int(summary["kernel_time_us"].to_numpy().argmax())])
    return str(frame["device"].iloc[0])


def strip_of_view(view: RunView) -> StripData:
    """The chronological strip of the main device, and its legend."""
    timeline, states = view.tables.get(Query("timeline")), view.tables.get(Query("states"))
    if timeline is None or not len(timeline) or states is None:
        return StripData()
    device = main_device(view, timeline)
    part = timeline[timeline["device"] == device]
    cells = tuple(
        (str(s), float(g) / 100, float(b) / 100)
        for s, g, b in zip(part["state"], part["gemm_pct"], part["busy_pct"], strict=True)
    )
    rows = states.sort_values("time_us", ascending=False)
    legend = tuple((str(s), float(p)) for s, p in zip(rows["state"], rows["pct"], strict=True) if p >= 0.05)
    kernels, runs = float(states["kernels"].sum()), float(states["runs"].sum())
    estimated = bool((states["source"].astype(str) == "estimate").any())
    return StripData(cells, legend, kernels / runs if runs else 0.0, estimated, device)


def telemetry_words(view: RunView) -> tuple[str, ...]:
    """The newest values of the run's device, for the title."""
    values = {key: (series.newest, series.unit) for key, series in view.telemetry.series.items()}
    devices = [d for d, _ in values if "/" not in d]
    if not devices:
        return ()
    device = next((d for d in devices if d.startswith("cuda")), devices[0])
    out = [device]
    for metric, label in (
        ("sm_pct", "SM"),
        ("dram_pct", "DRAM"),
        ("util_pct", "resident"),
        ("load_pct", "load"),
        ("memory_used_gb", "memory"),
        ("power_w", ""),
    ):
        held = values.get((device, metric))
        label = "load" if metric == "util_pct" and device == "cpu" else label
        if held is not None and held[0] == held[0] and len(out) < 5:
            out.append(f"{label} {held[0]:.0f} {held[1]}".strip())
    return tuple(out)
