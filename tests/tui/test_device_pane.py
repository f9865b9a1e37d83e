"""The Device tab: GPUs side by side with live states, what is not available, and the bytes that it costs."""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import Any

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from profilers.collectors.telemetry.base import Sample
from tests.tui.driving import drive
from tests.tui.terminal import terminal
from tests.tui.test_terminal import LIVE_S, settle
from tui.panes.device import Details, DevicePane, label
from tui.panes.device_rows import SLICES_S, GpuRows, frame_of, gpus_of
from tui.telemetry import Telemetry
from tui.widgets.cell_lines import changed_cells

SECOND = 10**9


def ticks(device: str, times_ns: list[int], seed: int = 0) -> list[Sample]:
    """Telemetry of one GPU on Hopper whose state changes now and then."""
    chance, sm, dram, out = random.Random(seed), 50.0, 50.0, []
    for t in times_ns:
        if chance.random() < 0.3:
            sm, dram = chance.choice([3.0, 40.0, 95.0]), chance.choice([5.0, 30.0, 85.0])
        for metric, value, unit, source in (
            ("util_pct", 99.0, "%", "nvml"),
            ("memory_used_gb", 12.5, "GB", "nvml"),
            ("memory_total_gb", 80.0, "GB", "nvml"),
            ("power_w", 200 + 4 * sm + chance.random(), "W", "nvml"),
            ("temperature_c", 61.0, "C", "nvml"),
            ("sm_pct", sm, "%", "gpm"),
            ("dram_pct", dram, "%", "gpm"),
            ("tensor_pct", sm / 2, "%", "gpm"),
        ):
            out.append(Sample(t, device, metric, value, unit, source))
    return out


def telemetry(devices: int, count: int, start: int = 1_700_000_000 * SECOND) -> Telemetry:
    rows = []
    for device in range(devices):
        for s in ticks(f"cuda:{device}", [start + i * SECOND for i in range(count)], device):
            assert s.value is not None
            rows.append((s.t_ns, s.device, s.metric, s.value, s.unit, s.source))
    return Telemetry().plus(rows)


def test_a_line_for_every_gpu_in_the_order_of_numbers() -> None:
    held = telemetry(12, 5)
    gpus = gpus_of(held.series)
    assert [gpu.device for gpu in gpus] == [f"cuda:{i}" for i in range(12)]
    assert gpus[3].memory_gb == 12.5 and len(gpus[3].power) == 5
    assert sum(pct for _, _, pct in gpus[3].summary.shares) == pytest.approx(100)


def test_before_hopper_there_are_no_states() -> None:
    rows = [(SECOND, "cuda:0", "util_pct", 99.0, "%", "nvml")]
    (gpu,) = gpus_of(Telemetry().plus(rows).series)
    assert gpu.resident == 99.0 and math.isnan(gpu.sm) and gpu.summary.shares == ()
    assert label("cuda:0", "util_pct") == "kernel resident" and label("cpu/3", "util_pct") == "load"


def test_the_strip_holds_everything_and_moves_rarely() -> None:
    cells, beginnings, sizes = 40, set(), set()
    for count in range(2, 400):
        gpus = gpus_of(telemetry(1, count).series)
        first, size = frame_of(gpus, cells)
        live = gpus[0].live
        assert first <= live.start_ns[0] and live.t_ns[-1] <= first + cells * size
        beginnings.add((first, size))
        sizes.add(size)
    assert len(beginnings) <= len(SLICES_S)
    assert sizes <= {s * SECOND for s in SLICES_S} and max(sizes) <= 20 * SECOND
    assert frame_of([], cells) == (0, 0)


def test_only_the_cells_that_differ_are_painted() -> None:
    red, blue = Style.parse("red"), Style.parse("blue")
    before = Strip([Segment("abc", red), Segment("def", red)])
    assert changed_cells(before, Strip([Segment("abcdef", red)])) == (0, 0)
    assert changed_cells(before, Strip([Segment("abXdYf", red)])) == (2, 5)
    assert changed_cells(before, Strip([Segment("abcde", red), Segment("f", blue)])) == (5, 6)
    assert changed_cells(before, Strip([Segment("漢字ab", red)])) == (0, 6)


