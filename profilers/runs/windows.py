"""Recorded windows on disk, and joining several of them to one recording.

A window is a folder ``windows/NNNN`` with one Parquet file a table and ``window.json`` for the rest. It is written
under another name and renamed, so a window that can be seen is whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profilers import tables
from profilers.tables import KERNELS, NONE, OPERATORS, RUNTIME, STEPS, Device, Note, Origin, Recording

WINDOWS = "windows"
_TABLES = (OPERATORS, KERNELS, STEPS, RUNTIME)
_JSON = "window.json"


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
    """Several windows, in order of time, as one recording.

    Operators, steps and correlations keep their numbers where those already go on from window to window, and are moved
    up where they start anew, so that each stays unique. All times are put on the clock of the first window by the
    origins' ``base_ns``; without one they stay as they are and a note says so. ``origin.extra['windows_ns']`` lists
    each window's first and last instant (JSON, pairs on the common clock): between two windows nothing was recorded,
    and that is not idle time. Joining a joined recording with one more window gives the same as joining all at once.
    """
    if not recordings:
        return Recording(OPERATORS.empty(), KERNELS.empty(), STEPS.empty(), RUNTIME.empty())
    first = recordings[0]
    base = first.origin.base_ns
    next_op, next_step, next_correlation = 0, 0, 0
    parts: dict[str, list[pd.DataFrame]] = {schema.name: [] for schema in _TABLES}
    spans: list[list[int]] = []
    devices: dict[str, Device] = {}
    notes: list[Note] = []
    clockless = 0
    for recording in recordings:
        shift = 0
        if base is not None and recording.origin.base_ns is not None:
            shift = recording.origin.base_ns - base
        elif recording is not first:
            clockless += 1
        op_by = next_op
        step_by = _move(next_step, recording.steps["step"], recording.operators["step"], recording.kernels["step"])
        corr_by = _move(next_correlation, recording.runtime["correlation"], recording.kernels["correlation"])
        moved = {
            "operators": _moved(
                recording.operators, {"start_ns": shift}, {"op_id": op_by, "parent_id": op_by, "step": step_by}
            ),
            "kernels": _moved(
                recording.kernels,
                {"start_ns": shift},
                {"op_id": op_by, "step": step_by, "correlation": corr_by, "launch_ns": shift},
            ),
            "steps": _moved(recording.steps, {"start_ns": shift}, {"step": step_by}),
            "runtime": _moved(recording.runtime, {"start_ns": shift}, {"correlation": corr_by}),
        }
        for name, frame in moved.items():
            parts[name].append(frame)
        next_op = max(next_op, _top(moved["operators"]["op_id"]) + 1)
        next_step = max(next_step, *(_top(moved[name]["step"]) + 1 for name in ("operators", "kernels", "steps")))
        next_correlation = max(
            next_correlation, *(_top(moved[name]["correlation"]) + 1 for name in ("runtime", "kernels"))
        )
        held = recording.origin.extra.get("windows_ns")
        if held:
            spans += [[start + shift, end + shift] for start, end in msgspec.json.decode(held, type=list[list[int]])]
        else:
            spans += _span(moved)
        devices |= {device.id: device for device in recording.devices if device.id not in devices}
        notes += recording.notes
    if clockless:
        text = "windows without a common clock: their times each begin at their own origin"
        notes.append(Note("window_clock", text, clockless))
    origin = Origin(
        kind=first.origin.kind,
        path=first.origin.path,
        tool=first.origin.tool,
        rank=first.origin.rank,
        world_size=first.origin.world_size,
        base_ns=base,
        extra={**first.origin.extra, "windows_ns": msgspec.json.encode(spans).decode()},
    )
    frames = {schema.name: tables.concat(parts[schema.name], schema) for schema in _TABLES}
    return Recording(**frames, devices=tuple(devices.values()), origin=origin, notes=tables.merge_notes(notes))


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


def _span(frames: Mapping[str, pd.DataFrame]) -> list[list[int]]:
    starts, ends = [], []
    for name in ("steps", "operators", "kernels"):
        frame = frames[name]
        if len(frame):
            start = frame["start_ns"].to_numpy()
            starts.append(int(start.min()))
            ends.append(int((start + frame["dur_ns"].to_numpy()).max()))
    return [[min(starts), max(ends)]] if starts else []
