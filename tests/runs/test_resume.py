"""Resuming says what it did: a run that was paused goes on, one that was not is told, one that has ended is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from profilers.collectors import protocol
from profilers.runs.folder import RunFolder, RunsError
from profilers.runs.launch import pause, resume
from profilers.runs.spec import Spec
from profilers.runs.status import Status


def test_what_resuming_says(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, Spec(name="a", workload="a"))
    assert not resume(run)
    pause(run)
    assert resume(run)
    assert not (run.path / protocol.PAUSE).exists()
    run.write_status(Status(state="finished"))
    with pytest.raises(RunsError, match="already ended"):
        resume(run)
