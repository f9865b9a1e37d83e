"""Nsight Systems: a ``.sqlite`` export (2021 to 2026) as a recording.

Tables and columns are found by name. Device activities are tied to the call that launched them by correlation id
*within their process* (ids of several processes collide), and to the innermost NVTX operator on the launching thread
that holds the call. Times count from the first thing recorded; the origin's ``base_ns`` is that instant in UTC, and its
``session_ns`` the same on the export's own clock (nanoseconds since the session's start), as nsys shows it.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.readers.calls import call_kinds, plain_name
from profilers.readers.columns import looked_up, text_column, thread_count, xyz_column
from profilers.readers.errors import ReadError
from profilers.readers.flags import flag_column, flag_durations, flag_notes
from profilers.readers.nesting import NONE, Ints, inclusive, innermost
from profilers.readers.nsys_db import Database
from profilers.readers.nsys_nvtx import Ranges, read_ranges
from profilers.readers.progress import Counter, Progress
from profilers.tables import KERNELS, RUNTIME, Device, Note, Origin, Recording, concat, merge_notes

_PID_MASK = ~0xFFFFFF
"""A global thread id is the process's global id plus the thread in its low 24 bits."""

_COMMON = {
    "start": 0,
    "end": 0,
    "deviceId": 0,
    "contextId": 0,
    "streamId": NONE,
    "correlationId": NONE,
    "globalPid": 0,
    "graphNodeId": NONE,
}
_GRID = ("gridX", "gridY", "gridZ")
_BLOCK = ("blockX", "blockY", "blockZ")
_KERNEL = {
    **dict.fromkeys((*_GRID, *_BLOCK, "registersPerThread", "staticSharedMemory", "dynamicSharedMemory"), NONE),
    **dict.fromkeys(("demangledName", "shortName", "mangledName", "graphId"), NONE),
}
_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_DRIVER",
    "NVTX_EVENTS",
)
_COPY = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_COPY |= {11: "HtoD, unified", 12: "DtoH, unified", 13: "DtoD, unified"}
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
_WHOLE_GRAPH = "[whole graph: its kernels were not recorded]"
_NO_NAME = "(kernel without a name)"


def read(path: str | Path, *, progress: Progress | None = None) -> Recording:
    """The recording in an Nsight Systems SQLite export.

    A file that traced no GPU gives empty kernels and a note that says so. Raises :class:`ReadError` where the file is
    no such export or nothing of it can be read.
    """
    path = Path(path)
    # Millions of short-lived rows: the collector of cycles would look at them again and again and find nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _read(path, progress)
    finally:
        if collecting:
            gc.enable()


def _read(path: Path, progress: Progress | None) -> Recording:
    with Database(path) as database:
        _refuse_others(database)
        tick = Counter(progress, sum(database.count(table) for table in _TABLES))
        activities, notes = _activities(database, tick)
        runtime = _runtime(database, tick)
        ranges = read_ranges(database, tick)
        began = _rebase(activities, runtime, ranges)
        kernels, launch_notes = _linked(activities, runtime, ranges)
        notes = [*notes, *launch_notes, *ranges.notes, *_damage(database), *_beside(path)]
        if not len(kernels):
            notes.append(_nothing_on_the_device(database, len(runtime["start"])))
        devices = _devices(database, kernels)
        readable = len(kernels) or len(runtime["start"]) or len(ranges.operators) or len(ranges.steps)
        if not readable and database.damaged:
            raise ReadError(f"{path}: the export is damaged and no row can be read; export it again with nsys export")
        origin = _origin(database, path, began)
    operators = ranges.operators
    if len(operators):
        at = operators["start_ns"].to_numpy()
        operators = operators.assign(step=_step_of(at, ranges), device_ns=_device_time(operators, kernels))
    tick.finish()
    return Recording(
        operators=operators,
        kernels=kernels,
        steps=ranges.steps,
        runtime=_runtime_table(runtime),
        devices=devices,
        origin=origin,
        notes=merge_notes(notes),
    )


