"""Recorded windows on disk, and joining several of them to one recording.

A window is a folder ``windows/NNNN`` with one Parquet file a table and ``window.json`` for the rest. It is written
under another name and renamed, so a window that can be seen is whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profilers import tables
from profilers.analysis.fusion import FUSION, merge
from profilers.tables import KERNELS, NONE, OPERATORS, RUNTIME, STEPS, Device, Note, Origin, Recording

WINDOWS = "windows"
_TABLES = (OPERATORS, KERNELS, STEPS, RUNTIME)
_JSON = "window.json"

EXTENTS = "windows_ns"
"""Key of ``Origin.extra``: where each window lies (see :func:`join`)."""


class WindowError(Exception):
    """A window cannot be read. The message is one line."""


class _Window(msgspec.Struct, kw_only=True):
    devices: list[dict[str, Any]]
    origin: dict[str, Any]
    notes: list[dict[str, Any]]


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Window)


def window_ids(folder: Path) -> list[int]:
    """The numbers of the windows in a run folder, in order."""
    try:
        with os.scandir(folder / WINDOWS) as entries:
            return sorted(int(entry.name) for entry in entries if entry.name.isdigit())
    except FileNotFoundError:
        return []


def window_path(folder: Path, number: int) -> Path:
    """Where a window lies."""
    return folder / WINDOWS / f"{number:04d}"


def write(folder: Path, number: int, recording: Recording) -> None:
    """Write a window; one of the same number is replaced. Raises OSError (a full disk leaves no half window behind)."""
    target = window_path(folder, number)
    aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        for schema in _TABLES:
            frame = schema.conform(getattr(recording, schema.name))
            table = pa.Table.from_pandas(frame, preserve_index=False)
            pq.write_table(table, aside / f"{schema.name}.parquet", compression="zstd", compression_level=1)
        window = _Window(
            devices=[_plain(device) for device in recording.devices],
            origin=_plain(recording.origin),
            notes=[_plain(note) for note in recording.notes],
        )
        (aside / _JSON).write_bytes(_ENCODER.encode(window))
        if target.exists():
            shutil.rmtree(target)
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _plain(value: Device | Origin | Note) -> dict[str, Any]:
    return {
        name: dict(held) if isinstance(held := getattr(value, name), Mapping) else held
        for name in value.__dataclass_fields__
    }


def read(folder: Path, number: int) -> Recording:
    """A window as it was written. Raises :class:`WindowError` when it is not there or damaged."""
    path = window_path(folder, number)
    try:
        window = _DECODER.decode((path / _JSON).read_bytes())
        frames = {schema.name: _read_table(path / f"{schema.name}.parquet", schema) for schema in _TABLES}
        return Recording(
            **frames,
            devices=tuple(Device(**device) for device in window.devices),
            origin=Origin(**window.origin),
            notes=tuple(Note(**note) for note in window.notes),
        )
    except FileNotFoundError as error:
        raise WindowError(
            f"window {number} of {folder.name} is not there ({Path(error.filename or path).name})"
        ) from None
    except (OSError, pa.ArrowException, msgspec.MsgspecError, TypeError, ValueError) as error:
        line = " ".join(str(error).split())[:200]
        raise WindowError(f"window {number} of {folder.name} is damaged: {line}") from None


def _read_table(path: Path, schema: tables.Schema) -> pd.DataFrame:
    # memory_map is left off: a deleted run must not take a reader down with SIGBUS.
    return schema.conform(pq.read_table(path, memory_map=False, use_threads=False).to_pandas())


def join(recordings: Sequence[Recording]) -> Recording:
    """Several windows, in order of time, as one recording, laid end to end.

    Between two windows nothing was recorded, and that must not look like idle time: each window begins where the one
    before ended. ``origin.extra['windows_ns']`` holds a JSON list of ``[start, end, epoch]`` a window: where it lies in
    the joined recording, and its real beginning in nanoseconds since the epoch (-1 where the source has no clock). A
    window that already carries such a list (a piece of a longer recording) keeps the extent that is written there.

    Operators, steps and correlations keep their numbers where those already go on from window to window, and are moved
    up where they start anew, so that each stays unique. Joining a joined recording with one more window gives the same
    as joining all at once.
    """
    if not recordings:
        return Recording(OPERATORS.empty(), KERNELS.empty(), STEPS.empty(), RUNTIME.empty())
    first = recordings[0]
    next_op, next_step, next_correlation = 0, 0, 0
    parts: dict[str, list[pd.DataFrame]] = {schema.name: [] for schema in _TABLES}
    spans: list[list[int]] = []
    devices: dict[str, Device] = {}
    notes: list[Note] = []
    for recording in recordings:
        held = extents(recording)
        shift = spans[-1][1] - held[0][0] if spans and held else 0
        op_by = next_op
        step_by = _move(next_step, recording.steps["step"], recording.operators["step"], recording.kernels["step"])
        corr_by = _move(next_correlation, recording.runtime["correlation"], recording.kernels["correlation"])
        moved = {
            "operators": _moved(
                recording.operators, {"start_ns": shift}, {"op_id": op_by, "parent_id": op_by, "step": step_by}
            ),
            "kernels": _moved(
                recording.kernels, {"start_ns": shift}, {"op_id": op_by, "step": step_by, "correlation": corr_by}
            ),
            "steps": _moved(recording.steps, {"start_ns": shift}, {"step": step_by}),
            "runtime": _moved(recording.runtime, {"start_ns": shift}, {"correlation": corr_by}),
        }
        if shift:
            # A launch may lie before its recording's origin; only -1 means that there was none.
            launch = recording.kernels["launch_ns"].to_numpy()
            moved["kernels"] = moved["kernels"].assign(launch_ns=np.where(launch != NONE, launch + shift, NONE))
        for name, frame in moved.items():
            parts[name].append(frame)
        next_op = max(next_op, _top(moved["operators"]["op_id"]) + 1)
        next_step = max(next_step, *(_top(moved[name]["step"]) + 1 for name in ("operators", "kernels", "steps")))
        next_correlation = max(
            next_correlation, *(_top(moved[name]["correlation"]) + 1 for name in ("runtime", "kernels"))
        )
        spans += [[start + shift, end + shift, epoch] for start, end, epoch in held]
        devices |= {device.id: device for device in recording.devices if device.id not in devices}
        notes += recording.notes
    extra = {**first.origin.extra, EXTENTS: msgspec.json.encode(spans).decode()}
    # Kernels may be compiled between two windows.
    if fused := merge([recording.origin.extra.get(FUSION, "") for recording in recordings]):
        extra[FUSION] = fused
    origin = replace(first.origin, extra=extra)
    frames = {schema.name: tables.concat(parts[schema.name], schema) for schema in _TABLES}
    return Recording(**frames, devices=tuple(devices.values()), origin=origin, notes=tables.merge_notes(notes))


def extents(recording: Recording) -> list[list[int]]:
    """``[start, end, epoch]`` of each window in a recording: as written there, else first to last instant of it all."""
    written = recording.origin.extra.get(EXTENTS)
    if written:
        return msgspec.json.decode(written, type=list[list[int]])
    starts, ends = [], []
    for frame in (recording.steps, recording.operators, recording.kernels):
        if len(frame):
            start = frame["start_ns"].to_numpy()
            starts.append(int(start.min()))
            ends.append(int((start + frame["dur_ns"].to_numpy()).max()))
    if not starts:
        return []
    base = recording.origin.base_ns
    return [[min(starts), max(ends), NONE if base is None else base + min(starts)]]


def _top(values: pd.Series) -> int:
    return int(values.max()) if len(values) else NONE


def _move(start: int, *columns: pd.Series) -> int:
    """By how much to move ids so that the smallest lies at or above ``start``; 0 where they already do."""
    low = [int(known.min()) for column in columns if len(known := column[column >= 0])]
    return max(0, start - min(low)) if low else 0


def _moved(frame: pd.DataFrame, always: dict[str, int], known: dict[str, int]) -> pd.DataFrame:
    """The frame with ``always`` added to its columns, and ``known`` where the column is not negative (-1: none)."""
    data: dict[str, Any] = {}
    for name, by in always.items():
        if by:
            data[name] = frame[name].to_numpy() + by
    for name, by in known.items():
        if by:
            values = frame[name].to_numpy()
            data[name] = np.where(values >= 0, values + by, values).astype(values.dtype)
    return frame.assign(**data) if data else frame
