"""Nsight Systems exports made by the tests: databases of a few rows, and what is asked of every recording."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from profilers.tables import SCHEMAS, Recording

PID_A, PID_B = (1 << 48) | (111 << 24), (1 << 48) | (112 << 24)
SECRET = "HF_TOKEN=hf_do_not_show"

Rows = list[dict[str, Any]]


def make(path: Path, **tables: Rows) -> Path:
    """A database whose tables have the columns of their first row."""
    with sqlite3.connect(path) as database:
        for name, rows in tables.items():
            columns = list(rows[0])
            database.execute(f'CREATE TABLE "{name}" ({", ".join(f"{chr(34)}{c}{chr(34)}" for c in columns)})')
            marks = ", ".join("?" * len(columns))
            database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [tuple(row.values()) for row in rows])
    database.close()
    return path


def kernel(start: int, end: int, correlation: int, pid: int = PID_A, name: int = 1, **more: Any) -> dict[str, Any]:
    row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": correlation}
    row |= {"globalPid": pid, "demangledName": name, "shortName": 2}
    row |= {"gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
    return row | more


def call(start: int, end: int, correlation: int, pid: int = PID_A, name: int = 10) -> dict[str, Any]:
    return {"start": start, "end": end, "globalTid": pid + 5, "correlationId": correlation, "nameId": name}


def span(start: int, end: int | None, text: str, pid: int = PID_A, kind: int = 59) -> dict[str, Any]:
    return {"start": start, "end": end, "eventType": kind, "text": text, "textId": None, "globalTid": pid + 5}


STRINGS: Rows = [
    {"id": 1, "value": "void gemm<float>(float*)"},
    {"id": 2, "value": "gemm"},
    {"id": 10, "value": "cudaLaunchKernel_v7000"},
    {"id": 11, "value": "cudaGraphLaunch_v10000"},
    {"id": 99, "value": SECRET},
]


def obeys(recording: Recording) -> None:
    for name in ("operators", "kernels", "steps", "runtime"):
        assert SCHEMAS[name].problems(getattr(recording, name)) == []


def codes(recording: Recording) -> dict[str, int]:
    return {note.code: note.count for note in recording.notes}


def everything(recording: Recording) -> str:
    frames = (recording.operators, recording.kernels, recording.steps, recording.runtime)
    parts = [frame.to_csv() for frame in frames]
    parts += [
        " ".join(str(c) for c in frame[name].cat.categories)
        for frame in frames
        for name in frame.select_dtypes("category")
    ]
    return "\n".join([*parts, repr(recording.devices), repr(recording.origin), repr(recording.notes)])
