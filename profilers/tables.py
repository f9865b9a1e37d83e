"""The column schemas that every room speaks, and the :class:`Recording` that carries them.

Rules that hold everywhere:

* times are int64 **nanoseconds** since the recording's own origin (floats of epoch microseconds lose 0.25 us);
* a missing id, step or launch is ``-1``; a missing measurement is ``NaN`` (or -1 in integer columns);
* names, classes and other repeated texts are pandas categoricals, so a million rows stay small;
* column names are the exported names, and the unit is in the name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

NONE = -1
"""What an integer column holds where there is nothing to say (no parent, no step, no launch)."""

Kind = Literal["int64", "int32", "int16", "int8", "float64", "float32", "category", "bool"]


@dataclass(frozen=True)
class Column:
    """One column: its exported name, its storage, the value where nothing is known, and what it means."""

    name: str
    kind: Kind
    doc: str
    missing: Any = None

    @property
    def default(self) -> Any:
        """The value a reader writes where the source says nothing."""
        if self.missing is not None:
            return self.missing
        return {"category": "", "float64": np.nan, "float32": np.nan, "bool": False}.get(self.kind, NONE)


@dataclass(frozen=True)
class Schema:
    """An ordered set of columns. ``conform`` makes any frame obey it; ``problems`` says where one does not."""

    name: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def empty(self) -> pd.DataFrame:
        """A frame with these columns and no row."""
        return self.conform(pd.DataFrame())

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with exactly these columns in this order; absent ones filled with their default."""
        size = len(frame)
        data: dict[str, Any] = {}
        for column in self.columns:
            if column.name in frame.columns:
                data[column.name] = _cast(frame[column.name], column)
            elif column.kind == "category":
                data[column.name] = pd.Categorical.from_codes(np.zeros(size, np.int8), pd.Index([column.default]))
            else:
                data[column.name] = np.full(size, column.default, dtype=column.kind)
        index = frame.index if size else pd.RangeIndex(0)
        return pd.DataFrame(data, index=index, copy=False)

    def problems(self, frame: pd.DataFrame) -> list[str]:
        """One line per way in which ``frame`` breaks the schema (empty when it obeys)."""
        found = [f"{self.name}: column {name} is missing" for name in self.names if name not in frame.columns]
        found += [
            f"{self.name}: column {name} is not in the schema" for name in frame.columns if name not in self.names
        ]
        for column in self.columns:
            if column.name in frame.columns and str(frame[column.name].dtype) != column.kind:
                found.append(f"{self.name}.{column.name} is {frame[column.name].dtype}, not {column.kind}")
        return found


def _cast(values: pd.Series, column: Column) -> Any:
    if str(values.dtype) == column.kind:
        return values
    if column.kind == "category":
        return values.astype("string").fillna(str(column.default)).astype(object).astype("category")
    if column.kind.startswith("int") and values.dtype.kind not in "iub":
        return pd.to_numeric(values, errors="coerce").fillna(column.default).astype(column.kind)
    return values.astype(column.kind)


OPERATORS = Schema(
    "operators",
    (
        Column("op_id", "int64", "the operator's own number in this recording, 0.. in order of start"),
        Column("name", "category", "as recorded, e.g. aten::addmm"),
        Column("start_ns", "int64", "when it began, on the host"),
        Column("dur_ns", "int64", "how long it ran on the host, children included"),
        Column("self_ns", "int64", "the same without its child operators"),
        Column("thread_id", "int64", "the host thread; unique over the processes of a recording"),
        Column("parent_id", "int64", "op_id of the operator that called it"),
        Column("depth", "int32", "0 for an operator directly below the step (or the thread's top level)", missing=0),
        Column("step", "int32", "the profiler step that it began in"),
        Column("input_shapes", "category", "JSON list of the inputs' shapes, e.g. [[8,128],[128,64],[]]"),
        Column("input_dtypes", "category", 'JSON list of the inputs\' types, e.g. ["float","c10::BFloat16","Scalar"]'),
        Column(
            "input_values", "category", "JSON list of the scalar inputs (stride, padding, groups); '' if not recorded"
        ),
        Column("module", "category", "class name of the innermost nn.Module running, e.g. LlamaRMSNorm"),
        Column(
            "flops", "float64", "floating-point operations, by formula from the shapes; NaN where no formula applies"
        ),
        Column("bytes", "float64", "bytes that must move at least once (inputs read + outputs written), estimated"),
        Column("device_ns", "int64", "time of the device activities launched by it or by its children", missing=0),
        Column("group", "category", "operator group (profilers.rules.taxonomy)"),
        Column("class", "category", "gemm | attention | nongemm | communication | unclassified"),
        Column("rule", "category", "which line of the rules decided"),
    ),
)

