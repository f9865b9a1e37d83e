"""Several recordings as one: the ranks of a job, and counters measured apart from them.

Ids (operators, threads, launches, steps) are shifted so that none collides, and devices are named ``rank3/cuda:0``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from profilers.readers.errors import ReadError
from profilers.readers.progress import Progress
from profilers.readers.single import read_file
from profilers.readers.sniff import Kind, sniff
from profilers.tables import (
    KERNELS,
    OPERATORS,
    RUNTIME,
    STEPS,
    Device,
    Note,
    Origin,
    Recording,
    concat,
    merge_notes,
)

_RANK = re.compile(r"(?<![a-z])(?:rank|worker|proc|gpu)[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_EPOCH_NS = 10**18
"""A clock base after 2001 is time of day; a smaller one is some clock of one machine."""


def read_folder(folder: Path, *, progress: Progress | None = None) -> Recording:
    """The recordings directly in a folder as one; other files are passed over and counted in a note."""
    kinds: dict[Path, Kind] = {}
    passed: list[str] = []
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        below = sum(path.is_dir() for path in folder.iterdir())
    except OSError as error:
        raise ReadError(f"{folder}: {error.strerror or error}") from error
    for path in paths:
        try:
            kinds[path] = sniff(path)
        except ReadError:
            passed.append(path.name)
    _drop_twins(kinds, passed)
    if not kinds:
        also = f"; recordings in its {below} subfolders are not looked for" if below else ""
        raise ReadError(f"{folder}: no recording among the {len(paths)} files in this folder{also}")
    notes = []
    if passed:
        shown = ", ".join(passed[:3]) + (", ..." if len(passed) > 3 else "")
        notes.append(Note("passed_over", f"files in the folder that are no recording: {shown}", len(passed)))
    recording = _several(kinds, str(folder), progress)
    return recording.with_notes(*notes)


def read_several(paths: Sequence[Path], *, progress: Progress | None = None) -> Recording:
    """These files as one recording. Every one must be a recording."""
    if not paths:
        raise ReadError("no file was named")
    if len(set(map(str, paths))) < len(paths):
        raise ReadError("a file is named twice; name every recording once")
    kinds = {path: sniff(path) for path in paths}
    folders = [path for path, kind in kinds.items() if kind == "folder"]
    if folders:
        raise ReadError(f"{folders[0]}: a folder among files; name a folder alone, or the files in it")
    return _several(kinds, ", ".join(path.name for path in paths), progress)


def _drop_twins(kinds: dict[Path, Kind], passed: list[str]) -> None:
    """Of a report and its own export lying beside it, the export is enough."""
    for report, export in (("nsys-rep", "nsys"), ("ncu-rep", "ncu")):
        exports = {path.with_suffix("") for path, kind in kinds.items() if kind == export}
        for path in [path for path, kind in kinds.items() if kind == report and path.with_suffix("") in exports]:
            del kinds[path]
            passed.append(path.name)


def _several(kinds: dict[Path, Kind], name: str, progress: Progress | None) -> Recording:
    sizes = [max(path.stat().st_size, 1) for path in kinds]
    whole, before = sum(sizes), 0
    timelines: list[tuple[Path, Recording]] = []
    counters: list[tuple[Path, Recording]] = []
    for (path, kind), size in zip(kinds.items(), sizes, strict=True):
        recording = read_file(path, kind=kind, progress=_part(progress, before / whole, size / whole))
        (counters if recording.origin.kind == "ncu" else timelines).append((path, recording))
        before += size
    if timelines:
        found = timelines[0][1] if len(timelines) == 1 else merge(timelines, name)
    else:
        found = _one_after_another(counters, name)
        counters = []
    if counters:
        from profilers.readers.ncu_join import join_counters

        found, _, _ = join_counters(found, _one_after_another(counters, name))
    if progress is not None:
        progress(1.0)
    return found


def _part(progress: Progress | None, begin: float, share: float) -> Progress | None:
    return None if progress is None else lambda done: progress(min(1.0, begin + share * done))


def merge(recordings: Sequence[tuple[Path, Recording]], name: str) -> Recording:
    """Recordings of several ranks as one.

    A rank's number is what its recording says, else what its file's name says (``rank-3``, ``worker3``), else its place
    in the order given. Times are laid on one clock where all recordings know the time of day and overlap by it; else
    each begins at 0, and a note says so.
    """
    numbers, notes = _numbers(recordings)
    order = np.argsort(numbers, kind="stable").tolist()
    shifts, clock = _clock_shifts([recording for _, recording in recordings])
    notes.append(clock)
    frames: dict[str, list[pd.DataFrame]] = {"operators": [], "kernels": [], "steps": [], "runtime": []}
    devices: list[Device] = []
    next_op = next_thread = next_correlation = next_step = 0
    for place in order:
        recording, rank = recordings[place][1], numbers[place]
        moved = _moved(recording, rank, shifts[place], next_op, next_thread, next_correlation, next_step)
        for table, rows in frames.items():
            rows.append(getattr(moved, table))
        devices += moved.devices
        notes += [dataclasses.replace(note, text=f"rank {rank}: {note.text}") for note in recording.notes]
        next_op += len(moved.operators)
        next_thread = _beyond(next_thread, moved, "thread_id")
        next_correlation = _beyond(next_correlation, moved, "correlation")
        next_step = _beyond(next_step, moved, "step")
    first = recordings[order[0]][1].origin
    worlds = [recording.origin.world_size for _, recording in recordings if recording.origin.world_size]
    bases = [recording.origin.base_ns for _, recording in recordings if recording.origin.base_ns is not None]
    return Recording(
        operators=concat(frames["operators"], OPERATORS),
        kernels=concat(frames["kernels"], KERNELS),
        steps=concat(frames["steps"], STEPS),
        runtime=concat(frames["runtime"], RUNTIME),
        devices=tuple(devices),
        origin=Origin(
            kind=first.kind,
            path=name,
            tool=first.tool,
            world_size=max(worlds) if worlds else len(recordings),
            base_ns=min(bases) if clock.code == "ranks_aligned" else None,
            extra={"ranks": ",".join(str(number) for number in sorted(numbers))},
        ),
        notes=merge_notes(notes),
    )


def _numbers(recordings: Sequence[tuple[Path, Recording]]) -> tuple[list[int], list[Note]]:
    """The rank of each recording, all different."""
    told = [recording.origin.rank for _, recording in recordings]
    if None not in told and len(set(told)) == len(told):
        return [int(rank) for rank in told if rank is not None], []
    named = [_RANK.search(path.name) for path, _ in recordings]
    from_names = [int(match[1]) for match in named if match]
    if len(from_names) == len(recordings) and len(set(from_names)) == len(from_names):
        return from_names, [Note("ranks_by_name", "ranks are taken from the files' names")]
    text = "ranks are numbered in the order of the files: neither the recordings nor the names tell them apart"
    return list(range(len(recordings))), [Note("ranks_by_order", text)]


def _clock_shifts(recordings: list[Recording]) -> tuple[list[int], Note]:
    """What is added to each recording's times, and the note that says how they lie to each other."""
    bases = [recording.origin.base_ns for recording in recordings]
    apart = Note("ranks_not_aligned", "the ranks' clocks are not aligned: each rank begins at 0")
    if any(base is None or base < _EPOCH_NS for base in bases):
        return [0] * len(recordings), apart
    known = [int(base) for base in bases if base is not None]
    first = min(known)
    shifts = [base - first for base in known]
    ends = [shift + _length(recording) for shift, recording in zip(shifts, recordings, strict=True)]
    if max(shifts) >= min(ends):
        text = "the ranks were recorded at different times: each rank begins at 0"
        return [0] * len(recordings), Note("ranks_not_aligned", text)
    text = "ranks are aligned by the time of day of their own hosts, whose clocks may differ by milliseconds"
    return shifts, Note("ranks_aligned", text)


