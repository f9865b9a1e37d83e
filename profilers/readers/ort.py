"""ONNX Runtime: the JSON profile of a session (``SessionOptions.enable_profiling``) as a recording.

Every node that ran is an operator ``onnx::OP`` with the shapes of its inputs; every ``model_run`` is a step. A run on
the CPU has no device activities: a node's time is the processor's. Nodes on another provider are host time too (what it
took to launch them), and a note says so. ``input_values`` holds the shape of the first output, since ONNX Runtime does
not record attributes (stride, transposition): with it the operations follow. Times are whole microseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from profilers.readers.columns import text_column
from profilers.readers.errors import ReadError
from profilers.readers.nesting import nest
from profilers.readers.ort_fused import PREFIX, inside
from profilers.readers.progress import Progress
from profilers.tables import KERNELS, NONE, OPERATORS, RUNTIME, STEPS, Device, Note, Origin, Recording

_SUFFIX = "_kernel_time"
_CPU = "CPUExecutionProvider"
_RUN = "model_run"
_PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger", "MatMulIntegerToFloat",
                       "DynamicQuantizeMatMul", "GemmFastGelu"})  # fmt: skip
_INTEGER = frozenset({"MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"})
_DTYPES = {
    "float": "float", "double": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char", "bool": "bool",
    "uint32": "unsigned int", "uint64": "unsigned long",
}  # fmt: skip

Shapes = list[dict[str, list[int]]]


class _Args(msgspec.Struct, gc=False):
    op_name: str = ""
    provider: str = ""
    input_type_shape: Shapes = []
    output_type_shape: Shapes = []
    value: int = 0


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    cat: str = ""
    ph: str = ""
    ts: int = -1
    dur: int = -1
    tid: int = 0
    args: _Args = msgspec.field(default_factory=_Args)


_DECODER = msgspec.json.Decoder(list[_Event])


def read(path: str | Path, *, progress: Progress | None = None) -> Recording:
    """The recording in a profile of ONNX Runtime. Raises :class:`ReadError` where it is none or no node ran."""
    path = Path(path)
    return read_bytes(path.read_bytes(), str(path), progress=progress)


def read_bytes(data: bytes, name: str, *, progress: Progress | None = None) -> Recording:
    """The same from memory."""
    events, notes = _events(data, name)
    nodes = [e for e in events if e.cat == "Node" and e.name.endswith(_SUFFIX) and e.ph == "X"]
    whole = [event for event in nodes if event.ts >= 0 and event.dur >= 0]
    if len(whole) < len(nodes):
        notes.append(
            Note("incomplete_events", "nodes without a time or a length were left out", len(nodes) - len(whole))
        )
    if not whole:
        raise ReadError(f"{name}: no node ran in this ONNX Runtime profile; run the session before end_profiling()")
    runs = sorted((e for e in events if e.name == _RUN and e.ts >= 0 and e.dur >= 0), key=lambda e: e.ts)
    whole.sort(key=lambda event: event.ts)
    origin_us = min(whole[0].ts, runs[0].ts if runs else whole[0].ts)
    base = next((e.args.value for e in events if e.ph == "M" and e.args.value > 0), None)
    operators, packed = _operators(whole, runs, origin_us)
    if packed:
        text = "products by a weight that was packed ahead: its shape follows from input and output"
        notes.append(Note("packed_weights", text, packed))
    notes += _provider_notes(whole)
    if progress is not None:
        progress(1.0)
    return Recording(
        operators=operators,
        kernels=KERNELS.empty(),
        steps=_steps(runs, origin_us),
        runtime=RUNTIME.empty(),
        devices=(Device("cpu", "", "cpu"),),
        origin=Origin(
            kind="ort",
            path=name,
            tool="ONNX Runtime",
            base_ns=None if base is None else base + origin_us * 1000,
            extra={"events": str(len(events)), **_fused(operators)},
        ),
        notes=tuple(notes),
    )


def _events(data: bytes, name: str) -> tuple[list[_Event], list[Note]]:
    try:
        return _DECODER.decode(data), []
    except msgspec.MsgspecError as error:
        first = error
    # A session that is not closed leaves the list open: what is whole in it is read.
    cut = data.rstrip().rstrip(b",")
    for end in (cut, cut[: cut.rfind(b"},") + 1] if b"}," in cut else b""):
        try:
            found = _DECODER.decode(end + b"]")
        except msgspec.MsgspecError:
            continue
        return found, [Note("truncated", "the profile is cut off: what was whole of it was read")]
    raise ReadError(f"{name}: not a profile of ONNX Runtime that can be read: {' '.join(str(first).split())[:160]}")


def _operators(nodes: list[_Event], runs: list[_Event], origin_us: int) -> tuple[pd.DataFrame, int]:
    start = np.array([event.ts - origin_us for event in nodes], np.int64) * 1000
    dur = np.array([event.dur for event in nodes], np.int64) * 1000
    thread = np.array([event.tid for event in nodes], np.int64)
    parent, depth, own = nest(start, dur, thread)
    described: dict[tuple[str, str, str], tuple[str, str, str, bool]] = {}
    texts = []
    packed = 0
    for event in nodes:
        args = event.args
        key = (args.op_name, repr(args.input_type_shape), repr(args.output_type_shape))
        if key not in described:
            described[key] = _described(args)
        shapes, dtypes, values, followed = described[key]
        packed += followed
        texts.append((shapes, dtypes, values))
    frame = pd.DataFrame(
        {
            "op_id": np.arange(len(nodes), dtype=np.int64),
            "name": text_column([PREFIX + (event.args.op_name or "unknown") for event in nodes]),
            "start_ns": start,
            "dur_ns": dur,
            "self_ns": own,
            "thread_id": thread,
            "parent_id": parent,
            "depth": depth.astype(np.int32),
            "step": _step_of(start, runs, origin_us),
            "input_shapes": text_column([text[0] for text in texts]),
            "input_dtypes": text_column([text[1] for text in texts]),
            "input_values": text_column([text[2] for text in texts]),
        }
    )
    return OPERATORS.conform(frame), packed


def _described(args: _Args) -> tuple[str, str, str, bool]:
    """Shapes, types and first output of a node as JSON, and whether a packed weight's shape was inferred."""
    shapes: list[list[int]] = []
    dtypes: list[str] = []
    for one in args.input_type_shape:
        for dtype, shape in one.items():
            shapes.append(shape)
            dtypes.append(_DTYPES.get(dtype, dtype))
    out = next((shape for one in args.output_type_shape for shape in one.values()), [])
    matrices = sum(len(shape) > 1 for shape in shapes)
    followed = args.op_name in _PRODUCTS and matrices == 1 and bool(out)
    if followed:
        left = next(index for index, shape in enumerate(shapes) if len(shape) > 1)
        shapes.append([shapes[left][-1], out[-1]])
        dtypes.append("signed char" if args.op_name in _INTEGER else dtypes[left])
    encode = msgspec.json.encode
    return encode(shapes).decode(), encode(dtypes).decode(), encode([str(out)] if out else []).decode(), followed


