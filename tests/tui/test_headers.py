"""What the bars above the tabs say they are of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
from rich.segment import Segment

from tui.headers import of_the_span, shares_of
from tui.palette import palette
from tui.snapshot import Query, RunView
from tui.widgets.shares import SHORT, legend


def view(devices: list[str], of: str) -> RunView:
    """A recording of these devices: on each 3 us of matrix multiply and as much idle time."""
    groups: list[dict[str, Any]] = []
    for device in devices:
        for share in ("device", "wall"):
            row = {"share": share, "device": device, "class": "gemm", "group": "matmul", "time_us": 3.0}
            groups += [row, row | {"class": "idle", "group": "idle"}] if share == "wall" else [row]
    shares = [{"share": "wall", "device": device, "class": "gemm", "of": of} for device in devices]
    summary = [{"device": device, "kernel_time_us": float(place)} for place, device in enumerate(devices)]
    tables = {
        Query("shares_by_group"): pd.DataFrame(groups),
        Query("shares"): pd.DataFrame(shares),
        Query("summary"): pd.DataFrame(summary),
    }
    return cast(RunView, SimpleNamespace(tables=tables, attention_as_gemm=True))


def text(line: list[Segment]) -> str:
    return "".join(segment.text for segment in line)


def test_without_steps_the_wall_bar_is_of_the_span() -> None:
    device, wall = shares_of(view(["cuda:0"], "span, first start to last end"))
    assert SHORT[device.of or device.name] == "of kernels" and SHORT[wall.of or wall.name] == "of span"
    assert wall.gemm_pct == 50.0 and not wall.where
    _, wall = shares_of(view(["cuda:0"], "step wall time"))
    assert SHORT[wall.of or wall.name] == "of step"
    assert of_the_span(view(["cuda:0"], "span, first start to last end"))
    assert not of_the_span(view(["cuda:0"], "step wall time"), "cuda:0")


def test_of_several_devices_the_bars_name_theirs() -> None:
    bars = shares_of(view(["cuda:0", "cuda:1"], "step wall time"))
    assert {share.where for share in bars} == {"cuda:1 of 2"}
    line = text(legend(bars, 60, palette("dark"), 9, bars[0].where))
    assert line.startswith("cuda:1 of 2  ") and "matmul" in line and len(line) <= 69
    assert text(legend(bars, 60, palette("dark"), 9)).startswith(" " * 9)
