"""A small run made by the test itself, and the command run in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from profilers.runs.folder import RunFolder, runs_root
from profilers.runs.spec import Spec
from profilers.runs.status import Status
from profilers.tables import Origin
from tests.cli.support import Done, recording


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A finished run with two windows."""
    folder = RunFolder.create(runs_root(), Spec(name="gpt2", workload="gpt2", device="cuda:0", dtype="bf16", windows=2))
    for number in (1, 2):
        part = recording()
        folder.write_window(number, part.replace(origin=Origin("kineto", base_ns=number * 1_000_000_000)))
    folder.write_summary({"gemm_pct": 60.0, "windows": 2})
    folder.write_status(
        Status(
            state="finished",
            windows_done=2,
            windows_total=2,
            step_ms=1.25,
            step_ms_spread=0.01,
            created=1.0,
            started=2.0,
        )
    )
    return folder


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command in this process: ``cli("show", "last", "kernels")``."""
    from tui.cli import main

    def call(*words: str) -> Done:
        capfd.readouterr()
        code = main(list(words))
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return call
