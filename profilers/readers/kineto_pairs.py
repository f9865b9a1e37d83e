"""Durations written in two halves, a begin (ph "B") and an end (ph "E"), become complete events.

The rules are those of the Trace Event Format. Halves belong together by process and thread, in order of time (of equal
times: in the order of the file), and nest like calls. An end needs no name, category or arguments: it closes the
innermost begin. Arguments may stand on either half; where both have one, the end's counts. An end that has a name closes
the last begin of that name, and closes nothing where none is open: so that one lost half costs its own event and not those
around it, and events that overlap, which the format forbids, keep their lengths. A half without its other half has no
length: it is counted and named, not read.

All halves are kept until the file has been read, since a file need not be in the order of time.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from profilers.readers.kineto_events import DECIMAL, MISSING, NO_ARGS, Args
from profilers.tables import Note

HALVES = frozenset({"B", "E"})
"""The phases that are half a duration."""

_AT_A_TIME = 1 << 16
"""So many complete events exist at once."""

_NAMED = 3
"""So many names of lost halves are told."""

_FIELDS = Args.__struct_fields__
_TEXTS = frozenset(name for name in _FIELDS if isinstance(getattr(NO_ARGS, name), Raw))


@dataclass
class _Thread:
    """The begins of one thread that are still open, as (place in time, event). ``stack``: the innermost last, with the
    places of each name; ``passed``: by name, those whose caller has ended already, which only their own name closes."""

    stack: list[tuple[int, int]] = field(default_factory=list)
    places: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    passed: defaultdict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def open(self) -> Iterator[int]:
        for _, index in (*self.stack, *itertools.chain(*self.passed.values())):
            yield index


class Pairs:
    """The halves of one recording. ``begins`` and ``ends`` count, by name, those that ``matched`` found alone."""

    def __init__(self) -> None:
        self.begins: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self._halves: list[Any] = []
        self._times: list[NDArray[np.int64]] = []
        self._same: dict[Any, Any] = {}

    def add(self, halves: list[Any], times: NDArray[np.int64]) -> None:
        """Keep these events, in the order of the file; ``times`` are their nanoseconds."""
        self._halves += map(self._light, halves)
        self._times.append(times)

    def _light(self, half: Any) -> Any:
        """The event without the piece of text that it was read from, and with texts that occur again held once."""
        half.name = self._same.setdefault(half.name, half.name)
        if half.args == NO_ARGS:
            half.args = NO_ARGS
        else:
            half.args = msgspec.structs.replace(
                half.args, **{name: self._text(getattr(half.args, name)) for name in _TEXTS}
            )
        return half

    def _text(self, raw: Raw) -> Raw:
        text = bytes(raw)
        kept: Raw = self._same.setdefault(text, Raw(text))
        return kept

    def matched(self, scale: int) -> Iterator[list[Any]]:
        """One complete event per pair, in the order of their begins, some at a time; ``ts`` and ``dur`` times ``scale``
        are ns. The halves are released on the way.
        """
        halves, self._halves, self._same = self._halves, [], {}
        if not halves:
            return
        times = np.concatenate(self._times).tolist()
        order = np.argsort(np.concatenate(self._times), kind="stable").tolist()
        self._times = []
        end_of: dict[int, int] = {}
        threads: defaultdict[tuple[Any, Any], _Thread] = defaultdict(_Thread)
        for place, index in enumerate(order):
            half = halves[index]
            thread = threads[half.pid, half.tid]
            if half.ph == "B":
                thread.stack.append((place, index))
                thread.places[half.name].append(place)
            elif (begin := _begin_of(half, thread, halves)) is not None:
                end_of[begin] = index
            else:
                self.ends[half.name] += 1
        self.begins.update(halves[index].name for thread in threads.values() for index in thread.open())
        begins = [index for index in order if index in end_of]
        for at in range(0, len(begins), _AT_A_TIME):
            made = []
            for begin in begins[at : at + _AT_A_TIME]:
                end = end_of[begin]
                made.append(_whole(halves[begin], halves[end], times[begin], times[end], scale))
                halves[begin] = halves[end] = None
            yield made

    def notes(self) -> Iterator[Note]:
        """What is to be said of halves that stood alone."""
        if self.begins:
            text = f"begin events (ph B) without an end on their thread: not read ({_names(self.begins)})"
            yield Note("unmatched_begins", text, self.begins.total())
        if self.ends:
            text = f"end events (ph E) without a begin on their thread: not read ({_names(self.ends)})"
            yield Note("unmatched_ends", text, self.ends.total())


def _begin_of(end: Any, thread: _Thread, halves: list[Any]) -> int | None:
    """The begin that an end closes; None where there is none."""
    if end.name is MISSING or not end.name:
        if not thread.stack:
            return None
        _, index = thread.stack.pop()
        thread.places[halves[index].name].pop()
        return index
    places, passed = thread.places.get(end.name), thread.passed.get(end.name)
    if passed and (not places or passed[-1][0] > places[-1]):
        return passed.pop()[1]
    if not places:
        return None
    while True:
        place, index = thread.stack.pop()
        name = halves[index].name
        thread.places[name].pop()
        if name == end.name:
            return index
        bisect.insort(thread.passed[name], (place, index))


def _names(counts: Counter[str]) -> str:
    told = [f"{count:,} {_name(name)}" for name, count in counts.most_common(_NAMED)]
    return ", ".join(told) + (", ..." if len(counts) > _NAMED else "")


def _name(name: str) -> str:
    """A name from the file, fit for one line: no control characters, not endless."""
    if name is MISSING or not name:
        return "without a name"
    return ascii(name[:60])[1:-1] + ("..." if len(name) > 60 else "")


def _whole(begin: Any, end: Any, begin_ns: int, end_ns: int, scale: int) -> Any:
    at, length = Decimal(begin_ns), float(end_ns - begin_ns)
    return DECIMAL(
        ph="X",
        cat=begin.cat or end.cat,
        name=end.name if begin.name is MISSING else begin.name,
        pid=begin.pid,
        tid=begin.tid,
        ts=at / scale,
        dur=length / scale,
        args=_merged(begin.args, end.args),
    )


def _merged(begin: Args, end: Args) -> Args:
    """The arguments of both halves; where both have one, the end's."""
    if end is NO_ARGS:
        return begin
    given = {name: value for name in _FIELDS if (value := getattr(end, name)) != getattr(NO_ARGS, name)}
    return msgspec.structs.replace(begin, **given)
