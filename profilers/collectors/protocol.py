"""What a worker and its supervisor say to each other: files in the run folder, each written whole.

=================  ==============  ==================================================================================
file               written by      holds
=================  ==============  ==================================================================================
spec.json          launcher        what is asked (:class:`profilers.collectors.spec.Spec`)
progress.json      worker          :class:`Progress`, replaced at every change
failure.json       worker          :class:`Failure`, once, when it ends with an error of its own
raw/NNNN.json      worker          a finished raw trace, renamed into place; the supervisor removes what it has read
fusion.json        worker          which operators each compiled kernel fuses (:mod:`profilers.analysis.fusion`)
counters.json      supervisor      how many kernels got hardware counters: the windows have been written anew
stop               anybody         asks the supervisor to stop this run
pause              anybody         while it is there, the worker rests between steps, and a queued run is not started; a
                                   rank's holds the number of the step that it rests after
worker.log         worker          everything that it or the user's code printed
=================  ==============  ==================================================================================
"""

from __future__ import annotations

from pathlib import Path

import msgspec

SPEC = "spec.json"
PROGRESS = "progress.json"
FAILURE = "failure.json"
RAW = "raw"
STOP = "stop"
PAUSE = "pause"
LOG = "worker.log"
FUSION = "fusion.json"
COUNTED = "counters.json"

NO_STEP = "no step was found"
"""How the note of a script begins whose windows are slices of time: it has no step to rest at."""


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far a worker is. Times in milliseconds, medians; a spread is half the interquartile range.

    ``step_ms``: steps timed without the profiler, device synchronised before and after each. ``between_step_ms``: the
    unprofiled steps between windows; ``window_step_ms``: the profiled ones: their ratio is what the profiler costs.
    ``windows_done`` counts windows recorded (raw), whether or not they have been read.
    """

    state: str = "starting"
    phase: str = ""
    windows_done: int = 0
    windows_total: int = 0
    eta_s: float | None = None
    step_ms: float | None = None
    step_ms_spread: float | None = None
    steps_timed: int = 0
    between_step_ms: float | None = None
    window_step_ms: float | None = None
    parameters: int | None = None
    items: int = 1
    item_name: str = "samples"
    peak_memory_bytes: int | None = None
    device_name: str = ""
    notes: tuple[str, ...] = ()


class Failure(msgspec.Struct, kw_only=True):
    """Why a worker gave up: one line for people, and the kind that tests and screens may rely on."""

    kind: str  # memory | dtype | device | workload | disk | usage | exit
    cause: str


def raw_name(number: int) -> str:
    """The file name of one raw window: ``0001.json`` for the first."""
    return f"{number:04d}.json"


def raw_windows(folder: Path) -> list[tuple[int, Path]]:
    """Finished raw traces in a run folder, oldest first: (number, path). One still being written is not among them."""
    found = []
    try:
        for path in (folder / RAW).iterdir():
            if path.suffix == ".json" and path.stem.isdigit():
                found.append((int(path.stem), path))
    except FileNotFoundError:
        return []
    return sorted(found)
