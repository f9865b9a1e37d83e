"""Nsight Compute: a CSV page as a recording with measured counters.

ncu runs kernels one at a time, often several times each and at fixed clocks, so the times here are those of kernels
alone; they are laid end to end in the order of the file, and a note says that there is no clock behind them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from profilers.readers.columns import text_column, thread_count, xyz_column
from profilers.readers.ncu_csv import Floats, Table, factors, numbers, tables, uses_decimal_comma
from profilers.readers.ncu_join import join_counters
from profilers.readers.progress import Progress
from profilers.tables import (
    KERNELS,
    NONE,
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

__all__ = ["join_counters", "read"]

_LIGHT = "GPU Speed Of Light Throughput"
_OLD_LIGHT = "GPU Speed Of Light"
_DURATION = (("gpu__time_duration.sum", ""), ("gpu__time_duration.avg", ""), ("Duration", ""))
_SM = (
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", ""),
    ("Compute (SM) Throughput", _LIGHT),
    ("SOL SM", _OLD_LIGHT),
    ("SM [%]", _OLD_LIGHT),
)
_DRAM = (
    ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", ""),
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", ""),
    ("DRAM Throughput", _LIGHT),
    ("SOL DRAM", _OLD_LIGHT),
)
_TENSOR = (("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", ""),)
_TENSOR_ACTIVE = (("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", ""),)
_TRAFFIC = (("dram__bytes_read.sum", "dram__bytes_write.sum"), ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum"))
_REGISTERS = (("launch__registers_per_thread", ""), ("Registers Per Thread", ""))
_STATIC = (("launch__shared_mem_per_block_static", ""), ("Static Shared Memory Per Block", ""))
_DYNAMIC = (("launch__shared_mem_per_block_dynamic", ""), ("Dynamic Shared Memory Per Block", ""))
_SHARED = (("launch__shared_mem_per_block", ""),)
_THREADS = (("launch__thread_count", ""), ("Threads", ""))
_OPERATIONS = {
    f"{unit}__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum": 2.0 if op == "fma" else 1.0
    for unit in ("sm", "smsp")
    for kind in "fhd"
    for op in ("add", "mul", "fma")
}
"""Floating-point instructions by thread; a fused multiply-add is two operations (NVIDIA's roofline counts so)."""
_TENSOR_OPERATIONS = "sm__ops_path_tensor_"

_NO_CLOCK = (
    "kernels were measured one by one by Nsight Compute (serialized, at the clocks it set): "
    "begin times are consecutive, not on a clock"
)


def read(path: str | Path, *, progress: Progress | None = None) -> Recording:
    """The kernels in a CSV of Nsight Compute, with counters (``source`` = ``ncu``) and no operators.

    ``sm_pct`` is ``sm__throughput``, ``dram_pct`` is ``gpu__dram_throughput`` (else ``dram__throughput``), ``tensor_pct``
    is ``sm__pipe_tensor_cycles_active``, each as % of the sustained peak over the elapsed time; ``bytes`` are DRAM reads
    plus writes; ``flops`` what the executed instructions amount to. NaN where the metric was not collected. Raises
    :class:`~profilers.readers.errors.ReadError` where the file has no table or no kernel.
    """
    path = Path(path)
    found, notes = tables(path)
    frames = []
    devices: dict[str, Device] = {}
    for table in found:
        frames.append(_kernels(table, notes))
        for device in _devices(table):
            devices.setdefault(device.id, device)
    kernels = concat(frames, KERNELS)
    kernels["start_ns"] = _consecutive(kernels)
    notes.append(Note("no_clock", _NO_CLOCK, len(kernels)))
    if progress is not None:
        progress(1.0)
    return Recording(
        operators=OPERATORS.empty(),
        kernels=kernels,
        steps=STEPS.empty(),
        runtime=RUNTIME.empty(),
        devices=tuple(devices[name] for name in sorted(devices)),
        origin=Origin(kind="ncu", path=str(path), tool="Nsight Compute"),
        notes=merge_notes(notes),
    )


def _consecutive(kernels: pd.DataFrame) -> np.ndarray:
    """Begin times that lay the kernels of each device end to end."""
    lengths = kernels["dur_ns"]
    ends = lengths.groupby(kernels["device"], observed=True).cumsum()
    return (ends - lengths).to_numpy(np.int64)


def _kernels(table: Table, notes: list[Note]) -> pd.DataFrame:
    fixed = table.fixed
    size = len(fixed)
    comma = _decimal_comma(table, notes)
    if table.lost:
        notes.append(Note("lost_lines", "lines of the table that could not be read", table.lost))
    grid, block = _dimensions(table, "Grid Size", "grid", comma), _dimensions(table, "Block Size", "block", comma)
    threads = thread_count([*grid, *block])
    counted = _get(table, _THREADS, "count", comma, notes)
    threads = np.where((threads < 0) & (counted > 0), np.nan_to_num(counted), threads).astype(np.int64)
    seconds = _get(table, _DURATION, "time", comma, notes)
    timed = np.isfinite(seconds) & (seconds >= 0)
    if not timed.all():
        notes.append(
            Note("no_durations", "kernels without gpu__time_duration: they count, with no time", int((~timed).sum()))
        )
    sm, dram, tensor = (_get(table, names, "pct", comma, notes) for names in (_SM, _DRAM, _TENSOR))
    if np.isnan(tensor).all():
        tensor = _get(table, _TENSOR_ACTIVE, "pct", comma, notes)
        if not np.isnan(tensor).all():
            text = (
                "tensor_pct is of the time its SMs were active, not of the elapsed time (the other was not collected)"
            )
            notes.append(Note("tensor_of_active", text, int(np.isfinite(tensor).sum())))
    measured = np.isfinite(sm) | np.isfinite(dram) | np.isfinite(tensor)
    if not measured.all():
        text = "kernels without sm__throughput, dram throughput or tensor activity: no utilization for them"
        notes.append(Note("no_utilization", text, int((~measured).sum())))
    frame = pd.DataFrame(
        {
            "kind": text_column(["kernel"] * size),
            "name": text_column(_names(fixed)),
            "device": text_column(_device_ids(fixed)),
            "stream": _whole(_plain(fixed, "Stream", comma)),
            "dur_ns": np.rint(np.where(timed, np.minimum(seconds, 1e9), 0.0) * 1e9).astype(np.int64),
            "start_ns": np.zeros(size, np.int64),
            "grid": xyz_column(*grid),
            "block": xyz_column(*block),
            "threads": threads,
            "registers": _whole(_get(table, _REGISTERS, "count", comma, notes), 1e6),
            "shared_bytes": _whole(_shared(table, comma, notes)),
            "flops": _flops(table, tensor, comma, notes),
            "bytes": _bytes(table, comma, notes),
            "sm_pct": sm,
            "dram_pct": dram,
            "tensor_pct": tensor,
            "source": text_column(np.where(measured, "ncu", "none").astype(object)),
        }
    )
    return KERNELS.conform(frame)


def _decimal_comma(table: Table, notes: list[Note]) -> bool:
    """Whether this table prints ``1.234,5``, judged by the percentages and times together."""
    found = [table.metric(*name) for name in (*_SM, *_DRAM, *_TENSOR, *_DURATION)]
    values = [metric.values for metric in found if metric is not None]
    comma = bool(values) and uses_decimal_comma(pd.concat(values, ignore_index=True))
    if comma:
        notes.append(Note("decimal_comma", "numbers are printed with decimal commas and were read so"))
    return comma


def _get(table: Table, names: tuple[tuple[str, str], ...], quantity: str, comma: bool, notes: list[Note]) -> Floats:
    """The first of these metrics that the table has, in base units; NaN where it has none."""
    for name, section in names:
        metric = table.metric(name, section)
        if metric is None:
            continue
        value, factor = numbers(metric.values, comma=comma), factors(metric.units, quantity)
        odd = np.isfinite(value) & np.isnan(factor)
        if odd.any():
            text = f"values of {name} in a unit that is not known: left out"
            notes.append(Note("unknown_unit", text, int(odd.sum())))
        result: Floats = value * factor
        if np.isfinite(result).any():
            return result
    return np.full(len(table.fixed), np.nan)


def _bytes(table: Table, comma: bool, notes: list[Note]) -> Floats:
    """DRAM reads plus writes; NaN where not both were counted."""
    for read_name, write_name in _TRAFFIC:
        both = [_get(table, ((name, ""),), "bytes", comma, notes) for name in (read_name, write_name)]
        total: Floats = both[0] + both[1]
        if np.isfinite(total).any():
            return total
    return _get(table, (("dram__bytes.sum", ""),), "bytes", comma, notes)


def _flops(table: Table, tensor: Floats, comma: bool, notes: list[Note]) -> Floats:
    """Floating-point operations executed, from instruction counts.

    NaN where the counts cannot be all: tensor pipes ran but their operations were not counted, or nothing was found and
    not every kind of instruction was counted.
    """
    scalar = [name for name in _OPERATIONS if name in table.names]
    unit = "sm__" if any(name.startswith("sm__") for name in scalar) else "smsp__"
    scalar = [name for name in scalar if name.startswith(unit)]
    tensors = [name for name in table.names if name.startswith(_TENSOR_OPERATIONS) and name.endswith(".sum")]
    tensors = [name for name in tensors if "sparsity" not in name]
    total = np.zeros(len(table.fixed))
    for name in (*scalar, *tensors):
        total += np.nan_to_num(_get(table, ((name, ""),), "count", comma, notes)) * _OPERATIONS.get(name, 1.0)
    complete = len(scalar) == len(_OPERATIONS) // 2
    unknown = (total <= 0) & ~complete
    hidden = (np.nan_to_num(tensor) > 0) & (len(tensors) == 0)
    if scalar and hidden.any():
        text = "kernels that used tensor cores whose operations were not counted: no FLOPs for them"
        notes.append(Note("flops_without_tensor", text, int(hidden.sum())))
    return np.where(unknown | hidden, np.nan, total)


def _shared(table: Table, comma: bool, notes: list[Note]) -> Floats:
    parts = [_get(table, names, "bytes", comma, notes) for names in (_STATIC, _DYNAMIC)]
    both: Floats = np.nan_to_num(parts[0]) + np.nan_to_num(parts[1])
    known = np.isfinite(parts[0]) | np.isfinite(parts[1])
    return np.where(known, both, _get(table, _SHARED, "bytes", comma, notes))


def _dimensions(table: Table, column: str, word: str, comma: bool) -> list[np.ndarray]:
    """X, Y and Z from ``(64, 64, 1)``, else from the ``launch__`` metrics; -1 where unknown."""
    if column in table.fixed.columns:
        found = table.fixed[column].astype("string").str.extract(r"(\d+)\D+(\d+)\D+(\d+)")
        return [
            _whole(pd.to_numeric(found[axis], errors="coerce").to_numpy(np.float64, na_value=np.nan))
            for axis in range(3)
        ]
    names = [((f"launch__{word}_dim_{axis}", ""),) for axis in "xyz"]
    return [_whole(_get(table, name, "count", comma, [])) for name in names]


def _names(fixed: pd.DataFrame) -> np.ndarray:
    column = next((name for name in ("Kernel Name", "Function Name") if name in fixed.columns), None)
    if column is None:
        return np.full(len(fixed), "(kernel without a name)", object)
    return fixed[column].str.strip().replace("", "(kernel without a name)").to_numpy(object)


def _device_ids(fixed: pd.DataFrame) -> list[str]:
    if "Device" not in fixed.columns:
        return ["cuda:0"] * len(fixed)
    return [f"cuda:{int(text)}" if text.strip().isdecimal() else "cuda:0" for text in fixed["Device"]]


def _devices(table: Table) -> list[Device]:
    names, counts = (table.metric(f"device__attribute_{word}", "") for word in ("display_name", "multiprocessor_count"))
    ids = pd.Series(_device_ids(table.fixed))
    found = []
    for row in ids.drop_duplicates().index:
        sms = numbers(counts.values.iloc[[row]])[0] if counts is not None else np.nan
        found.append(
            Device(
                id=ids.iloc[row],
                name=str(names.values.iloc[row]) if names is not None else "",
                sm_count=int(sms) if np.isfinite(sms) and sms > 0 else None,
                compute_capability=(str(table.fixed["CC"].iloc[row]).strip() or None) if "CC" in table.fixed else None,
            )
        )
    return found


def _plain(fixed: pd.DataFrame, column: str, comma: bool) -> Floats:
    return numbers(fixed[column], comma=comma) if column in fixed.columns else np.full(len(fixed), np.nan)


def _whole(values: Floats, limit: float = 2.0**62) -> np.ndarray:
    """Whole numbers; -1 where there is none, it is negative or absurd."""
    good = np.isfinite(values) & (values >= 0) & (values < limit)
    return np.where(good, np.rint(np.where(good, values, 0.0)), NONE).astype(np.int64)
