"""TensorRT: layer times by its own profiler (``IProfiler``), as the TensorRT backend writes them, as a recording.

Every run of a layer is a row of ``kernels`` under the layer's name (a layer may take several kernels) and an operator
``tensorrt::TYPE`` with the shapes of its inputs, where the engine was built so that it tells them. ``input_values``
holds the shape of the first output, since what the engine tells has no transposition: with it the operations follow.
For a convolution the filter's shape follows from what is told of the layer. The type of a layer that a compiler made
says nothing, so that its operator carries the tactic's name, too.

TensorRT tells how long a layer took, and not when: in each run the layers stand one after the other from the run's
begin. Written against the API of TensorRT 10; never run on hardware.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd

from profilers.readers.columns import text_column
from profilers.readers.errors import ReadError
from profilers.readers.progress import Progress
from profilers.tables import KERNELS, NONE, OPERATORS, RUNTIME, STEPS, Device, Note, Origin, Recording

PREFIX = "tensorrt::"

_FORM = 1
"""The version of the file's form: the value of its first key, ``tensorrt_layers``."""

_OPAQUE = frozenset({"", "kgen", "fusion", "Myelin", "MyelinGraph", "ForeignNode"})
_CONVOLUTION = re.compile(r"^(Cask)?(Gemm)?Convolution$")
_DTYPES = (
    (re.compile(r"BF16|BFloat16", re.IGNORECASE), "c10::BFloat16"),
    (re.compile(r"FP8|E4M3", re.IGNORECASE), "c10::Float8_e4m3fn"),
    (re.compile(r"FP16|Half", re.IGNORECASE), "c10::Half"),
    (re.compile(r"FP32|Float", re.IGNORECASE), "float"),
    (re.compile(r"Int8", re.IGNORECASE), "signed char"),
    (re.compile(r"Int64", re.IGNORECASE), "long int"),
    (re.compile(r"Int32", re.IGNORECASE), "int"),
    (re.compile(r"Bool", re.IGNORECASE), "bool"),
)
_CONSECUTIVE = (
    "layer times by TensorRT's own profiler, which slows runs down: the layers of a run stand one after the other, "
    "not on a clock, and the gap behind the last is what the run took beyond them"
)


class _Tensor(msgspec.Struct, gc=False):
    dimensions: list[int] = msgspec.field(default=[], name="Dimensions")
    dtype: str = msgspec.field(default="", name="Format/Datatype")


class _Layer(msgspec.Struct, gc=False):
    name: str = msgspec.field(default="", name="Name")
    kind: str = msgspec.field(default="", name="LayerType")
    tactic: str = msgspec.field(default="", name="TacticName")
    inputs: list[_Tensor] = msgspec.field(default=[], name="Inputs")
    outputs: list[_Tensor] = msgspec.field(default=[], name="Outputs")
    kernel: list[int] = msgspec.field(default=[], name="Kernel")
    filters: int = msgspec.field(default=0, name="OutMaps")
    groups: int = msgspec.field(default=1, name="Groups")


_Time = Annotated[int, msgspec.Meta(ge=0, lt=1 << 61)]


class _Run(msgspec.Struct, gc=False):
    start_ns: _Time
    wall_ns: _Time
    layers: list[tuple[str, float]] = []


class _Where(msgspec.Struct, gc=False):
    name: str = ""
    sm_count: int | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None


class _File(msgspec.Struct, gc=False):
    tensorrt_layers: int
    version: str = ""
    device: _Where = msgspec.field(default_factory=_Where)
    layers: list[_Layer] = []
    runs: list[_Run] = []


_DECODER = msgspec.json.Decoder(_File)


def read(path: str | Path, *, progress: Progress | None = None) -> Recording:
    """The recording in a file of layer times. Raises :class:`ReadError` where it is none or no layer ran."""
    path = Path(path)
    return read_bytes(path.read_bytes(), str(path), progress=progress)


def read_bytes(data: bytes, name: str, *, progress: Progress | None = None) -> Recording:
    """The same from memory."""
    try:
        file = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        why = " ".join(str(error).split())[:160]
        raise ReadError(f"{name}: layer times of TensorRT that cannot be read: {why}") from error
    if file.tensorrt_layers != _FORM:
        raise ReadError(f"{name}: layer times of form {file.tensorrt_layers}, not {_FORM}: made by another version")
    runs = sorted(file.runs, key=lambda run: run.start_ns)
    if not any(run.layers for run in runs):
        raise ReadError(f"{name}: no layer ran in this TensorRT profile; run the engine with its profiler attached")
    notes = [Note("no_clock", _CONSECUTIVE)]
    known = {layer.name: layer for layer in file.layers if layer.name}
    operators, kernels, strangers, odd = _tables(runs, known)
    if strangers:
        text = "layers that the engine does not describe: their type and shapes are not known"
        notes.append(Note("unknown_layers", text, strangers))
    if odd:
        notes.append(Note("odd_layer_times", "layers with an impossible time were left out", odd))
    if progress is not None:
        progress(1.0)
    where = file.device
    return Recording(
        operators=operators,
        kernels=kernels,
        steps=_steps(runs),
        runtime=RUNTIME.empty(),
        devices=(Device("cuda:0", where.name, "cuda", where.sm_count, where.memory_bytes, where.compute_capability),),
        origin=Origin(
            kind="trt",
            path=name,
            tool=f"TensorRT {file.version}".strip(),
            base_ns=runs[0].start_ns,
            extra={"events": str(len(kernels))},
        ),
        notes=tuple(notes),
    )


