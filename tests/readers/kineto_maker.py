"""Builds small Chrome traces, event by event, in the shapes that the profiler has had over the years."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from profilers.readers import kineto
from profilers.tables import SCHEMAS, Recording

PID, TID = 4242, 4242


def op(
    name: str, ts: Any, dur: Any, tid: Any = TID, pid: Any = PID, cat: str = "cpu_op", **args: Any
) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(
    name: str, ts: Any, dur: Any, correlation: Any, tid: Any = TID, pid: Any = PID, cat: str = "cuda_runtime"
) -> Any:
    return op(name, ts, dur, tid, pid, cat, correlation=correlation, cbid=211)


def launch(ts: Any, correlation: Any, dur: Any = 3, tid: Any = TID, pid: Any = PID) -> dict[str, Any]:
    return call("cudaLaunchKernel", ts, dur, correlation, tid, pid)


def kernel(
    name: str, ts: Any, dur: Any, correlation: Any, device: Any = 0, stream: Any = 7, cat: str = "kernel", **args: Any
) -> dict[str, Any]:
    args = {"device": device, "stream": stream, "correlation": correlation, "External id": correlation, **args}
    return op(name, ts, dur, stream, device, cat, **args)


def note(name: str, ts: Any, dur: Any, tid: Any = TID, pid: Any = PID, cat: str = "user_annotation") -> dict[str, Any]:
    return op(name, ts, dur, tid, pid, cat)


def document(events: list[Any], **more: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, **more, "traceEvents": events}).encode()


def read(events: list[Any], **more: Any) -> Recording:
    return read_text(document(events, **more))


def read_text(text: bytes) -> Recording:
    recording = kineto.read_bytes(text, "made.json")
    check(recording)
    return recording


def read_file(path: Path) -> Recording:
    recording = kineto.read(path)
    check(recording)
    return recording


def check(recording: Recording) -> None:
    """What holds of every recording, whatever was in the file."""
    for name in ("operators", "kernels", "steps", "runtime"):
        frame = getattr(recording, name)
        assert SCHEMAS[name].problems(frame) == []
        assert frame.index.equals(frame.reset_index(drop=True).index)
    ops, kernels = recording.operators, recording.kernels
    assert ops["op_id"].tolist() == list(range(len(ops)))
    assert ops["start_ns"].is_monotonic_increasing
    assert kernels["start_ns"].is_monotonic_increasing
    assert (ops["parent_id"] < ops["op_id"]).all()
    assert (kernels["op_id"] < len(ops)).all()
    assert ((kernels["op_id"] < 0) | (kernels["launch_ns"] >= 0)).all()
    inner = ops[ops["parent_id"] >= 0]
    outer = ops.iloc[inner["parent_id"]]
    assert (outer["thread_id"].to_numpy() == inner["thread_id"].to_numpy()).all()
    assert (outer["depth"].to_numpy() + 1 == inner["depth"].to_numpy()).all()
    assert (inner["start_ns"].to_numpy() >= outer["start_ns"].to_numpy()).all()
    assert (ops["self_ns"] >= 0).all()
    # Device time handed up the tree arrives whole at the top.
    good = kernels[(kernels["flag"] == "") & (kernels["op_id"] >= 0)]
    assert ops.loc[ops["parent_id"] < 0, "device_ns"].sum() == good["dur_ns"].sum()
    for one in recording.notes:
        assert "\n" not in one.text


def codes(recording: Recording) -> dict[str, int]:
    """How many of what was noted."""
    return {one.code: one.count for one in recording.notes}


def busy_ns(start: Any, dur: Any) -> int:
    """The length of the union of intervals."""
    order = np.argsort(np.asarray(start), kind="stable")
    start, end = np.asarray(start)[order], (np.asarray(start) + np.asarray(dur))[order]
    reach = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reach[:-1]])
    return int(np.maximum(reach - np.maximum(start, before), 0).sum())