def _refuse_others(database: Database) -> None:
    """A clear word on SQLite files that are something else."""
    names = {name.upper() for name in database.all_tables}
    if any(name.startswith("ROCPD_") for name in names):
        raise ReadError(
            f"{database.path}: a rocprofv3 database (rocpd), not read here; record with torch.profiler instead"
        )
    if "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL" in names or "STRINGTABLE" in names:
        raise ReadError(f"{database.path}: an nvprof database, not an Nsight Systems export; record it again with nsys")
    if not any(name.startswith(("CUPTI_ACTIVITY_", "TARGET_INFO_", "NVTX_EVENTS", "STRINGIDS")) for name in names):
        raise ReadError(
            f"{database.path}: a SQLite file, but not an export of Nsight Systems; it has none of its tables"
        )


def _activities(database: Database, tick: Counter) -> tuple[pd.DataFrame, list[Note]]:
    """Kernels, copies, sets and whole-graph launches in one frame: the kernels' columns plus what links them."""
    frames, notes = [], []
    rows = database.integers("CUPTI_ACTIVITY_KIND_KERNEL", {**_COMMON, **_KERNEL}, tick)
    if len(rows["start"]):
        frames.append(_frame(rows, "kernel", _kernel_names(database, rows), launch=True))
    extra = {"bytes": NONE, "copyKind": 0, "srcKind": NONE, "dstKind": NONE}
    rows = database.integers("CUPTI_ACTIVITY_KIND_MEMCPY", {**_COMMON, **extra}, tick)
    if len(rows["start"]):
        frames.append(_frame(rows, "memcpy", _copy_names(rows)))
    rows = database.integers("CUPTI_ACTIVITY_KIND_MEMSET", {**_COMMON, "bytes": NONE, "memKind": NONE}, tick)
    if len(rows["start"]):
        names = looked_up(rows["memKind"], {key: f"Memset ({text})" for key, text in _MEMORY.items()}, "Memset")
        frames.append(_frame(rows, "memset", names))
    rows = database.integers("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _COMMON, tick)
    if len(rows["start"]):
        frame = _frame(rows, "kernel", text_column([_WHOLE_GRAPH] * len(rows["start"])))
        frames.append(frame.assign(graph=True))
        text = "graph launches recorded whole, without their kernels: record with --cuda-graph-trace=node to see them"
        notes.append(Note("whole_graphs", text, len(frame)))
    if not frames:
        return pd.DataFrame(), notes
    columns = ("kind", "name", "grid", "block")
    merged = {name: pd.api.types.union_categoricals([frame[name] for frame in frames]) for name in columns}
    table = pd.concat([frame.drop(columns=list(columns)) for frame in frames], ignore_index=True).assign(**merged)
    table["device"] = _device_ids(database, table)
    table = table.sort_values("start_ns", kind="stable", ignore_index=True)
    return table, notes


def _frame(
    rows: dict[str, npt.NDArray[Any]], kind: str, names: pd.Categorical, *, launch: bool = False
) -> pd.DataFrame:
    size = len(rows["start"])
    none = np.full(size, NONE, np.int64)
    grid = [rows[name] if launch else none for name in _GRID]
    block = [rows[name] if launch else none for name in _BLOCK]
    amount = rows["bytes"].astype(np.float64) if "bytes" in rows else np.full(size, np.nan)
    shared = none
    if launch:
        parts = np.stack([rows["staticSharedMemory"], rows["dynamicSharedMemory"]])
        shared = np.where((parts < 0).all(axis=0), NONE, np.maximum(parts, 0).sum(axis=0))
    graph = rows["graphNodeId"] > 0
    if launch:
        graph |= rows["graphId"] > 0
    return pd.DataFrame(
        {
            "kind": text_column([kind] * size),
            "name": names,
            "device_id": rows["deviceId"],
            "context": rows["contextId"],
            "process": rows["globalPid"] & _PID_MASK,
            "stream": rows["streamId"],
            "start_ns": rows["start"],
            "end_ns": rows["end"],
            "unfinished": rows["end"] == 0,
            "grid": xyz_column(*grid),
            "block": xyz_column(*block),
            "threads": thread_count([*grid, *block]),
            "registers": rows["registersPerThread"] if launch else none,
            "shared_bytes": shared,
            "correlation": rows["correlationId"],
            "graph": graph,
            "bytes": np.where(amount < 0, np.nan, amount),
        }
    )


def _kernel_names(database: Database, rows: dict[str, npt.NDArray[Any]]) -> pd.Categorical:
    """The demangled name, else the mangled, else the short one: whichever the export has a text for."""
    columns = [rows[name] for name in ("demangledName", "mangledName", "shortName")]
    texts = database.strings(np.concatenate(columns))
    chosen = columns[-1]
    for ids in reversed(columns[:-1]):
        codes, distinct = pd.factorize(ids)
        has = np.array([bool(texts.get(key)) for key in distinct.tolist()], bool)[codes]
        chosen = np.where(has, ids, chosen)
    return looked_up(chosen, {key: text or _NO_NAME for key, text in texts.items()}, _NO_NAME)


def _copy_names(rows: dict[str, npt.NDArray[Any]]) -> pd.Categorical:
    """``Memcpy HtoD (Pageable -> Device)``, as torch.profiler writes them, so that recordings compare."""
    key = (rows["copyKind"] * 64 + np.clip(rows["srcKind"], -1, 30) + 1) * 64 + np.clip(rows["dstKind"], -1, 30) + 1
    names = {}
    for value in np.unique(key).tolist():
        kind, source, target = value // 4096, value // 64 % 64 - 1, value % 64 - 1
        ends = f" ({_MEMORY[source]} -> {_MEMORY[target]})" if source in _MEMORY and target in _MEMORY else ""
        names[value] = f"Memcpy {_COPY.get(kind, 'of unknown kind')}{ends}"
    return looked_up(key, names, "Memcpy")


def _device_ids(database: Database, table: pd.DataFrame) -> pd.Categorical:
    """``cuda:N``. Where the export says which GPU a process's device is, N is that GPU: every process that was given
    one GPU of several calls it 0."""
    rows = database.integers("TARGET_INFO_CUDA_DEVICE", {"gpuId": NONE, "cudaId": NONE, "pid": NONE})
    known = {(pid, cuda): gpu for gpu, cuda, pid in zip(*(rows[k].tolist() for k in rows), strict=True) if gpu >= 0}
    pids = (table["process"].to_numpy() >> 24) & 0xFFFFFF
    keys, distinct = pd.factorize(pids * 4096 + np.clip(table["device_id"].to_numpy(), 0, 4095))
    ids = [(int(key) // 4096, int(key) % 4096) for key in distinct]
    names = text_column([f"cuda:{known.get((pid, device), device)}" for pid, device in ids])
    return pd.Categorical.from_codes(names.codes[keys], names.categories)


def _runtime(database: Database, tick: Counter) -> dict[str, Any]:
    """Runtime and driver calls as columns, with their names as a categorical."""
    columns = {"start": 0, "end": 0, "globalTid": 0, "correlationId": NONE, "nameId": NONE}
    parts = [
        database.integers(table, columns, tick)
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
    ]
    joined: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in columns}
    texts = database.strings(joined["nameId"])
    joined["name"] = looked_up(joined["nameId"], {key: plain_name(text) for key, text in texts.items()}, "(call)")
    return joined


def _rebase(table: pd.DataFrame, runtime: dict[str, Any], ranges: Ranges) -> int:
    """Make every time count from the first thing recorded, in place; gives that instant on the export's clock."""
    frames = [ranges.operators, ranges.steps]
    begins = [runtime["start"], *(frame["start_ns"].to_numpy() for frame in frames)]
    if len(table):
        begins.append(table["start_ns"].to_numpy()[~table["unfinished"].to_numpy()])
    begins = [begin for begin in begins if len(begin)]
    if not begins:
        return 0
    first = min(int(begin.min()) for begin in begins)
    for frame in frames:
        frame["start_ns"] -= first
    for name in ("start", "end"):
        runtime[name] = runtime[name] - first
    if len(table):
        unfinished = table["unfinished"].to_numpy()
        for name in ("start_ns", "end_ns"):
            table[name] = np.where(unfinished, NONE, table[name].to_numpy() - first)
    return first


def _linked(table: pd.DataFrame, runtime: dict[str, Any], ranges: Ranges) -> tuple[pd.DataFrame, list[Note]]:
    """The kernels table: launches, operators, steps and marks filled in; ids made unique over processes.

    ``runtime["correlationId"]`` is changed along with the kernels'.
    """
    if not len(table):
        _renumber(table, runtime)
        return KERNELS.empty(), []
    notes: list[Note] = []
    if not table["process"].any():
        callers = np.unique(runtime["globalTid"] & _PID_MASK)
        runtime["process"] = np.zeros(len(runtime["start"]), np.int64)
        if len(callers) > 1:
            text = "kernels carry no process id though several processes launched some: launches may be mistaken"
            notes.append(Note("no_process_ids", text, len(table)))
    linked_id = _renumber(table, runtime)
    call = _call_of(linked_id, runtime)
    launch = np.where(call >= 0, runtime["start"][np.maximum(call, 0)], NONE) if len(runtime["start"]) else call
    thread = runtime["globalTid"][np.maximum(call, 0)] if len(runtime["start"]) else call
    operators = ranges.operators
    op_id = np.full(len(table), NONE, np.int64)
    launched = np.flatnonzero(call >= 0)
    op_id[launched] = innermost(
        operators["start_ns"].to_numpy(),
        operators["dur_ns"].to_numpy(),
        operators["thread_id"].to_numpy(),
        launch[launched],
        thread[launched],
        parent=operators["parent_id"].to_numpy(),
    )
    start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    lane = table.groupby(["process", "device", "context", "stream"], observed=True, sort=False).ngroup().to_numpy()
    flags = flag_durations(
        start, end - start, lane, graph=table["graph"].to_numpy(), zero=table["unfinished"].to_numpy()
    )
    unlaunched = int(np.count_nonzero((call < 0) & (table["kind"] == "kernel").to_numpy()))
    if unlaunched:
        text = "kernels whose launch is not in the recording (launched before the window, or not recorded)"
        notes.append(Note("unlaunched_kernels", text, unlaunched))
    frame = table.assign(
        dur_ns=end - start,
        correlation=linked_id,
        op_id=op_id,
        launch_ns=launch,
        step=_step_of(np.where(call >= 0, launch, start), ranges),
        flag=flag_column(flags),
    )
    return KERNELS.conform(frame), [*notes, *flag_notes(flags)]


def _renumber(table: pd.DataFrame, runtime: dict[str, Any]) -> Ints:
    """Correlation ids made unique over processes: the kernels' are given, those of ``runtime`` changed in place.

    A single process keeps its ids; of several, each one's are shifted past those of the one before. -1 stays -1.
    """
    callers = runtime.setdefault("process", runtime["globalTid"] & _PID_MASK)
    ours = table["correlation"].to_numpy() if len(table) else np.empty(0, np.int64)
    owners = table["process"].to_numpy() if len(table) else np.empty(0, np.int64)
    ids = np.concatenate([ours, runtime["correlationId"]])
    process, distinct = pd.factorize(np.concatenate([owners, callers]), sort=True)
    if len(distinct) > 1:
        known = ids > 0
        width = 1 << max(int(ids.max(initial=0)).bit_length(), 32)
        if width * len(distinct) >= 1 << 62:
            # Ids that leave no room to shift (a damaged file): counted through instead.
            ids, width = np.unique(ids, return_inverse=True)[1] + 1, len(ids) + 1
        ids = np.where(known, ids + process * width, NONE)
    else:
        ids = np.where(ids > 0, ids, NONE)
    runtime["correlationId"] = ids[len(ours) :]
    return ids[: len(ours)]


def _call_of(wanted: Ints, runtime: dict[str, Any]) -> Ints:
    """For each correlation id the row of its call (-1: none): of nested calls with one id, the one that began last."""
    ids, begin = runtime["correlationId"], runtime["start"]
    if not len(ids):
        return np.full(len(wanted), NONE, np.int64)
    order = np.lexsort((begin, ids))
    place = np.searchsorted(ids[order], wanted, side="right") - 1
    row = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (ids[row] == wanted) & (wanted > 0), row, NONE)


def _step_of(at: Ints, ranges: Ranges) -> npt.NDArray[np.int32]:
    """The step that an instant falls in, whatever its thread; -1 outside of all."""
    steps = ranges.steps
    lane = np.zeros(len(steps), np.int64)
    row = innermost(steps["start_ns"].to_numpy(), steps["dur_ns"].to_numpy(), lane, at, np.zeros(len(at), np.int64))
    if not len(steps):
        return row.astype(np.int32)
    return np.where(row >= 0, steps["step"].to_numpy()[np.maximum(row, 0)], NONE).astype(np.int32)


def _device_time(operators: pd.DataFrame, kernels: pd.DataFrame) -> Ints:
    """Per operator, the believed device time launched by it and by what it called."""
    own = np.zeros(len(operators), np.int64)
    counted = ((kernels["op_id"] >= 0) & (kernels["flag"] == "")).to_numpy()
    np.add.at(own, kernels["op_id"].to_numpy()[counted], kernels["dur_ns"].to_numpy()[counted])
    return inclusive(operators["parent_id"].to_numpy(), operators["depth"].to_numpy().astype(np.int64), own)


def _runtime_table(runtime: dict[str, Any]) -> pd.DataFrame:
    names: pd.Categorical = runtime["name"]
    kinds = text_column(call_kinds(names.categories))
    frame = pd.DataFrame(
        {
            "name": names,
            "kind": pd.Categorical.from_codes(kinds.codes[names.codes], kinds.categories) if len(names) else [],
            "thread_id": runtime["globalTid"],
            "start_ns": runtime["start"],
            "dur_ns": np.maximum(runtime["end"] - runtime["start"], 0),
            "correlation": runtime["correlationId"],
        }
    )
    return concat([RUNTIME.conform(frame.sort_values("start_ns", kind="stable", ignore_index=True))], RUNTIME)


def _devices(database: Database, kernels: pd.DataFrame) -> tuple[Device, ...]:
    """The devices that worked; where none did, those that the file lists."""
    numbers = {"id": NONE, "smCount": 0, "totalMemory": 0, "computeMajor": NONE, "computeMinor": NONE}
    rows = database.integers("TARGET_INFO_GPU", numbers, texts=("name",))
    listed = {}
    for row in range(len(rows["id"])):
        value = {name: int(rows[name][row]) for name in numbers}
        capability = f"{value['computeMajor']}.{value['computeMinor']}" if value["computeMajor"] >= 0 else None
        listed[f"cuda:{value['id']}"] = Device(
            id=f"cuda:{value['id']}",
            name=str(rows["name"][row] or ""),
            sm_count=value["smCount"] or None,
            memory_bytes=value["totalMemory"] or None,
            compute_capability=capability,
        )
    worked = sorted(kernels["device"].unique().tolist())
    return tuple(listed.get(name, Device(id=name)) for name in worked) or tuple(listed.values())


def _origin(database: Database, path: Path, first: int) -> Origin:
    names = ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
    found = database.pairs("META_DATA_EXPORT", names) or database.pairs("EXPORT_META_DATA", names)
    version = found.get("EXPORT_PRODUCT_VERSION", "")
    began = database.integers("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": 0})["utcEpochNs"]
    return Origin(
        kind="nsys",
        path=str(path),
        tool=f"Nsight Systems {version}".strip(),
        base_ns=int(began[0]) + first if len(began) and began[0] > 0 else None,
        extra={"session_ns": str(first), "schema": found.get("EXPORT_SCHEMA_VERSION", "")},
    )


def _damage(database: Database) -> list[Note]:
    return [
        Note("damaged_table", f"the file is damaged: {table} breaks off after {rows:,} rows, the rest is lost")
        for table, rows in database.damaged
    ]


def _beside(path: Path) -> list[Note]:
    """A write-ahead log beside the file holds rows that are not in it."""
    log = path.with_name(path.name + "-wal")
    if log.is_file() and log.stat().st_size:
        return [
            Note("unfinished_file", "the file is still being written (a -wal file lies beside it): rows may be missing")
        ]
    return []


def _nothing_on_the_device(database: Database, calls: int) -> Note:
    if database.table("CUPTI_ACTIVITY_KIND_KERNEL") is None and not calls:
        text = "no GPU activity: the export has no CUDA tables; record with nsys profile --trace=cuda,nvtx"
    else:
        text = (
            f"no GPU activity: {calls:,} CUDA calls but no kernel; the profiler recorded nothing on the device "
            "(no permission for the counters, the wrong process traced, or kernels outside the captured range)"
        )
    return Note("no_device_activity", text)
