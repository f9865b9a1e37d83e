"""Walks through a recording's text: what stands before the list of events, the list in pieces, and what follows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from profilers.readers.errors import ReadError
from profilers.readers.kineto_events import Decoder
from profilers.readers.salvage import UNREADABLE, scan
from profilers.tables import Note

_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb'\}(\s*,\s*)(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|args|s|bp)"\s*:)')
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_LARGEST = 64 << 20
"""No event, and nothing before or after the list of events, is expected to be longer than this."""

_FOREIGN = (
    (b'"rocprofiler-sdk-tool"', "a rocprofv3 JSON result; convert it with rocprofv3 --output-format pftrace or csv"),
    (b'"planes"', "an XPlane dump; export a Chrome trace from the profiler instead"),
    (b'"nodes"', "a PyTorch execution trace, which holds no times; open the Kineto trace recorded with it"),
)


class Reader:
    """Feeds every event of ``pieces`` (UTF-8 text) to ``add(events, position)``.

    Afterwards ``head`` is what stands before the list of events (with its opening bracket), ``tail`` what follows it,
    ``notes`` tells what was mended, lost or missing, and ``cut`` whether the list was never closed.
    """

    def __init__(self, name: str, pieces: Iterator[bytes], add: Callable[[list[Any], int], None]) -> None:
        self.name = name
        self.head, self.tail = b"", b""
        self.notes: list[Note] = []
        self.cut = False
        self._pieces = pieces
        self._add = add
        self._decoder = Decoder()
        self._repaired: Counter[str] = Counter()
        self._repaired_at: list[int] = []
        self._lost: list[tuple[int, str]] = []

    def read(self) -> None:
        """Read it all. Raises ReadError where this is no trace of events."""
        data, offset = self._find_list()
        for more in self._pieces:
            data += more
            cut = _last_boundary(data)
            if cut is None:
                if len(data) > _LARGEST:
                    raise ReadError(f"{self.name}: no event ends within {_LARGEST >> 20} MiB after byte {offset:,}")
                continue
            end = self._take(data[: cut.start(1)], offset, last=False)
            if end >= 0:
                self._keep_tail(data[end:])
                break
            offset += cut.end(1)
            data = data[cut.end(1) :]
        else:
            end = self._take(data, offset, last=True)
            if end >= 0:
                self._keep_tail(data[end:])
            else:
                self.cut = True
                text = "the file ends before its list of events is closed; the events up to there are read"
                self.notes.append(Note("unclosed", text))
        self._conclude()

    def _find_list(self) -> tuple[bytes, int]:
        """The text behind the bracket that opens the list of events, and its position."""
        data = b""
        for more in self._pieces:
            data += more
            found = _LIST.search(data)
            if found:
                self.head = data[: found.end()]
                return data[found.end() :], found.end()
            text = data.lstrip()
            if text[:1] == b"[":
                self.head = b"["
                begin = len(data) - len(text) + 1
                return data[begin:], begin
            if len(data) > _LARGEST:
                break
        if not data.strip():
            raise ReadError(f"{self.name} holds no text: the recording was never written; record it again")
        if data.lstrip()[:1] != b"{":
            begins = data.lstrip()[:24]
            raise ReadError(f"{self.name} is not a Chrome trace: it begins with {begins!r}, not with {{ or [")
        self._refuse_foreign(data)
        raise ReadError(f"{self.name} is JSON without a list of traceEvents: not a trace of the PyTorch profiler")

    def _refuse_foreign(self, data: bytes) -> None:
        start = data[: 1 << 16]
        for mark, what in _FOREIGN:
            if mark in start:
                raise ReadError(f"{self.name} is {what}")

    def _take(self, piece: bytes, offset: int, *, last: bool) -> int:
        """Read a piece of the list; the position behind the list's closing bracket, or -1 where it goes on."""
        text = b"[" + piece if last else b"[" + piece + b"]"
        try:
            self._whole(text, offset)
            return len(piece) if last else -1
        except UNREADABLE as error:
            closed = _TRAILING.search(str(error))
        if closed:
            # The decoder names the byte behind the first one it did not expect; the bracket stands before that.
            for stop in (int(closed[1]), int(closed[1]) - 1):
                end = text.rfind(b"]", 0, stop) + 1
                try:
                    self._whole(text[:end], offset)
                    return end - 1
                except UNREADABLE:
                    pass
        elif last:
            try:
                self._whole(text.rstrip(b" \t\r\n,") + b"]", offset)
                return -1
            except UNREADABLE:
                pass
        found = scan(piece, self._decoder.one)
        self._repaired.update(found.repaired)
        self._repaired_at += [offset + at for at in found.repaired_at]
        self._lost += [(offset + at, why) for at, why in found.lost]
        self._add(found.items, offset)
        return found.tail

    def _whole(self, text: bytes, offset: int) -> None:
        try:
            events: list[Any] = self._decoder.whole(text)
        except msgspec.ValidationError:
            loose = self._decoder.loose(text)
            events = [event for event in loose if event is not None]
            self._lost += [(offset, "not an event")] * (len(loose) - len(events))
        self._add(events, offset)

    def _keep_tail(self, rest: bytes) -> None:
        """Keep what follows the list. A second recording glued to the first is named, not read."""
        parts, size = [rest], len(rest)
        for more in self._pieces:
            size += len(more)
            if size <= _LARGEST:
                parts.append(more)
        self.tail = b"".join(parts)
        again = _LIST.search(self.tail)
        if again:
            text = "a second list of events follows the first in this file; only the first is read"
            self.notes.append(Note("second_recording", text))
            self.tail = self.tail[: again.start()]

    def _conclude(self) -> None:
        if self._repaired:
            total = len(self._repaired_at)
            what = ", ".join(sorted(self._repaired))
            where = self._repaired_at[0]
            text = f"events of damaged JSON were mended ({what}), the first near byte {where:,}"
            self.notes.append(Note("repaired_events", text, total))
        if self._decoder.odd:
            text = "events hold numbers written as text, null, or other odd types; they are read as what they say"
            self.notes.append(Note("odd_types", text, self._decoder.odd))
        if self._lost:
            where, why = self._lost[0]
            text = f"items of the list of events could not be read, the first near byte {where:,} ({why})"
            self.notes.append(Note("lost_events", text, len(self._lost)))


def _last_boundary(data: bytes) -> re.Match[bytes] | None:
    """The last place where one event ends and another begins."""
    width = 1 << 18
    while True:
        begin = max(0, len(data) - width)
        last = None
        for last in _BOUNDARY.finditer(data, begin):  # noqa: B007
            pass
        if last is not None or begin == 0:
            return last
        width *= 8