@pytest.mark.parametrize(("size", "devices"), [((80, 24), 8), ((160, 50), 16), ((120, 34), 1)])
@pytest.mark.parametrize("ascii", [False, True])
def test_the_pane_shows_states_costs_and_reasons(
    root: Any, make_run: Any, size: Any, devices: int, ascii: bool
) -> None:
    run = make_run("gpt2", state="profiling", windows=1)
    now = time.time_ns()
    for device in range(devices):
        run.append_samples(ticks(f"cuda:{device}", [now - (60 - i) * SECOND for i in range(60)], device))
    run.append_samples([Sample(now, "cuda:0", "sampling_ms", 3.14159, "ms", "self")])
    run.append_samples([Sample(now, "cuda:0", "clock_reasons", 4.0, "bits", "nvml")])
    for metric in ("fp64_pct", "fp16_pct"):
        run.append_event("unavailable", device="cuda:0", metric=metric, reason="not supported by this device")

    async def steps(pilot: Any, app: Any) -> None:
        await pilot.press("9")
        pane = app.main.query_one(DevicePane)
        end = time.monotonic() + 20
        while not pane.query_one(GpuRows).gpus and time.monotonic() < end:
            await asyncio.sleep(0.05)
        await pilot.pause()
        rows, details = pane.query_one(GpuRows), pane.query_one(Details)
        width = rows.size.width
        lines = ["".join(s.text for s in line) for line in rows.build(width)]
        assert all(len(line) <= width for line in lines), [line for line in lines if len(line) > width]
        table = lines[1 : devices + 1]
        assert [line.split()[0] for line in table] == [f"cuda:{i}" for i in range(devices)]
        dot = "." if ascii else "·"
        assert all(f" {dot}{a}" in line for line, a in [(line, "") for line in table])
        assert "flips/min over 59 s" in "\n".join(lines)
        # The newest state's letters follow from the numbers beside them.
        for line, gpu in zip(table, rows.gpus, strict=True):
            assert f"{gpu.sm:.0f} %" in line and gpu.summary.newest.replace("·", dot) in line
        text = "\n".join("".join(s.text for s in line) for line in details.build(width))
        assert "fp64, fp16: not supported by this device" in " ".join(text.split())
        assert "power cap" in text
        words = pane.query_one("PaneLine").right
        assert "a sample costs 3.1 ms" in words and any(w.startswith("newest ") for w in words)

    drive(root, steps, size=size, ascii=ascii)


@pytest.mark.parametrize("devices", [8, 16])
def test_states_of_many_gpus_stay_within_the_budget_of_bytes(root: Any, make_run: Any, devices: int) -> None:
    """160x50, every number and state of 8 or 16 GPUs changing twice a second: at most 10 KiB/s to the terminal."""
    run = make_run("gpt2", state="profiling", windows=1, total=1000)
    with terminal(["--runs", str(root)], size=(160, 50)) as t:
        t.wait_for("matmul")
        now = time.time_ns()
        for device in range(devices):
            run.append_samples(ticks(f"cuda:{device}", [now - (60 - i) * SECOND for i in range(60)], device))
        t.send("9")
        t.wait_for("flips/min")
        settle(t, quiet=0.8)
        before, begin, turn = t.count, time.monotonic(), 0
        while time.monotonic() - begin < LIVE_S:
            turn += 1
            t_ns = time.time_ns()
            for device in range(devices):
                run.append_samples(ticks(f"cuda:{device}", [t_ns], turn * 100 + device))
            time.sleep(0.5)
        rate = (t.count - before) / (time.monotonic() - begin) / 1024
        print(f"{devices} GPUs: {rate:.1f} KiB/s")
        assert rate <= 10.0
        assert f"cuda:{devices - 1}" in t.text
