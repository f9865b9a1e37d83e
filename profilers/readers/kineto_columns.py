"""From event records to typed columns, piece by piece, so that no record lives longer than its piece."""

from __future__ import annotations

import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profilers.readers.calls import LOADING
from profilers.readers.flags import LONGEST_NS
from profilers.readers.kineto_events import MISSING, float_nanoseconds, nanoseconds
from profilers.readers.kineto_pairs import HALVES, Pairs

Ints = NDArray[np.int64]
LONGEST = np.iinfo(np.int64).max
"""The length of an event whose recorded length does not fit in 64 bits."""

_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d+)$")
# Ranges that older profilers filed under operators: the step, the optimizer's step, the data loader's fetch.
_ANNOTATION = re.compile(r"^(nn\.Module: |ProfilerStep\s*#|Optimizer\.\w+#|enumerate\(DataLoader\)#)")
_MODULE = "nn.Module: "
_INSTANCE = re.compile(r"_\d+$")
_WINDOW_END = "Record Window End"
_HUGE_US = 1e17  # Epoch microseconds of the year 5138: larger numbers are nanoseconds.

ROLES = {
    "cpu_op": "operator",
    "operator": "operator",
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "hip_runtime": "runtime",
    "hip_driver": "runtime",
    "runtime": "runtime",
    "user_annotation": "annotation",
    "python_function": "python",
    "cuda_profiler_range": "counters",
    "": "none",
}
"""What each category (lower-cased) is to us. Categories that are not here are counted and add nothing."""


