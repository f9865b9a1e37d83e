"""The Next tab and ``kernelscope advise`` say what the table says."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profilers.analysis.advise import advice
from profilers.analysis.options import Options
from profilers.runs.folder import RunFolder
from tui.advice_text import NOTHING, blocks, folded
from tui.app import KernelscopeApp
from tui.panes.advice import AdvicePane, Findings


def launch_bound(make_run: Callable[..., RunFolder], recording: Callable[..., Any]) -> RunFolder:
    """A run whose kernels take an eighth of the time, but are launched as slowly."""
    made, run = recording(), make_run(windows=0)
    kernels = made.kernels.assign(dur_ns=made.kernels["dur_ns"] // 8, start_ns=made.kernels["launch_ns"] + 4_000)
    run.write_window(1, made.replace(kernels=kernels))
    run.write_summary({"gemm_pct": 58.0, "windows": 1})
    return run


@pytest.mark.parametrize("size", [(80, 24), (120, 34)])
def test_the_tab(
    root: Path, make_run: Callable[..., RunFolder], recording: Callable[..., Any], size: tuple[int, int]
) -> None:
    made = launch_bound(make_run, recording)
    wanted = advice(made.recording(), Options())
    assert len(wanted)

    async def main() -> None:
        app = KernelscopeApp(root=root)
        async with app.run_test(size=size) as pilot:
            end = time.monotonic() + 30
            while app.view is None:
                await asyncio.sleep(0.02)
                await pilot.pause()
                assert time.monotonic() < end
            app.main.action_tab("advice")
            findings = app.main.query_one(Findings)
            while findings.frame is None:
                await asyncio.sleep(0.02)
                await pilot.pause()
                assert time.monotonic() < end
            exported = app.main.query_one(AdvicePane).exported()
            assert exported is not None and exported[0].name == "advice"
            assert list(exported[1]["finding"]) == list(wanted["finding"])
            text = "\n".join("".join(s.text for s in line) for line in findings.build(findings.size.width))
            for row in wanted.itertuples():
                assert str(row.finding)[:20] in text and str(row.evidence).split()[0] in text
            assert f"wall {wanted['wall_speedup'].iloc[0]:.2f}" in text

    asyncio.run(main())


def test_the_command(root: Path, make_run: Callable[..., RunFolder], recording: Callable[..., Any]) -> None:
    made = launch_bound(make_run, recording)

    def cli(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-P", "-m", "tui.cli", "--runs", str(root), "advise", made.id, *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)

    wanted = advice(made.recording(), Options())
    shown = cli("--ascii")
    assert shown.stdout.isascii() and all(str(f) in shown.stdout for f in wanted["finding"])
    assert "do not add up" in shown.stderr
    records = json.loads(cli("--format", "json").stdout)
    assert [r["finding"] for r in records] == list(wanted["finding"])
    assert records[0]["wall_speedup"] == pytest.approx(wanted["wall_speedup"].iloc[0])


def test_text_of_strangers_is_folded_and_visible() -> None:
    import pandas as pd

    frame = pd.DataFrame(
        [("found \x1b[31m", "names: a\nb " + "word " * 40, "do", 1.5, float("nan"), "x")],
        columns=["finding", "evidence", "do", "device_speedup", "wall_speedup", "of"],
    )
    (block,) = blocks(frame)
    assert "\x1b" not in block.title and "device 1.50" in block.buys
    assert all(len(text) <= 60 and "\n" not in text for _, text in folded(block, 73))
    assert NOTHING
