"""A few pictures of the whole screen, stored as SVG: what a change does to the looks is seen in review.

``KERNELSCOPE_SNAPSHOTS=write`` stores them anew; look at them before you commit them. Only text and colours are compared:
identifiers inside the file depend on Rich's version.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.driving import drive, settle
from tui.app import KernelscopeApp
from tui.export.picture import screen_svg

FOLDER = Path(__file__).parent / "snapshots"

CASES = [
    ("kernels-80x24", (80, 24), "kernels", {}),
    ("kernels-120x34", (120, 34), "kernels", {}),
    ("states-200x60", (200, 60), "states", {}),
    ("whatif-120x34-light", (120, 34), "whatif", {"theme": "kernelscope-light"}),
    ("kernels-80x24-ascii", (80, 24), "kernels", {"ascii": True}),
]


def plain(svg: str) -> str:
    """The picture without what depends on the versions of libraries: ids and lengths, not texts and colours."""
    svg = re.sub(r"terminal-[0-9]+", "terminal", svg)
    return re.sub(r'\s(textLength|clip-path|x|y|width|height|viewBox|d|transform)="[^"]*"', "", svg)


@pytest.mark.parametrize(("name", "size", "tab", "options"), CASES, ids=[case[0] for case in CASES])
def test_looks(
    root: Path,
    make_run: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    size: tuple[int, int],
    tab: str,
    options: dict[str, Any],
) -> None:
    monkeypatch.setattr("tui.machine.machine_line", lambda: "gpu01 · H100 80GB HBM3")
    make_run("gpt2")
    make_run("bert", state="failed", windows=1, cause="CUDA out of memory: 14.0 GB asked for, 3.1 GB free")
    make_run("vit", samples=20)
    stored = FOLDER / f"{name}.svg"
    seen: list[str] = []

    async def look(pilot: Pilot[Any], app: KernelscopeApp) -> None:
        app.main.action_tab(tab)
        await settle(pilot, app)
        while not app.machine:
            await pilot.pause(0.02)
        await pilot.pause(0.1)
        seen.append(screen_svg(app.main))

    drive(root, look, size=size, **options)
    if os.environ.get("KERNELSCOPE_SNAPSHOTS") == "write":
        FOLDER.mkdir(exist_ok=True)
        stored.write_text(seen[0])
    assert plain(seen[0]) == plain(stored.read_text()), (
        f"{name} looks different: write it anew, look at it, and commit it"
    )
