"""The Compare screen: pick runs, and what is shown is what the analysis says of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from textual.pilot import Pilot

from profilers.analysis.compare import compare, summary_block
from profilers.runs.folder import RunFolder
from profilers.runs.opening import open_recording
from tui.app import KernelscopeApp
from tui.screens.compare import CompareScreen
from tui.screens.comparison import ComparisonScreen, PairedBars
from tui.screens.export import ExportScreen
from tui.widgets.chrome import PaneLine
from tui.widgets.line_table import LineTable
from tui.widgets.pick_list import PickList

MakeRun = Callable[..., RunFolder]
Steps = Callable[[Pilot[Any], KernelscopeApp], Awaitable[None]]


def drive(
    root: Path, steps: Steps, *, size: tuple[int, int] = (120, 34), first: str | None = None, **options: Any
) -> None:
    async def main() -> None:
        app = KernelscopeApp(first, root, **options)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.main.snapshot.root and (app.view is not None or not app.main.snapshot.runs))
            await steps(pilot, app)

    asyncio.run(main())


async def until(pilot: Pilot[Any], condition: Callable[[], object], timeout: float = 30.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)
        await pilot.pause()


async def opened(pilot: Pilot[Any], app: KernelscopeApp, *keys: str) -> ComparisonScreen:
    """Open the picker, press ``keys``, and wait until the comparison is there."""
    await pilot.press("c", *keys)
    await until(pilot, lambda: isinstance(app.screen, ComparisonScreen) and app.screen.data is not None)
    await until(pilot, lambda: isinstance(app.focused, LineTable))
    assert isinstance(app.screen, ComparisonScreen)
    return app.screen


def words(widget: Any) -> str:
    return "\n".join("".join(s.text for s in line) for line in widget.build(widget.size.width))


@pytest.mark.parametrize("size", [(80, 24), (120, 34)])
def test_two_runs_side_by_side(root: Path, make_run: MakeRun, size: tuple[int, int]) -> None:
    small, large = make_run("small", layers=3), make_run("large", layers=6)

    async def steps(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app, "enter")
        recordings = [open_recording(run.id, root).recording for run in (large, small)]
        rows = compare(recordings, ["large", "small"])
        exported = screen.exported()
        assert exported is not None
        pd.testing.assert_frame_equal(exported[1], rows)
        assert exported[0].name == "compare"
        # Half the layers: half the kernel time, in the verdict and in the bars.
        assert "kernels 2.00" in words(screen.query_one("#compare-line", PaneLine))
        bars = words(screen.query_one(PairedBars))
        assert "207" in bars and "414" in bars and "matmul" in bars
        shown = screen.query_one("#compare-summary", LineTable).grid
        assert shown is not None
        block = summary_block(recordings, ["large", "small"])
        kernel = block.set_index("quantity").loc["kernel time a step"]
        assert kernel["change"] == pytest.approx(2.0) and kernel["a"] == pytest.approx(414)
        assert shown.visible.set_index("quantity").loc["kernel time a step", "change"] == kernel["change"]
        assert "change" in [column.column.name for column in shown.columns]

    drive(root, steps, size=size, first=large.id)


def test_by_operator_and_group_and_export_follow(root: Path, make_run: MakeRun) -> None:
    make_run("one", layers=2)
    base = make_run("two", layers=4)

    async def steps(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app, "enter")
        seen = []
        for _ in range(3):
            exported = screen.exported()
            assert exported is not None
            seen.append((exported[0].column("name").title, set(exported[1]["name"])))
            await pilot.press("b")
        assert [by for by, _ in seen] == ["kernel", "operator", "group"]
        assert "aten::addmm" in seen[1][1] and seen[2][1] >= {"matmul", "normalization"}
        await pilot.press("slash", *"addmm", "enter")
        await pilot.press("b")
        assert screen.by == "operator" and screen.rows.filter == ""
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, ExportScreen))
        assert isinstance(app.screen, ExportScreen) and app.screen.exported_table is not None
        assert len(app.screen.exported_table[1]) == len(seen[1][1])

    drive(root, steps, first=base.id)


def test_new_and_vanished_kernels_are_marked(root: Path, make_run: MakeRun, recording: Callable[..., Any]) -> None:
    base = make_run("before", windows=1)
    other = make_run("after", windows=0)
    made = recording()
    kernels = made.kernels.copy()
    kernels["name"] = kernels["name"].cat.rename_categories(lambda n: "my_fused_gelu" if "Gelu" in n else n)
    other.write_window(1, made.replace(kernels=kernels))
    other.write_summary({"gemm_pct": 58.0, "windows": 1})

    async def steps(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app, "enter")
        frame = screen.exported()[1].set_index("name")  # type: ignore[index]
        assert frame.loc["my_fused_gelu", "sign"] == "appeared"
        gone = [name for name in frame.index if "Gelu" in name]
        assert list(frame.loc[gone, "sign"]) == ["vanished"]
        assert list(frame.index[:2]) == ["my_fused_gelu", *gone] or list(frame.index[:2]) == [*gone, "my_fused_gelu"]
        assert frame["pct"].iloc[:2].tolist() == [50.0, 50.0]
        assert "1 appeared" in words(screen.query_one("#compare-rows-line", PaneLine))

    drive(root, steps, first=base.id)


def test_several_are_picked_with_space_and_have_a_geomean(root: Path, make_run: MakeRun) -> None:
    make_run("x", layers=2)
    make_run("y", layers=3)
    base = make_run("z", layers=6)

    async def steps(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app, "space", "down", "space", "enter")
        assert screen.data is not None and screen.data.letters == ("a", "b", "c")
        summary = screen.data.summary.set_index("quantity")
        assert summary.loc["kernel time: geomean speed-up over a", "change"] == pytest.approx((3.0 * 2.0) ** 0.5)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)

    drive(root, steps, first=base.id)


def test_a_run_that_recorded_nothing_is_refused_with_its_reason(root: Path, make_run: MakeRun) -> None:
    make_run("broken", state="failed", windows=0, cause="out of memory")
    base = make_run("fine")

    async def steps(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await pilot.press("c", "enter")
        await pilot.pause()
        assert isinstance(app.screen, CompareScreen)
        assert "recorded nothing" in str(app.screen.query_one("#compare-error").render())
        app.screen.query_one(PickList).set_items([])
        await pilot.press("enter", "escape")
        await until(pilot, lambda: app.screen is app.main)

    drive(root, steps, first=base.id)


def test_a_run_that_cannot_be_read_is_one_line(root: Path, make_run: MakeRun) -> None:
    other = make_run("damaged")
    base = make_run("fine")
    for path in other.path.glob("windows/*/kernels.parquet"):
        path.write_bytes(b"not parquet")

    async def steps(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        await pilot.press("c", "enter")
        await until(
            pilot,
            lambda: (
                isinstance(app.screen, ComparisonScreen)
                and "Not compared" in words(app.screen.query_one("#compare-line", PaneLine))
            ),
        )
        await pilot.press("b", "slash", "escape")
        await until(pilot, lambda: app.screen is app.main)

    drive(root, steps, first=base.id)


def test_plain_characters_only(root: Path, make_run: MakeRun) -> None:
    make_run("one", layers=2)
    base = make_run("two")

    async def steps(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app, "enter")
        for widget in (screen.query_one(PairedBars), screen.query_one("#compare-line", PaneLine)):
            assert words(widget).isascii()

    drive(root, steps, first=base.id, ascii=True)


def test_runs_of_one_launch_that_differ_in_batch_are_a_sweep(root: Path, make_run: MakeRun) -> None:
    import msgspec

    small, large = make_run("gpt2", layers=2), make_run("gpt2", layers=6)
    path = large.path / "spec.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(large.spec(), batch=64)))

    async def steps(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        screen = await opened(pilot, app, "enter")
        assert screen.data is not None and screen.data.sweep is not None
        assert screen.data.sweep["batch"].tolist() == [8, 64]
        shown = words(screen.query_one("#compare-sweep"))
        assert "b8 s256" in shown and "b64 s256" in shown and "launch-bound" in shown
        assert "kernels" in words(screen.query_one("#compare-line", PaneLine))

    drive(root, steps, size=(80, 24), first=small.id)
