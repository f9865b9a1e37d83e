"""Hardware counters that torch.profiler collected through CUPTI, as a recording whose kernels carry them.

With ``_ExperimentalConfig(profiler_metrics=..., profiler_measure_per_kernel=True)`` Kineto writes one event a kernel of
the category ``cuda_profiler_range``: its name, and one argument a metric. Times in these events are shares of the whole
range, no measurements: they are not read. What is read joins other recordings as a page of Nsight Compute does
(:func:`profilers.readers.ncu_join.join_counters`).
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.readers.columns import text_column
from profilers.readers.errors import ReadError
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Note, Origin, Recording

Floats = npt.NDArray[np.float64]

CATEGORY = "cuda_profiler_range"
_UNNAMED = "__missing__"
"""Kineto's name for a range whose kernel it could not tell."""

_SM = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)
_DRAM = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
_TENSOR = ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",)
_TIME = "gpu__time_duration.sum"
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_OPERATIONS = {
    f"smsp__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum": 2.0 if op == "fma" else 1.0
    for kind in "fhd"
    for op in ("add", "mul", "fma")
}
"""Floating-point instructions by thread; a fused multiply-add is two operations. Tensor cores are not among them."""


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    cat: str = ""
    args: dict[str, msgspec.Raw] = {}


class _Trace(msgspec.Struct, gc=False):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


_DECODER = msgspec.json.Decoder(_Trace)


def read(path: str | Path) -> Recording:
    """The counters in a trace of torch.profiler (plain or gzip). Raises :class:`ReadError` where it holds none."""
    path = Path(path)
    data = path.read_bytes()
    try:
        found = _DECODER.decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).events
    except (msgspec.MsgspecError, OSError, EOFError, zlib.error) as error:
        raise ReadError(f"{path}: not a trace that can be read: {' '.join(str(error).split())[:160]}") from None
    ranges = [event for event in found if event.cat == CATEGORY]
    if not ranges:
        raise ReadError(f"{path}: the profiler collected no counters (this torch, this GPU or its driver offers none)")
    named = [event for event in ranges if event.name not in ("", _UNNAMED)]
    notes = []
    if len(named) < len(ranges):
        text = "kernels whose name CUPTI did not tell: their counters were left out"
        notes.append(Note("cupti_unnamed", text, len(ranges) - len(named)))
    return Recording(
        operators=OPERATORS.empty(),
        kernels=_kernels(named),
        steps=STEPS.empty(),
        runtime=RUNTIME.empty(),
        origin=Origin(kind="cupti", path=str(path), tool="CUPTI (torch.profiler)"),
        notes=tuple(notes),
    )


def _kernels(events: list[_Event]) -> pd.DataFrame:
    size = len(events)
    names = {name for event in events for name in event.args}
    columns = {name: _column(events, name) for name in names}
    nothing = np.full(size, np.nan)

    def first(wanted: tuple[str, ...]) -> Floats:
        return next((columns[name] for name in wanted if name in columns), nothing)

    length = np.nan_to_num(columns.get(_TIME, nothing)).astype(np.int64)
    percents = [first(_SM), first(_DRAM), first(_TENSOR)]
    frame = pd.DataFrame(
        {
            "kind": text_column(["kernel"] * size),
            "name": text_column([event.name for event in events]),
            "device": text_column(["cuda:0"] * size),
            # In order of the file; there is no clock.
            "start_ns": np.arange(size, dtype=np.int64),
            "dur_ns": length,
            "sm_pct": percents[0],
            "dram_pct": percents[1],
            "tensor_pct": percents[2],
            "flops": _operations(columns, percents[2], size),
            "bytes": columns.get(_READ, nothing) + columns.get(_WRITTEN, nothing),
            "source": text_column(["cupti"] * size),
        }
    )
    return KERNELS.conform(frame)


def _operations(columns: dict[str, Floats], tensor: Floats, size: int) -> Floats:
    """Operations where every kind of instruction was counted; NaN where tensor cores may hide some."""
    if not set(_OPERATIONS) <= set(columns):
        return np.full(size, np.nan)
    total = sum((columns[name] * weight for name, weight in _OPERATIONS.items()), np.zeros(size))
    # Without the tensor pipes' activity nobody knows what they did: a kernel of no plain operation may be one of theirs.
    hidden = np.where(np.isnan(tensor), total <= 0, tensor > 0)
    return np.where(hidden, np.nan, total)


def _column(events: list[_Event], name: str) -> Floats:
    values = np.full(len(events), np.nan)
    for index, event in enumerate(events):
        raw = event.args.get(name)
        if raw is not None:
            try:
                values[index] = float(bytes(raw).strip(b'"'))
            except ValueError:
                continue
    return values
