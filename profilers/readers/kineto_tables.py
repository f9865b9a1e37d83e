"""From collected columns to the tables: nesting, modules, links from kernels to operators, marks, steps."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from profilers.readers.calls import call_kinds
from profilers.readers.flags import FLAGS, flag_column, flag_durations, flag_notes
from profilers.readers.kineto_columns import Codes, Collector, Ints, wrap
from profilers.readers.nesting import inclusive, innermost, nest
from profilers.tables import KERNELS, NONE, OPERATORS, RUNTIME, STEPS, Note

_KINDS = pd.Index(["kernel", "memcpy", "memset"])
_STREAM = re.compile(r"^(?:stream\s+)?(-?\d+|0[xX][0-9a-fA-F]+)$")
_GRAPH = re.compile(r"GraphLaunch")
_SECOND_NS = 1_000_000_000
_MINUTE_NS = 60 * _SECOND_NS
_QUARTER_NS = 10_000_000_000_000_000
"""About 116 days: Kineto moves its clock base every quarter of a year, so no time lies further from it."""


@dataclass
class Clock:
    """How the file's times become the recording's. ``origin`` is subtracted; ``divide`` undoes a unit written wrong."""

    origin: int = 0
    divide: int = 1
    zeros: bool = False
    """A time of 0 means "never completed": everything else lies far from it."""
    absolute: bool = False
    """The times are counted from 1970 although the file names a clock base."""

    def starts(self, raw: Ints) -> Ints:
        return raw // self.divide - self.origin


@dataclass
class Built:
    """The tables, the devices used (by number) and what there is to say."""

    operators: pd.DataFrame
    kernels: pd.DataFrame
    steps: pd.DataFrame
    runtime: pd.DataFrame
    clock: Clock
    used: list[int] = field(default_factory=list)
    hip: bool = False
    notes: list[Note] = field(default_factory=list)


def build(found: Collector, base_ns: int | None) -> Built:
    """Tables of everything collected. ``base_ns`` is the file's ``baseTimeNanoseconds``."""
    notes: list[Note] = []
    columns = {
        name: {key: table.take(key) for key in list(table.parts)}
        for name, table in (
            ("operators", found.operators),
            ("kernels", found.kernels),
            ("runtime", found.runtime),
            ("steps", found.steps),
            ("modules", found.modules),
        )
    }
    clock = _clock([part["start"] for part in columns.values() if part], base_ns, found.scale, notes)
    odd = found.odd_host_times
    for name, part in columns.items():
        if part and name != "kernels":
            odd += _settle(part, clock)
    if odd:
        text = "host events with an impossible time or length: the length is taken as 0, without a time left out"
        notes.append(Note("odd_host_times", text, odd))
    threads = _thread_numbers(found.threads)
    steps = _steps(columns["steps"], clock, threads, notes)
    runtime = _runtime(columns["runtime"], clock, threads, found.call_names)
    operators, forward = _operators(columns["operators"], clock, threads, found)
    _modules(operators, forward, columns["modules"], clock, threads, found.module_names)
    operators["step"] = _step_at(steps, operators["start_ns"])
    kernels, used = _kernels(columns["kernels"], clock, found, notes)
    window_end = found.window_end // clock.divide - clock.origin if found.window_end else 0
    _link(kernels, operators, runtime, window_end, notes)
    when = np.where(kernels["launch_ns"] >= 0, kernels["launch_ns"], kernels["start_ns"])
    kernels["step"] = _step_at(steps, when)
    hip = any(name.startswith("hip") for name in found.call_names)
    return Built(
        operators=_frame(OPERATORS, operators),
        kernels=_frame(KERNELS, kernels),
        steps=_frame(STEPS, steps),
        runtime=_frame(RUNTIME, runtime),
        clock=clock,
        used=used,
        hip=hip,
        notes=notes,
    )


def _frame(schema: Any, data: dict[str, Any]) -> pd.DataFrame:
    drop = [name for name in data if name.startswith("_")]
    for name in drop:
        del data[name]
    return schema.conform(pd.DataFrame(data, copy=False))


