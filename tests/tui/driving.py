"""The application headless, for tests that press keys and look: they wait for what they expect, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tui.app import KernelscopeApp
from tui.widgets.line_table import LineTable

Drive = Callable[[Pilot[Any], KernelscopeApp], Awaitable[None]]
SIZES = [(80, 24), (120, 34), (200, 60)]


def drive(root: Path, steps: Drive, *, size: tuple[int, int] = (120, 34), **options: Any) -> KernelscopeApp:
    """Run the application headless, wait until it has seen the runs, and let ``steps`` use it."""
    app = KernelscopeApp(root=root, **options)

    async def main() -> None:
        async with app.run_test(size=size) as pilot:
            await settle(pilot, app)
            await steps(pilot, app)

    asyncio.run(main())
    return app


async def settle(pilot: Pilot[Any], app: KernelscopeApp, timeout: float = 30.0) -> None:
    """Wait for the watcher's word on the selected run and its tables; never for a fixed time."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        await pilot.pause()
        snapshot = app.main.snapshot
        if not snapshot.root:
            await asyncio.sleep(0.02)
            continue
        view = app.view
        if not snapshot.runs or (
            view is not None
            and not view.loading
            and (not view.windows or all(q in view.tables or q in view.problems for q in app.main.wanted()))
        ):
            await pilot.pause()
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"the screen did not settle: {app.main.snapshot}")


async def until(pilot: Pilot[Any], condition: Callable[[], object], timeout: float = 20.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)
        await pilot.pause()


def lines_of(widget: Any) -> list[str]:
    """What a line widget has drawn."""
    return ["".join(segment.text for segment in line) for line in widget.build(widget.size.width)]


def drawn(table: LineTable) -> list[str]:
    return [table.render_line(y).text.rstrip() for y in range(table.size.height)]
