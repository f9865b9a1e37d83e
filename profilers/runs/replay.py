"""Playing a recording as if it were measured now: ``python -P -m profilers.runs.replay RUNFOLDER [SUPERVISOR-PID]``.

The worker of runs whose target is ``replay``. It reads the file, cuts it by the profiler's steps (by time where there
are none), and adds window after window at the pace at which they were recorded, ``speed`` times as fast. Screens and
commands see a run that grows; its spec, and a note, say that it is a replay.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from profilers.collectors import files, process, protocol
from profilers.collectors.failures import UsageError, explain
from profilers.collectors.protocol import Failure, Progress
from profilers.collectors.spec import Spec
from profilers.readers.errors import ReadError
from profilers.runs.folder import RunFolder, RunsError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from profilers.tables import Recording

MOST_WINDOWS = 200
"""A recording of more steps is cut into this many windows of several steps."""

SLICES = 20
"""Windows of equal length for a recording that has no steps."""

LONGEST_WAIT_S = 30.0
"""No window keeps people waiting longer than this, however long its gap was."""

_ENCODER = msgspec.json.Encoder()


def main(arguments: list[str] | None = None) -> int:
    """Play one recording. Exit code 1: ``failure.json`` says why not."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) not in (1, 2):
        print("usage: python -m profilers.runs.replay RUNFOLDER [SUPERVISOR-PID]", file=sys.stderr)
        return 2
    process.die_with_parent(int(arguments[1]) if len(arguments) == 2 else os.getppid())
    run = RunFolder(Path(arguments[0]))
    try:
        play(run, run.spec())
    except Exception as error:
        traceback.print_exc()
        told = isinstance(error, (ReadError, RunsError))
        failure = Failure(kind="usage", cause=str(error)) if told else explain(error)
        files.write_atomic(run.path / protocol.FAILURE, _ENCODER.encode(failure))
        return 1
    return 0


def play(run: RunFolder, spec: Spec) -> None:
    """Add the recording's windows to ``run`` in time. Raises ReadError, OSError."""
    from profilers.runs.opening import read_file, version
    from profilers.runs.reading import Totals

    if spec.speed <= 0:
        raise UsageError(f"a speed of {spec.speed:g} goes nowhere: give a number above 0")
    progress = Progress(state="starting", phase="reading the recording", notes=("a replay: nothing is measured now",))

    def say() -> None:
        files.write_atomic(run.path / protocol.PROGRESS, _ENCODER.encode(progress))

    def reading(share: float) -> None:
        progress.phase = f"reading the recording: {share * 100:.0f} %"
        say()

    say()
    recording = read_file(Path(spec.cwd or ".", spec.workload), reading)
    recording = recording.replace(origin=replace(recording.origin, kind="replay"))
    cuts = boundaries(recording)
    totals, made_with = Totals(), version()
    progress.state, progress.windows_total = "profiling", len(cuts) - 1
    progress.device_name = ", ".join(dict.fromkeys(device.name for device in recording.devices if device.name))
    steps = recording.steps["dur_ns"]
    if len(steps):
        progress.window_step_ms = float(steps.median()) / 1e6
    began, first = time.monotonic(), int(cuts[0])
    late = 0.0
    for number, window in enumerate(split(recording, cuts), 1):
        progress.phase = f"window {number} of {progress.windows_total}"
        due = began + late + (int(cuts[number]) - first) / 1e9 / spec.speed
        wait = due - time.monotonic()
        if wait > LONGEST_WAIT_S:
            late -= wait - LONGEST_WAIT_S
            wait = LONGEST_WAIT_S
        progress.eta_s = max(0.0, (int(cuts[-1]) - int(cuts[number])) / 1e9 / spec.speed + max(0.0, wait))
        say()
        time.sleep(max(0.0, wait))
        run.write_window(number, window)
        totals.add(window)
        run.write_summary({**totals.numbers(), "prepared_with": made_with})
        run.append_event("window", number=number, kernels=len(window.kernels))
        progress.windows_done = number
        say()
    progress.state, progress.eta_s = "done", 0.0
    say()