def _clock(starts: list[Ints], base_ns: int | None, scale: int, notes: list[Note]) -> Clock:
    """Find the origin (the earliest event), and see whether the times are nanoseconds by mistake.

    Kineto writes microseconds whatever ``displayTimeUnit`` says. Times that lie years behind a clock base that moves
    every quarter, or in the year 50,000, are nanoseconds.
    """
    clock = Clock()
    every = [part for part in starts if len(part)]
    if not every:
        return clock
    sample = np.concatenate([part[:: max(1, len(part) // 1000)] for part in every])
    sample = sample[sample != 0]
    middle = int(np.median(sample)) if len(sample) else 0
    if base_ns and scale != 1 and base_ns <= middle < base_ns + _QUARTER_NS:
        clock.absolute = True
        notes.append(
            Note("base_already_added", "the times already include the file's clock base: it is not added again")
        )
    elif scale == 1 or (base_ns and middle > _QUARTER_NS):
        clock.divide = 1000 if scale != 1 else 1
        notes.append(
            Note("times_in_ns", "the times are nanoseconds, where this format has microseconds: read as nanoseconds")
        )
    earliest = [int(part[part != 0].min()) for part in every if np.any(part != 0)]
    if not earliest:
        return clock
    low = min(earliest)
    clock.zeros = low > _MINUTE_NS
    if not clock.zeros:
        low = min(int(part.min()) for part in every)
    clock.origin = low // clock.divide
    return clock


def _settle(part: dict[str, NDArray[Any]], clock: Clock) -> int:
    """Host events: lengths in ns; those that were never completed (time 0) are left out. How many were."""
    if clock.divide != 1:
        part["dur"] //= clock.divide
    keep = (part["start"] != 0) | (not clock.zeros)
    if not keep.all():
        for name in part:
            part[name] = part[name][keep]
    return int(np.count_nonzero(~keep))


def _thread_numbers(threads: Codes) -> Ints:
    """The thread id of every (pid, tid): the tid itself, or a fresh number where two processes share one."""
    plain = [_plain_thread(tid) for _, tid in threads]
    shared = Counter(number for number in plain if number is not None)
    fresh = max([number for number in plain if number is not None], default=0) + 1
    numbers = []
    for number in plain:
        if number is None or shared[number] > 1:
            numbers.append(fresh)
            fresh += 1
        else:
            numbers.append(number)
    return np.array(numbers, np.int64)


def _plain_thread(tid: int | str) -> int | None:
    if isinstance(tid, str):
        match = _STREAM.match(tid)
        if not match:
            return None
        tid = int(match[1], 0)
    return tid if 0 <= tid < 1 << 62 else None


def _category(codes: NDArray[Any], names: Any) -> Any:
    """Codes into ``names`` as a categorical of the names that occur; equal names become one category."""
    names = list(names)
    if not names:
        return pd.Categorical.from_codes(np.zeros(len(codes), np.int8), pd.Index([""]))
    seen = np.zeros(len(names), np.bool_)
    seen[codes] = True
    kept: dict[str, int] = {}
    place = np.zeros(len(names), np.int32)
    for index in np.flatnonzero(seen).tolist():
        place[index] = kept.setdefault(names[index], len(kept))
    return pd.Categorical.from_codes(place[codes], pd.Index(list(kept)))


def _steps(part: dict[str, Any], clock: Clock, threads: Ints, notes: list[Note]) -> dict[str, Any]:
    if not part:
        return {name: np.zeros(0, np.int64) for name in STEPS.names}
    order = np.lexsort((part["dur"], part["start"]))
    number = part["step"][order]
    start, dur = clock.starts(part["start"][order]), part["dur"][order]
    thread = threads[part["thread"][order]]
    same = np.zeros(len(order), np.bool_)
    same[1:] = (number[1:] == number[:-1]) & (start[1:] == start[:-1])
    number, start, dur, thread = number[~same], start[~same], dur[~same], thread[~same]
    if len(np.unique(number)) < len(number):
        text = "step numbers repeat in this recording: the steps are numbered in order of time"
        notes.append(Note("repeated_steps", text))
        number = np.arange(len(number))
    return {"step": number, "start_ns": start, "dur_ns": dur, "thread_id": thread}


def _step_at(steps: dict[str, Any], when: Any) -> NDArray[np.int32]:
    """The step in which each instant falls, on whatever thread; -1 outside all steps."""
    if not len(steps["start_ns"]):
        return np.full(len(when), NONE, np.int32)
    row = np.searchsorted(steps["start_ns"], when, side="right") - 1
    inside = (row >= 0) & (when < steps["start_ns"][row] + steps["dur_ns"][row])
    return np.where(inside, steps["step"][row], NONE).astype(np.int32)


def _runtime(part: dict[str, Any], clock: Clock, threads: Ints, names: Codes) -> dict[str, Any]:
    if not part:
        return {name: np.zeros(0, np.int64) for name in ("thread_id", "start_ns", "dur_ns", "correlation", "_graph")}
    order = np.argsort(part["start"], kind="stable")
    code = part["name"][order]
    distinct = list(names)
    return {
        "name": _category(code, distinct),
        "kind": _category(code, call_kinds(distinct)),
        "thread_id": threads[part["thread"][order]],
        "start_ns": clock.starts(part["start"][order]),
        "dur_ns": part["dur"][order],
        "correlation": part["correlation"][order],
        "_graph": np.array([bool(_GRAPH.search(name)) for name in distinct])[code],
    }


def _operators(
    part: dict[str, Any], clock: Clock, threads: Ints, found: Collector
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The operators in order of start, nested; and their autograd numbers, for the modules of backward operators."""
    if not part:
        empty = {name: np.zeros(0, np.int64) for name in ("start_ns", "dur_ns", "thread_id", "parent_id", "depth")}
        return empty, {}
    order = np.lexsort((-part["dur"], part["start"]))
    start, dur = clock.starts(part["start"][order]), part["dur"][order]
    thread = threads[part["thread"][order]]
    parent, depth, own = nest(start, dur, thread)
    texts = [_compact(text) for text in found.texts]
    table = {
        "op_id": np.arange(len(order)),
        "name": _category(part["name"][order], found.op_names),
        "start_ns": start,
        "dur_ns": dur,
        "self_ns": own,
        "thread_id": thread,
        "parent_id": parent,
        "depth": depth,
        "input_shapes": _category(part["shapes"][order], texts),
        "input_dtypes": _category(part["dtypes"][order], texts),
        "input_values": _category(part["values"][order], texts),
    }
    return table, {"sequence": part["sequence"][order], "forward": part["forward"][order]}


def _compact(text: bytes) -> str:
    """A JSON text without the spaces and line breaks of the file's own layout."""
    if not text:
        return ""
    try:
        return msgspec.json.encode(msgspec.json.decode(text)).decode()
    except msgspec.MsgspecError:
        return text.decode("utf-8", "replace")


def _modules(
    operators: dict[str, Any],
    forward: dict[str, Any],
    part: dict[str, Any],
    clock: Clock,
    threads: Ints,
    names: Codes,
) -> None:
    """Fill ``module``: the innermost module range at the operator's start, else that of its forward operator."""
    if not part or not len(operators["start_ns"]):
        return
    start = clock.starts(part["start"])
    row = innermost(start, part["dur"], threads[part["thread"]], operators["start_ns"], operators["thread_id"])
    module = np.where(row >= 0, part["name"][row] + 1, 0)
    _backward_modules(module, operators, forward)
    for depth in range(1, int(operators["depth"].max()) + 1):
        rows = np.flatnonzero((operators["depth"] == depth) & (module == 0))
        module[rows] = module[operators["parent_id"][rows]]
    operators["module"] = _category(module, ["", *names])


def _backward_modules(module: Ints, operators: dict[str, Any], forward: dict[str, Any]) -> None:
    """A backward operator belongs to the module of the forward operator with its autograd sequence number.

    Operators that make no autograd node carry the number of the next one to come, so that of several forward operators
    with one number the last before the backward operator is meant.
    """
    sequence = forward["sequence"]
    is_backward = (forward["forward"] > 0) & (sequence >= 0) & (module == 0)
    sources = np.flatnonzero((forward["forward"] == 0) & (sequence >= 0) & (module > 0))
    targets = np.flatnonzero(is_backward)
    if not len(sources) or not len(targets):
        return
    sources = sources[np.argsort(sequence[sources], kind="stable")]  # Within a number: in order of start.
    last = np.searchsorted(sequence[sources], sequence[targets], side="right") - 1
    row = sources[np.maximum(last, 0)]
    fits = (last >= 0) & (sequence[row] == sequence[targets]) & (row < targets)
    module[targets[fits]] = module[row[fits]]


def _kernels(
    part: dict[str, Any], clock: Clock, found: Collector, notes: list[Note]
) -> tuple[dict[str, Any], list[int]]:
    """Device activities in order of start: names, devices, streams, launch sizes; identical records once."""
    if not part:
        names = ("start_ns", "dur_ns", "correlation")
        return {name: np.zeros(0, np.int64) for name in names} | {"launch_ns": np.zeros(0, np.int64)}, []
    zero = (part["start"] == 0) & clock.zeros
    part["start"] = np.where(zero, NONE, clock.starts(part["start"]))
    huge = part["dur"] == np.iinfo(np.int64).max
    part["dur"] = np.where(huge, part["dur"], part["dur"] // clock.divide)
    order = np.argsort(part["start"], kind="stable")
    lanes = [_lane(key) for key in found.lanes]
    device = np.array([one for one, _ in lanes], np.int64)[part["lane"]]
    stream = np.array([one for _, one in lanes], np.int64)[part["lane"]]
    order = order[_first_of_each(part, device, stream, order, notes)]
    taken = {name: values[order] for name, values in part.items()}
    device, stream, zero = device[order], stream[order], zero[order]
    grid, blocks = _sizes(found.sizes, taken["grid"])
    block, block_threads = _sizes(found.sizes, taken["block"])
    used = sorted(set(device.tolist()))
    place = np.searchsorted(used, device)
    table = {
        "kind": pd.Categorical.from_codes(taken["kind"], _KINDS),
        "name": _category(taken["name"], found.kernel_names),
        "device": pd.Categorical.from_codes(place, pd.Index([f"cuda:{index}" for index in used])),
        "stream": stream,
        "start_ns": taken["start"],
        "dur_ns": taken["dur"],
        "grid": grid,
        "block": block,
        "threads": np.where((blocks > 0) & (block_threads > 0), blocks * block_threads, NONE),
        "registers": np.clip(taken["registers"], NONE, 1 << 30),
        "shared_bytes": np.maximum(taken["shared"], NONE),
        "correlation": np.where(taken["correlation"] == -1, NONE, taken["correlation"]),
        "bytes": np.where(taken["size"] >= 0, taken["size"], np.nan),
        "_lane": place * (np.int64(len(lanes)) + 1) + taken["lane"],
        "_zero": zero,
    }
    return table, used


def _first_of_each(
    part: dict[str, Any], device: Ints, stream: Ints, order: Ints, notes: list[Note]
) -> NDArray[np.bool_]:
    """False for the second and later of identical records (a recorder that kept several steps writes some twice)."""
    keys = pd.DataFrame(
        {
            "start": part["start"],
            "dur": part["dur"],
            "device": device,
            "stream": stream,
            "correlation": part["correlation"],
            "name": part["name"],
        },
        copy=False,
    )
    repeated = keys.duplicated().to_numpy() & (part["start"] >= 0)
    if repeated.any():
        count = int(np.count_nonzero(repeated))
        text = "device activities recorded twice, identical in every field: counted once"
        notes.append(Note("duplicate_kernels", text, count))
    return ~repeated[order]


def _lane(key: tuple[int, int | str, int | str, int | str]) -> tuple[int, int]:
    """Device number and stream of a (device, stream, pid, tid): arguments first, else the row it was drawn in."""
    device, stream, pid, tid = key
    number = device if device >= 0 else _stream_number(pid)
    return number, _stream_number(stream if stream != -1 else tid)


def _stream_number(value: int | str) -> int:
    if isinstance(value, str):
        match = _STREAM.match(value)
        return wrap(int(match[1], 0)) if match else NONE
    return wrap(value)


def _sizes(sizes: Codes, codes: NDArray[Any]) -> tuple[Any, Ints]:
    """Launch sizes as ``XxYxZ`` and their products (-1 where nothing is recorded)."""
    parsed = []
    for raw in sizes:
        try:
            values = msgspec.json.decode(raw, type=list[int]) if raw else []
        except msgspec.MsgspecError:
            values = []
        parsed.append(values)
    texts = ["x".join(map(str, values)) for values in parsed]
    products = [prod(values) if values and 0 < prod(values) < 1 << 31 else NONE for values in parsed]
    return _category(codes, texts), np.array(products, np.int64)[codes]


def _link(
    kernels: dict[str, Any],
    operators: dict[str, Any],
    runtime: dict[str, Any],
    window_end: int,
    notes: list[Note],
) -> None:
    """Kernel -> launch (by correlation) -> innermost operator of the launching thread that holds the launch."""
    count = len(kernels["start_ns"])
    launch = _launches(kernels["correlation"], runtime, notes)
    held = launch >= 0
    graph = np.zeros(count, np.bool_)
    graph[held] = runtime["_graph"][launch[held]]
    # With the launch out of the window, a correlation of several activities still tells a graph's replay.
    missing = np.flatnonzero(~held & (kernels["correlation"] > 0))
    _, which, times = np.unique(kernels["correlation"][missing], return_inverse=True, return_counts=True)
    graph[missing] = times[which] > 1
    launch_ns = np.full(count, NONE, np.int64)
    launch_ns[held] = runtime["start_ns"][launch[held]]
    op_id = np.full(count, NONE, np.int64)
    if len(operators["start_ns"]):
        op_id[held] = innermost(
            operators["start_ns"],
            operators["dur_ns"],
            operators["thread_id"],
            launch_ns[held],
            runtime["thread_id"][launch[held]],
            parent=operators["parent_id"],
        )
    kernels |= {"graph": graph, "launch_ns": launch_ns, "op_id": op_id}
    if not count:
        return
    flags = flag_durations(kernels["start_ns"], kernels["dur_ns"], kernels["_lane"], graph=graph, zero=kernels["_zero"])
    if window_end > 0:
        # The last kernel of a stream has no successor to run over, but nothing runs on after the recording has ended.
        ends = kernels["start_ns"] + np.where(flags == 0, kernels["dur_ns"], 0)
        flags[ends > window_end + _SECOND_NS] = FLAGS.index("overrun")
    kernels["flag"] = flag_column(flags)
    notes += flag_notes(flags)
    is_kernel = kernels["kind"].codes == 0
    unlaunched = int(np.count_nonzero(~held & is_kernel))
    if unlaunched:
        total = int(np.count_nonzero(is_kernel))
        why = "launched before it began" if np.any(kernels["correlation"][is_kernel] > 0) else "no correlation ids"
        text = f"of {total:,} kernels have no launch in the recording ({why}): counted, without operator"
        notes.append(Note("unlaunched_kernels", text, unlaunched))
    if len(operators["start_ns"]):
        good = np.flatnonzero((flags == 0) & (op_id >= 0))
        time = np.zeros(len(operators["start_ns"]), np.int64)
        np.add.at(time, op_id[good], kernels["dur_ns"][good])
        operators["device_ns"] = inclusive(operators["parent_id"], operators["depth"], time)


def _launches(correlation: Ints, runtime: dict[str, Any], notes: list[Note]) -> Ints:
    """The row of the runtime call that launched each activity, -1 where none or no single one is recorded."""
    rows = np.flatnonzero(runtime["correlation"] >= 0)
    if not len(rows) or not len(correlation):
        return np.full(len(correlation), NONE, np.int64)
    # Launches and copies before other calls of the same number; among those the outer one, which began first.
    kinds = runtime["kind"]
    rank = np.isin(kinds.codes, [i for i, kind in enumerate(kinds.categories) if kind in ("launch", "copy")])[rows]
    order = np.lexsort((~rank, runtime["correlation"][rows]))
    rows, rank = rows[order], rank[order]
    numbers, first = np.unique(runtime["correlation"][rows], return_index=True)
    place = np.minimum(np.searchsorted(numbers, correlation), len(numbers) - 1)
    hit = (numbers[place] == correlation) & (correlation >= 0)
    launch = np.where(hit, rows[first[place]], NONE)
    # Two threads that both launched under one number (several processes in one file): which one, nobody can tell.
    beside = np.minimum(first + 1, len(rows) - 1)
    twice = (beside > first) & (runtime["correlation"][rows[beside]] == numbers) & (rank[beside] == rank[first])
    twice &= runtime["thread_id"][rows[beside]] != runtime["thread_id"][rows[first]]
    unsure = hit & twice[place]
    if unsure.any():
        count = int(np.count_nonzero(unsure))
        text = "device activities with launches on two threads under one correlation id: left without operator"
        notes.append(Note("ambiguous_launches", text, count))
        launch[unsure] = NONE
    return launch