_LONGEST_MS = 3.6e6


def _tables(runs: list[_Run], known: dict[str, _Layer]) -> tuple[pd.DataFrame, pd.DataFrame, int, int]:
    """Operators, kernels, how many rows have a layer that is not described, and how many were left out."""
    names: list[str] = []
    steps: list[int] = []
    lengths: list[int] = []
    starts: list[int] = []
    odd = 0
    for number, run in enumerate(runs):
        at = run.start_ns - runs[0].start_ns
        for name, ms in run.layers:
            if not 0 <= ms < _LONGEST_MS:
                odd += 1
                continue
            took = round(ms * 1e6)
            names.append(name)
            steps.append(number)
            starts.append(at)
            lengths.append(took)
            at += took
    size = len(names)
    described = {name: _described(known.get(name)) for name in dict.fromkeys(names)}
    texts = [described[name] for name in names]
    ids, start, dur = np.arange(size), np.array(starts, np.int64), np.array(lengths, np.int64)
    step = np.array(steps, np.int32)
    operators = pd.DataFrame(
        {
            "op_id": ids,
            "name": text_column([text[0] for text in texts]),
            "start_ns": start,
            "dur_ns": np.zeros(size, np.int64),
            "self_ns": np.zeros(size, np.int64),
            "thread_id": np.zeros(size, np.int64),
            "parent_id": np.full(size, NONE, np.int64),
            "depth": np.zeros(size, np.int32),
            "step": step,
            "input_shapes": text_column([text[1] for text in texts]),
            "input_dtypes": text_column([text[2] for text in texts]),
            "input_values": text_column([text[3] for text in texts]),
            "device_ns": dur,
        }
    )
    kernels = pd.DataFrame(
        {
            "kind": text_column(["kernel"] * size),
            "name": text_column(names),
            "device": text_column(["cuda:0"] * size),
            "stream": np.zeros(size, np.int64),
            "start_ns": start,
            "dur_ns": dur,
            "op_id": ids,
            # The run's begin: one call launches all of its layers.
            "launch_ns": np.array([run.start_ns - runs[0].start_ns for run in runs], np.int64)[step],
            "step": step,
        }
    )
    strangers = sum(name not in known for name in names)
    return OPERATORS.conform(operators), KERNELS.conform(kernels), strangers, odd


def _described(layer: _Layer | None) -> tuple[str, str, str, str]:
    """Operator name, and shapes, types and the first output's shape as JSON."""
    if layer is None:
        return f"{PREFIX}layer", "", "", ""
    name = PREFIX + (layer.kind or "layer")
    if layer.kind in _OPAQUE and layer.tactic:
        name += f"::{layer.tactic}"
    inputs = [(tensor.dimensions, _dtype(tensor.dtype)) for tensor in layer.inputs]
    if _CONVOLUTION.match(layer.kind) and layer.kernel and layer.filters > 0 and inputs and len(inputs[0][0]) > 1:
        x, dtype = inputs[0]
        inputs.insert(1, ([layer.filters, x[1] // max(layer.groups, 1), *layer.kernel], dtype))
    out = layer.outputs[0].dimensions if layer.outputs else []
    encode = msgspec.json.encode
    return (
        name,
        encode([shape for shape, _ in inputs]).decode(),
        encode([dtype for _, dtype in inputs]).decode(),
        encode([str(out)] if out else []).decode(),
    )


def _dtype(text: str) -> str:
    return next((dtype for pattern, dtype in _DTYPES if pattern.search(text)), "")


def _steps(runs: list[_Run]) -> pd.DataFrame:
    """Every run is a step; it cannot end before its layers do."""
    inside = [sum(round(ms * 1e6) for _, ms in run.layers if 0 <= ms < _LONGEST_MS) for run in runs]
    frame: dict[str, Any] = {
        "step": np.arange(len(runs), dtype=np.int32),
        "start_ns": np.array([run.start_ns - runs[0].start_ns for run in runs], np.int64),
        "dur_ns": np.array([max(run.wall_ns, took) for run, took in zip(runs, inside, strict=True)], np.int64),
        "thread_id": np.zeros(len(runs), np.int64),
    }
    return STEPS.conform(pd.DataFrame(frame))