def _step_of(start: Any, runs: list[_Event], origin_us: int) -> Any:
    if not runs:
        return np.full(len(start), NONE, np.int32)
    begins = np.array([event.ts - origin_us for event in runs], np.int64) * 1000
    ends = begins + np.array([event.dur for event in runs], np.int64) * 1000
    place = np.searchsorted(begins, start, side="right") - 1
    inside = (place >= 0) & (start <= ends[np.maximum(place, 0)])
    return np.where(inside, place, NONE).astype(np.int32)


def _steps(runs: list[_Event], origin_us: int) -> pd.DataFrame:
    return STEPS.conform(
        pd.DataFrame(
            {
                "step": np.arange(len(runs), dtype=np.int32),
                "start_ns": np.array([event.ts - origin_us for event in runs], np.int64) * 1000,
                "dur_ns": np.array([event.dur for event in runs], np.int64) * 1000,
                "thread_id": np.array([event.tid for event in runs], np.int64),
            }
        )
    )


def _fused(operators: pd.DataFrame) -> dict[str, str]:
    """For ``Origin.extra``: what the fused operators are made of, with the shapes of the first node of each."""
    found = {}
    for row in operators.drop_duplicates("name").itertuples(index=False):
        name = str(row.name)
        parts = inside(name.removeprefix(PREFIX), str(row.input_shapes), str(row.input_dtypes), str(row.input_values))
        if parts:
            found[name] = parts
    return {"fusion": msgspec.json.encode(found).decode()} if found else {}


def _provider_notes(nodes: list[_Event]) -> list[Note]:
    """Where nodes ran, if not all on the processor."""
    notes = []
    others = sorted({e.args.provider for e in nodes if e.args.provider not in ("", _CPU)})
    for provider in others:
        count = sum(e.args.provider == provider for e in nodes)
        text = f"nodes on {provider}: their times are the host's (launching them), not the device's"
        notes.append(Note("host_times", text, count))
    back = sum(e.args.provider == _CPU for e in nodes)
    if others and back:
        kinds = sorted({e.args.op_name for e in nodes if e.args.provider == _CPU})
        text = f"nodes fell back from {', '.join(others)} to the CPU: {', '.join(kinds[:6])}"
        notes.append(Note("provider_fallback", text, back))
    zero = sum(e.dur == 0 for e in nodes)
    if zero:
        notes.append(
            Note("below_clock", "nodes of less than 1 us count with no time: the profile's clock ticks in us", zero)
        )
    return notes