KERNELS = Schema(
    "kernels",
    (
        Column("kind", "category", "kernel | memcpy | memset"),
        Column("name", "category", "the full (demangled where possible) name; on a CPU run the operator's"),
        Column("device", "category", "cuda:0, cuda:1 ... or cpu; rankN/cuda:0 where several ranks were read together"),
        Column("stream", "int64", "the device stream; on a CPU run the thread"),
        Column("start_ns", "int64", "when it began on the device"),
        Column(
            "dur_ns", "int64", "how long it ran; on a CPU run the operator's self time (which need not be contiguous)"
        ),
        Column("grid", "category", "blocks launched, XxYxZ"),
        Column("block", "category", "threads in a block, XxYxZ"),
        Column("threads", "int64", "grid x block; on a CPU run the number of elements worked on"),
        Column("registers", "int32", "registers a thread"),
        Column("shared_bytes", "int64", "shared memory a block"),
        Column("correlation", "int64", "the id that ties it to its launch"),
        Column("graph", "bool", "launched as a node of a CUDA/HIP graph: only its name classifies it"),
        Column("op_id", "int64", "the innermost operator on the launching thread that holds the launch"),
        Column(
            "launch_ns", "int64", "when the host launched it; -1: launched before the window, or no launch recorded"
        ),
        Column("step", "int32", "the profiler step of its launch (else of its start)"),
        Column("group", "category", "as for operators"),
        Column("class", "category", "as for operators"),
        Column("rule", "category", "which line of the rules decided"),
        Column("flops", "float64", "its share of the launching operator's operations"),
        Column("bytes", "float64", "its share of the launching operator's bytes; for a memcpy the bytes copied"),
        Column("sm_pct", "float64", "SM throughput, % of peak (counter or estimate: see source)"),
        Column("dram_pct", "float64", "DRAM throughput, % of peak (counter or estimate: see source)"),
        Column("tensor_pct", "float64", "tensor pipes active, % of peak (counters only)"),
        Column("source", "category", "where the percentages come from: ncu | cupti | estimate | none", missing="none"),
        Column("flag", "category", "'' or why its duration is not believed: overrun | negative | overflow | zero_time"),
    ),
)

STEPS = Schema(
    "steps",
    (
        Column("step", "int32", "the step's number in this recording, unique over its windows"),
        Column("start_ns", "int64", "begin on the host"),
        Column("dur_ns", "int64", "length on the host"),
        Column("thread_id", "int64", "the thread that drives the steps"),
    ),
)

RUNTIME = Schema(
    "runtime",
    (
        Column("name", "category", "cudaLaunchKernel, cudaStreamSynchronize ...; enumerate(DataLoader)... for a fetch"),
        Column("kind", "category", "launch | sync | copy | alloc | loading | other"),
        Column("thread_id", "int64", "the calling thread"),
        Column("start_ns", "int64", "begin of the call"),
        Column("dur_ns", "int64", "length of the call"),
        Column("correlation", "int64", "the id shared with the device activities it caused"),
    ),
)

SAMPLES = Schema(
    "samples",
    (
        Column("t_ns", "int64", "when it was sampled: nanoseconds since the epoch"),
        Column("device", "category", "cuda:0 ... or cpu, cpu/3 for one core"),
        Column("metric", "category", "util_pct, memory_used_gb, power_w, sm_pct, dram_pct ..."),
        Column("value", "float64", "the value"),
        Column("unit", "category", "%, GB, W, MHz, C, MiB/s ..."),
        Column("source", "category", "nvml | gpm | dcgm | psutil | perf; self: what sampling itself takes"),
    ),
)

SCHEMAS = {schema.name: schema for schema in (OPERATORS, KERNELS, STEPS, RUNTIME, SAMPLES)}


@dataclass(frozen=True)
class Device:
    """What a recording (or the machine) says of one device. Unknown numbers are None, never 0."""

    id: str
    name: str = ""
    kind: str = "cuda"  # cuda | hip | cpu | meta
    sm_count: int | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Note:
    """Something that was dropped, repaired, not attributed or assumed. ``code`` is stable; ``text`` is one line for people."""

    code: str
    text: str
    count: int = 1


@dataclass(frozen=True)
class Origin:
    """Where a recording comes from. ``path`` is the name the user gave, never one read from inside the file."""

    kind: str  # kineto | nsys | ncu | cupti | ort | trt | run | replay
    path: str = ""
    tool: str = ""
    rank: int | None = None
    world_size: int | None = None
    base_ns: int | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Recording:
    """What was recorded, as tables. Readers make it, ``rules`` classify it, analyses only read it."""

    operators: pd.DataFrame
    kernels: pd.DataFrame
    steps: pd.DataFrame
    runtime: pd.DataFrame
    devices: tuple[Device, ...] = ()
    origin: Origin = Origin("kineto")
    notes: tuple[Note, ...] = ()

    def replace(self, **changes: Any) -> Recording:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def with_notes(self, *notes: Note) -> Recording:
        """A copy with notes added; notes of one code are added up (the first text stays)."""
        return self.replace(notes=merge_notes((*self.notes, *notes)))


def merge_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Notes with one entry per code and text, counts added."""
    merged: dict[tuple[str, str], Note] = {}
    for note in notes:
        key = (note.code, note.text)
        held = merged.get(key)
        merged[key] = note if held is None else dataclasses.replace(held, count=held.count + note.count)
    return tuple(merged.values())


def _one_kind(parts: list[pd.Series]) -> list[pd.Series]:
    """Categoricals whose categories are of one dtype: readers make strings or objects, and pandas unites only equals."""
    if len({str(part.cat.categories.dtype) for part in parts}) == 1:
        return parts
    out = []
    for part in parts:
        categories = pd.Index(part.cat.categories.to_numpy(dtype=object), dtype=object)
        out.append(pd.Series(pd.Categorical.from_codes(part.cat.codes.to_numpy(), categories)))
    return out


def concat(frames: list[pd.DataFrame], schema: Schema) -> pd.DataFrame:
    """Rows of all frames under one schema. Categoricals are united, so no column falls back to Python strings."""
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return schema.empty()
    if len(frames) == 1:
        return frames[0].reset_index(drop=True)
    data: dict[str, Any] = {}
    for column in schema.columns:
        parts = [frame[column.name] for frame in frames]
        if column.kind == "category":
            data[column.name] = pd.api.types.union_categoricals(_one_kind(parts))
        else:
            data[column.name] = np.concatenate([part.to_numpy() for part in parts])
    return pd.DataFrame(data, copy=False)
