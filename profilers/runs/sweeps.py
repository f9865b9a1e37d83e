"""Which runs belong to one sweep: started together or named together, and alike but for batch and sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profilers.analysis.sweep import Point
from profilers.collectors.spec import Spec
from profilers.runs.folder import RunFolder, RunsError, find_run, list_runs

if TYPE_CHECKING:
    from profilers.runs.opening import Opened

_FREE = {"name": "", "batch": 0, "seq": None, "launch": "", "device": "", "device_uuid": "", "windows": 0}
"""What may differ. Which of the like devices it ran on may: a launch spreads its runs over them."""


def alike(specs: Sequence[Spec]) -> bool:
    """Whether these are a sweep: two sizes or more of one workload, otherwise the same."""
    return len(specs) > 1 and len({_kind(spec) for spec in specs}) == 1 and _sweeps(specs)


def _kind(spec: Spec) -> bytes:
    device = spec.device.partition(":")[0]
    return device.encode() + b" " + msgspec.json.encode(msgspec.structs.replace(spec, **_FREE))


def _sweeps(specs: Sequence[Spec]) -> bool:
    measured = not any(spec.target in ("import", "replay") for spec in specs)
    return measured and len({(spec.batch, spec.seq) for spec in specs}) > 1


def groups(runs: Sequence[RunFolder]) -> list[list[RunFolder]]:
    """The sweeps among these runs: those that are alike, in the order in which they were found."""
    kinds: dict[bytes, list[RunFolder]] = {}
    for run in runs:
        kinds.setdefault(_kind(run.spec()), []).append(run)
    return [part for part in kinds.values() if _sweeps([run.spec() for run in part])]


def label(spec: Spec) -> str:
    """What a sweep is of."""
    words = (spec.workload, spec.mode, spec.dtype, spec.quant, spec.backend if spec.backend != "eager" else "")
    return " ".join(word for word in words if word)


def point_of(opened: Opened) -> Point | None:
    """A run as a point of a sweep; None for what is no run or has recorded nothing."""
    if opened.run is None or not len(opened.recording.kernels):
        return None
    spec, status = opened.run.spec(), opened.run.status()
    items = status.items if status.steps_timed else max(spec.batch, 1)
    step_us = status.step_ms * 1e3 if status.step_ms is not None else math.nan
    return Point(label(spec), spec.batch, spec.seq, items, step_us, opened.recording)


def points_of(opened: Sequence[Opened]) -> list[Point]:
    """The points of runs that are a sweep; none where they are not."""
    runs = [one.run for one in opened if one.run is not None]
    if len(runs) != len(opened) or len(runs) < 2 or not alike([run.spec() for run in runs]):
        return []
    found = [point_of(one) for one in opened]
    return [point for point in found if point is not None]


def runs_of_launch(root: Path, text: str) -> list[RunFolder]:
    """The runs with windows that were started together: ``text`` is the launch's id, or one of its runs.

    Raises :class:`RunsError` where there are none.
    """
    runs = [run for run in list_runs(root) if _launch(run) == text]
    if not runs:
        launch = _launch(find_run(root, text))
        runs = [run for run in list_runs(root) if launch and _launch(run) == launch]
    found = sorted((run for run in runs if run.window_ids()), key=lambda run: run.id)
    if len(found) < 2:
        raise RunsError(f"{text}: {len(found)} run of that launch has recorded windows; a sweep needs two or more")
    return found


def _launch(run: RunFolder) -> str:
    try:
        return run.spec().launch
    except RunsError:
        return ""