def boundaries(recording: Recording) -> npt.NDArray[np.int64]:
    """Where windows begin and end (n + 1 instants for n windows): at the beginnings of steps, else every n-th of the time."""
    import numpy as np

    starts, ends = [], []
    for frame in (recording.steps, recording.operators, recording.kernels, recording.runtime):
        if len(frame):
            start = frame["start_ns"].to_numpy()
            starts.append(int(start.min()))
            ends.append(int((start + frame["dur_ns"].to_numpy()).max()) + 1)
    if not starts:
        return np.array([0, 1], np.int64)
    low, high = min(starts), max(ends)
    begins = np.unique(recording.steps["start_ns"].to_numpy())
    if len(begins) < 2:
        return np.linspace(low, high, min(SLICES, max(1, high - low)) + 1).astype(np.int64)
    if len(begins) > MOST_WINDOWS:
        begins = begins[np.linspace(0, len(begins) - 1, MOST_WINDOWS).astype(int)]
    # What lies before the first step belongs to the first window, what lies after the last to the last.
    return np.concatenate([[low], begins[1:], [high]]).astype(np.int64)


def split(recording: Recording, cuts: npt.NDArray[np.int64]) -> Iterator[Recording]:
    """The recording in windows. An operator goes with the outermost operator around it, a kernel with its operator, a
    runtime call with its beginning; ids are counted anew in each window. Notes go with the first."""
    import numpy as np

    from profilers.runs.windows import EXTENTS

    operators, kernels = recording.operators, recording.kernels
    last = len(cuts) - 2

    def window_of(times: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        return np.clip(np.searchsorted(cuts, times, side="right") - 1, 0, last)

    ids, parents = operators["op_id"].to_numpy(), operators["parent_id"].to_numpy()
    row_of = _rows(ids)
    root = np.where(parents >= 0, row_of(parents), np.arange(len(ids)))
    while True:
        above = root[root]
        if np.array_equal(above, root):
            break
        root = above
    op_window = window_of(operators["start_ns"].to_numpy()[root]) if len(ids) else np.empty(0, np.int64)
    held = kernels["op_id"].to_numpy()
    kernel_window = window_of(kernels["start_ns"].to_numpy())
    known = held >= 0
    kernel_window[known] = op_window[row_of(held[known])]
    step_window = window_of(recording.steps["start_ns"].to_numpy())
    runtime_window = window_of(recording.runtime["start_ns"].to_numpy())

    for number in range(last + 1):
        rows = np.flatnonzero(op_window == number)
        fresh = np.full(len(ids) + 1, -1, np.int64)
        fresh[rows] = np.arange(len(rows))

        def renamed(values: pd.Series, fresh: npt.NDArray[np.int64] = fresh) -> npt.NDArray[np.int64]:
            old = values.to_numpy()
            return np.where(old >= 0, fresh[np.where(old >= 0, row_of(old), -1)], -1)

        part = operators.iloc[rows]
        part = part.assign(op_id=np.arange(len(rows)), parent_id=renamed(part["parent_id"]))
        mine = kernels.iloc[np.flatnonzero(kernel_window == number)]
        mine = mine.assign(op_id=renamed(mine["op_id"]))
        start, end = int(cuts[number]), int(cuts[number + 1])
        base = recording.origin.base_ns
        extent = [[start, end, -1 if base is None else base + start]]
        yield recording.replace(
            # Pieces of one recording abut: the pause before the next step is part of it.
            origin=replace(
                recording.origin, extra={**recording.origin.extra, EXTENTS: msgspec.json.encode(extent).decode()}
            ),
            operators=part.reset_index(drop=True),
            kernels=mine.reset_index(drop=True),
            steps=recording.steps.iloc[np.flatnonzero(step_window == number)].reset_index(drop=True),
            runtime=recording.runtime.iloc[np.flatnonzero(runtime_window == number)].reset_index(drop=True),
            notes=recording.notes if number == 0 else (),
        )


def _rows(ids: npt.NDArray[np.int64]) -> Any:
    """From operator ids to rows. Ids are 0.. in every recording that our readers make; others are looked up."""
    import numpy as np

    if np.array_equal(ids, np.arange(len(ids))):
        return lambda wanted: np.asarray(wanted, np.int64)
    order = np.argsort(ids, kind="stable")
    return lambda wanted: order[np.clip(np.searchsorted(ids[order], wanted), 0, len(ids) - 1)]


if __name__ == "__main__":
    sys.exit(main())