class Codes(dict[Any, int]):
    """Numbers for distinct values, in order of first appearance."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code

    def of(self, values: Iterable[Any], count: int) -> NDArray[np.int32]:
        return np.fromiter(map(self.__getitem__, values), np.int32, count)


@dataclass
class Columns:
    """Named arrays that grow by pieces."""

    parts: dict[str, list[NDArray[Any]]] = field(default_factory=lambda: defaultdict(list))
    rows: int = 0

    def add(self, count: int, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            self.parts[name].append(array)
        self.rows += count

    def take(self, name: str, dtype: Any = np.int64) -> NDArray[Any]:
        """The whole column; its pieces are released."""
        parts = self.parts.pop(name, [])
        return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)


class Collector:
    """All columns of one recording. Times are int64 nanoseconds in the file's own clock.

    ``add`` takes in one piece after the other; after the last, ``close`` takes in what was written in two halves.
    """

    def __init__(self) -> None:
        self.operators, self.kernels, self.runtime = Columns(), Columns(), Columns()
        self.steps, self.modules = Columns(), Columns()
        self.threads, self.op_names, self.kernel_names, self.call_names = Codes(), Codes(), Codes(), Codes()
        self.module_names, self.texts, self.lanes, self.sizes = Codes(), Codes(), Codes(), Codes()
        self.events = 0
        self.categories: Counter[str] = Counter()
        self.pairs = Pairs()
        self.odd_host_times = 0
        self.scale = 1000
        self.window_end = 0
        self.incomplete: list[int] = []

    def add(self, events: Sequence[Any], offset: int = 0) -> None:
        """Take in one piece's events; ``offset`` is the piece's position in the text, for events that lack a part."""
        self.events += len(events)
        found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for event in events:
            found[event.cat][event.ph].append(event)
        for category, phases in found.items():
            self.categories[category] += sum(map(len, phases.values()))
            self._route(category, phases, offset)
        if not all(map(HALVES.isdisjoint, found.values())):  # From all categories at once: an end often has none.
            self._add_halves([event for event in events if event.ph in HALVES], offset)

    def close(self) -> None:
        """Take in the durations that were written as a begin and an end."""
        for made in self.pairs.matched(self.scale):
            found: dict[str, list[Any]] = defaultdict(list)
            for event in made:
                found[event.cat].append(event)
            for category, events in found.items():
                self._route(category, {"X": events}, 0)

    def _route(self, category: str, phases: dict[str, list[Any]], offset: int) -> None:
        """Hand one category's events, by phase, to its columns: the complete ones, or all where it has no name."""
        role = ROLES.get(category.lower(), "")
        if role == "none":
            self._add_none([event for bucket in phases.values() for event in bucket])
        elif role and "X" in phases and (add := getattr(self, f"_add_{role}", None)) is not None:
            add(phases["X"], offset)

    def _add_halves(self, halves: list[Any], offset: int) -> None:
        times, good = self._start(list(map(_TS, halves)))
        if not good.all():
            self.incomplete += [offset] * int(np.count_nonzero(~good))
            halves = [half for half, ok in zip(halves, good.tolist(), strict=True) if ok]
        self.pairs.add(halves, times[good])

    def _complete(self, spans: list[Any], offset: int) -> tuple[list[Any], Ints, Ints]:
        """Those of the complete events that have a name, a time and a length, with start and length in ns."""
        start, good = self._start(list(map(_TS, spans)))
        length = np.fromiter(map(_DUR, spans), np.float64, len(spans))
        dur, fits = float_nanoseconds(length, self.scale)
        dur[~fits] = np.where(length[~fits] < 0, -1, LONGEST)
        good &= ~np.isnan(length)
        good &= np.fromiter((event.name is not MISSING for event in spans), np.bool_, len(spans))
        if not good.all():
            self.incomplete += [offset] * int(np.count_nonzero(~good))
            spans = [event for event, ok in zip(spans, good.tolist(), strict=True) if ok]
            start, dur = start[good], dur[good]
        return spans, start, dur

    def _start(self, times: list[Any]) -> tuple[Ints, NDArray[np.bool_]]:
        if self.scale == 1000 and times:
            first = sum(time is not None and time > _HUGE_US for time in times[:101])
            if first * 2 > len(times[:101]):
                self.scale = 1
        return nanoseconds(times, self.scale)

    def _host(self, bucket: list[Any], offset: int) -> tuple[list[Any], Ints, Ints]:
        """The same for host events: lengths that cannot be are 0, and counted."""
        spans, start, dur = self._complete(bucket, offset)
        bad = (dur < 0) | (dur > LONGEST_NS)
        self.odd_host_times += int(np.count_nonzero(bad))
        return spans, start, np.where(bad, 0, dur)

    def _threads(self, events: list[Any]) -> NDArray[np.int32]:
        return self.threads.of(map(_PID_TID, events), len(events))

    def _add_operator(self, bucket: list[Any], offset: int) -> None:
        if any(map(_ANNOTATION.match, {event.name for event in bucket})):
            self._add_annotation([event for event in bucket if _ANNOTATION.match(event.name)], offset)
            bucket = [event for event in bucket if not _ANNOTATION.match(event.name)]
        events, start, dur = self._host(bucket, offset)
        count = len(events)
        args = [event.args for event in events]
        self.operators.add(
            count,
            start=start,
            dur=dur,
            thread=self._threads(events),
            name=self.op_names.of(map(_NAME, events), count),
            shapes=self.texts.of((bytes(a.dims) or bytes(a.old_dims) for a in args), count),
            dtypes=self.texts.of((bytes(a.types) for a in args), count),
            values=self.texts.of((bytes(a.values) for a in args), count),
            sequence=_column(args, "sequence"),
            forward=_column(args, "forward_thread"),
        )

    def _add_kernel(self, bucket: list[Any], offset: int) -> None:
        self._add_activity(bucket, offset, 0)

    def _add_memcpy(self, bucket: list[Any], offset: int) -> None:
        self._add_activity(bucket, offset, 1)

    def _add_memset(self, bucket: list[Any], offset: int) -> None:
        self._add_activity(bucket, offset, 2)

    def _add_activity(self, bucket: list[Any], offset: int, kind: int) -> None:
        events, start, dur = self._complete(bucket, offset)
        count = len(events)
        args = [event.args for event in events]
        self.kernels.add(
            count,
            start=start,
            dur=dur,
            kind=np.full(count, kind, np.int8),
            name=self.kernel_names.of(map(_NAME, events), count),
            lane=self.lanes.of(((a.device, a.stream, e.pid, e.tid) for a, e in zip(args, events, strict=True)), count),
            correlation=_column(args, "correlation"),
            grid=self.sizes.of((bytes(a.grid) for a in args), count),
            block=self.sizes.of((bytes(a.block) for a in args), count),
            registers=_column(args, "registers"),
            shared=_column(args, "shared"),
            size=_bytes_moved(args),
        )

    def _add_runtime(self, bucket: list[Any], offset: int) -> None:
        events, start, dur = self._host(bucket, offset)
        count = len(events)
        self.runtime.add(
            count,
            start=start,
            dur=dur,
            thread=self._threads(events),
            name=self.call_names.of(map(_NAME, events), count),
            correlation=_column([event.args for event in events], "correlation"),
        )

    def _add_annotation(self, bucket: list[Any], offset: int) -> None:
        self._add_modules([event for event in bucket if event.name.startswith(_MODULE)], offset, str)
        marked = [event for event in bucket if _STEP.match(event.name)]
        if marked:
            events, start, dur = self._host(marked, offset)
            numbers = [int(match[1]) for event in events if (match := _STEP.match(event.name))]
            self.steps.add(len(events), start=start, dur=dur, thread=self._threads(events), step=np.array(numbers))

        loads = [event for event in bucket if event.name.startswith(LOADING)]
        if loads:
            self._add_runtime(loads, offset)

    def _add_python(self, bucket: list[Any], offset: int) -> None:
        found = [event for event in bucket if event.name.startswith(_MODULE)]
        self._add_modules(found, offset, lambda name: _INSTANCE.sub("", name))

    def _add_modules(self, found: list[Any], offset: int, plain: Callable[[str], str]) -> None:
        if not found:
            return
        events, start, dur = self._host(found, offset)
        names = self.module_names.of((plain(event.name[len(_MODULE) :].strip()) for event in events), len(events))
        self.modules.add(len(events), start=start, dur=dur, thread=self._threads(events), name=names)

    def _add_none(self, bucket: list[Any]) -> None:
        ends = [event.ts for event in bucket if event.name == _WINDOW_END]
        if ends:
            when, fits = self._start(ends)
            self.window_end = max([self.window_end, *when[fits].tolist()])


_PID_TID = operator.attrgetter("pid", "tid")
_TS, _DUR = operator.attrgetter("ts"), operator.attrgetter("dur")
_NAME = operator.attrgetter("name")


def _column(args: list[Any], name: str) -> Ints:
    """An integer argument; what no int64 holds wraps around, so that equal ids stay equal and others stay apart."""
    values = map(operator.attrgetter(name), args)
    try:
        return np.fromiter(values, np.int64, len(args))
    except OverflowError:
        wrapped = [wrap(int(getattr(one, name))) for one in args]
        return np.array(wrapped, np.int64)


def wrap(value: int) -> int:
    """An integer as the int64 with the same last 64 bits (the value itself wherever it fits)."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _bytes_moved(args: list[Any]) -> Ints:
    """How much a copy or set moves: a number, or (HIP) a number written as text."""
    try:
        return _column(args, "size")
    except ValueError:
        sizes = [int(one.size) if str(one.size).isdigit() else -1 for one in args]
        return np.array([size if size < 1 << 62 else -1 for size in sizes], np.int64)