def _length(recording: Recording) -> int:
    """The last believed end in a recording."""
    ends = [0]
    for frame in (recording.operators, recording.runtime, recording.steps, recording.kernels):
        if len(frame):
            good = (frame["flag"] == "").to_numpy() if "flag" in frame else slice(None)
            last = (frame["start_ns"].to_numpy() + frame["dur_ns"].to_numpy())[good]
            ends.append(int(last.max(initial=0)))
    return max(ends)


def _moved(recording: Recording, rank: int, shift: int, op: int, thread: int, correlation: int, step: int) -> Recording:
    """One rank's recording with its times, ids and device names as they are in the whole."""
    add = {
        "start_ns": shift,
        "launch_ns": shift,
        "op_id": op,
        "parent_id": op,
        "thread_id": thread,
        "correlation": correlation,
        "step": step,
    }
    tables = {}
    for table in ("operators", "kernels", "steps", "runtime"):
        frame = getattr(recording, table)
        changed = {}
        for column in add.keys() & set(frame.columns):
            values = frame[column].to_numpy()
            # Times may be negative only where nothing is known; host times begin at 0.
            changed[column] = np.where(values >= 0, values + add[column], values).astype(values.dtype)
        tables[table] = frame.assign(**changed)
    kernels = tables["kernels"]
    cpu = (kernels["device"] == "cpu").to_numpy()
    kernels["stream"] = np.where(cpu & (kernels["stream"] >= 0), kernels["stream"] + thread, kernels["stream"])
    kernels["device"] = kernels["device"].cat.rename_categories(lambda text: f"rank{rank}/{text}" if text else text)
    devices = tuple(
        dataclasses.replace(device, id=f"rank{rank}/{device.id}", rank=rank) for device in recording.devices
    )
    return recording.replace(**tables, devices=devices)


def _beyond(least: int, recording: Recording, column: str) -> int:
    """A number above every one in this column of any table, and at least ``least``."""
    frames = (recording.operators, recording.kernels, recording.steps, recording.runtime)
    highest = [int(frame[column].max()) for frame in frames if column in frame and len(frame)]
    return max([least, *(value + 1 for value in highest)])


def _one_after_another(recordings: Sequence[tuple[Path, Recording]], name: str) -> Recording:
    """Pages of Nsight Compute as one: their kernels in the order of the files."""
    if len(recordings) == 1:
        return recordings[0][1]
    frames: list[pd.DataFrame] = []
    ends: dict[str, int] = {}
    for _, recording in recordings:
        kernels = recording.kernels.copy(deep=False)
        devices = kernels["device"].astype(object)
        kernels["start_ns"] = kernels["start_ns"] + devices.map(ends).fillna(0).astype(np.int64)
        last = (kernels["start_ns"] + kernels["dur_ns"]).groupby(devices).max()
        ends.update({str(device): int(end) for device, end in last.items()})
        frames.append(kernels)
    devices_by_id = {device.id: device for _, recording in reversed(recordings) for device in recording.devices}
    first = recordings[0][1]
    return first.replace(
        kernels=concat(frames, KERNELS),
        devices=tuple(devices_by_id[key] for key in sorted(devices_by_id)),
        origin=dataclasses.replace(first.origin, path=name),
        notes=merge_notes(note for _, recording in recordings for note in recording.notes),
    )
