"""Reads recordings of the PyTorch profiler: Kineto's Chrome trace JSON, of every year, plain or gzip.

The text is decoded in pieces, each into typed records that become columns and are dropped, so memory follows what the
tables hold and not the size of the file. Damaged pieces go through ``salvage``.

What the tables hold:

* ``start_ns`` counts from ``Origin.base_ns``, which is the earliest event read: nanoseconds since the epoch where the
  file tells its clock base or holds epoch times, else in the file's own clock. Times are exact to the nanosecond.
* ``kernels`` holds device activities only (kernels, copies, sets). It is empty for a recording of the CPU alone.
* Complete events (ph "X") and pairs of a begin and an end (ph "B" and "E") are read alike. What is nested in what follows
  from their times, so that both may stand on one thread.
* ``group``, ``class``, ``rule`` and ``flops`` are empty: the rules fill them.
* Annotations (profiler steps, ``gpu_user_annotation``, python functions, overhead) never add time anywhere.
* ``thread_id`` is the thread's own id, or a fresh number where threads of several processes share one.

The meaning of the categories is that of libkineto's ``output_json.cpp`` and of recordings from 2020 to 2026.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from profilers.readers import kineto_meta as meta
from profilers.readers.errors import ReadError
from profilers.readers.kineto_columns import Collector
from profilers.readers.kineto_tables import Built, build
from profilers.readers.kineto_text import Reader
from profilers.readers.text_source import Source
from profilers.tables import Note, Origin, Recording, merge_notes

_READING = 0.85
"""The share of the work that reading the text is; the rest is linking."""

_SLOW_LAUNCH_NS = 500_000


def read(path: Path, *, progress: Callable[[float], None] | None = None) -> Recording:
    """The recording in the file ``path``. ``progress`` is called with 0 to 1; it may raise to stop.

    Raises ReadError where the file is no such recording or holds nothing to show, OSError where it cannot be opened.
    """
    with path.open("rb") as file:
        return _read(file, str(path), path.stat().st_size, progress)


def read_bytes(data: bytes | memoryview, name: str) -> Recording:
    """The same from memory; ``name`` is what messages and ``Origin.path`` call it."""
    return _read(io.BytesIO(data), name, len(data), None)


def _read(file: BinaryIO, name: str, size: int, progress: Callable[[float], None] | None) -> Recording:
    tell = progress or (lambda share: None)
    source = Source(file, Path(name).name, size, lambda share: tell(share * _READING))
    found = Collector()
    reader = Reader(source.name, source.pieces(), found.add)
    # Millions of short-lived records: the collector of cycles would look at them again and again and find nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        reader.read()
        found.close()
        about, notes = meta.metadata(reader.head, reader.tail)
        notes = [*source.notes, *reader.notes, *notes, *_counted(found)]
        base = meta.number(about, "baseTimeNanoseconds")
        built = build(found, base)
    finally:
        if collecting:
            gc.enable()
    _refuse_empty(source.name, built, found, notes)
    rank, world_size = meta.distributed(about)
    devices, device_notes = meta.devices(about, built.used, built.hip)
    notes += [*built.notes, *device_notes, *_missing_activity(built, found, cut=reader.cut)]
    tell(1.0)
    return Recording(
        operators=built.operators,
        kernels=built.kernels,
        steps=built.steps,
        runtime=built.runtime,
        devices=devices,
        origin=Origin(
            kind="kineto",
            path=name,
            tool="torch.profiler",
            rank=rank,
            world_size=world_size,
            base_ns=(0 if built.clock.absolute else base or 0) + built.clock.origin,
            extra={"events": str(found.events), **meta.versions(about)},
        ),
        notes=merge_notes(notes),
    )


def _counted(found: Collector) -> list[Note]:
    notes = []
    if found.incomplete:
        near = found.incomplete[0]
        text = f"events lack a name, a time or a length and were left out, the first behind byte {near:,}"
        notes.append(Note("incomplete_events", text, len(found.incomplete)))
    notes += found.pairs.notes()
    counters = found.categories.get("cuda_profiler_range", 0)
    if counters:
        text = "CUPTI counter ranges: hardware counters by kernel name, recorded instead of kernel times; not read"
        notes.append(Note("cupti_counters", text, counters))
    return notes


def _refuse_empty(name: str, built: Built, found: Collector, notes: list[Note]) -> None:
    if len(built.operators) or len(built.kernels) or len(built.runtime):
        return
    why = "; ".join(note.text for note in notes)
    if not found.events:
        raise ReadError(f"{name} holds no events: nothing was recorded between start and stop{_because(why)}")
    most: Any = [f"{category or 'none'} ({count:,})" for category, count in found.categories.most_common(4)]
    raise ReadError(
        f"{name} holds {found.events:,} events but no operators, kernels or runtime calls; its categories are "
        f"{', '.join(most)}: no recording of the PyTorch profiler, or nothing ran while it recorded{_because(why)}"
    )


def _because(why: str) -> str:
    return f" ({why})" if why else ""


def _missing_activity(built: Built, found: Collector, *, cut: bool) -> list[Note]:
    """Say why there is nothing from the device, or why its times look wrong."""
    notes = []
    kinds = built.runtime["kind"]
    launches = built.runtime[kinds == "launch"] if len(built.runtime) else built.runtime
    if not len(built.kernels) or (len(launches) and not np.any(built.kernels["kind"] == "kernel")):
        if len(launches):
            text = (
                f"{len(launches):,} launches, 0 kernels: CUPTI recorded no GPU activity (no permission for it, another "
                "profiler attached, WSL, or every kernel ran after the window); only the host's side can be shown"
            )
        else:
            text = (
                "no device activities and no launches in the part of the recording that could be read: if it is of a GPU, its "
                "kernels are lost, and what is shown is the host's own time"
            )
        if cut or len(launches):
            notes.append(Note("no_device_activity", text, max(len(launches), 1)))
        else:
            notes.append(Note("cpu_only", "a recording of the CPU alone: no device activities and no launches"))
    if not len(built.operators) and len(built.kernels):
        text = "no operators were recorded (ProfilerActivity.CPU was off): only their names classify the kernels"
        notes.append(Note("no_operators", text))
    lengths = launches["dur_ns"].to_numpy() if len(launches) else np.zeros(0)
    measured = len(built.kernels) and "cuda_profiler_range" not in found.categories  # Counters replay each launch.
    if measured and len(lengths) >= 10 and float(np.min(lengths)) > _SLOW_LAUNCH_NS:
        text = f"no kernel launch took less than {np.min(lengths) / 1e6:.3g} ms: are these times microseconds?"
        notes.append(Note("implausible_times", text))
    return notes
