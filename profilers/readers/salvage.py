"""Getting events out of damaged JSON: find each one again, mend what can be mended, and count what is lost.

Nothing here knows what an event means. ``scan`` takes the bytes of a list of objects and a function that turns one
object's text into whatever the caller wants (raising one of ``UNREADABLE`` where it cannot).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What the decoder raises for text that it cannot read; the second for brackets nested thousands deep."""

# An object of a list whose first key is one that every trace event has. A quote inside a JSON string is always escaped,
# so this cannot match inside an undamaged string; in a damaged one it is where reading can begin again.
_START = re.compile(rb'(?<![:\s])\s*(\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|args|s|bp)"\s*:)')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_SPACE = b" \t\r\n"
_JOIN = 16  # An object cut in two by a nested list of objects is put together again from at most so many parts.


@dataclass
class Salvaged(Generic[T]):
    """What ``scan`` found. Positions are bytes from the beginning of the text.

    ``repaired`` counts the kinds of mending, ``lost`` holds (position, reason) of what could not be read, ``tail`` is
    the position behind the list's closing bracket (-1: the list was not closed).
    """

    items: list[T] = field(default_factory=list)
    repaired: Counter[str] = field(default_factory=Counter)
    repaired_at: list[int] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)
    tail: int = -1


def scan(data: bytes, accept: Callable[[bytes], T]) -> Salvaged[T]:
    """Every object that can be had from ``data``, the inside of a JSON list from its first object on."""
    found: Salvaged[T] = Salvaged()
    starts = [match.start(1) for match in _START.finditer(data)]
    if not starts or data[: starts[0]].strip(_SPACE + b","):
        starts.insert(0, 0)
    starts.append(len(data))
    index = 0
    while index < len(starts) - 1 and found.tail < 0:
        index += _one(data, starts, index, accept, found)
    return found


def _one(data: bytes, starts: list[int], index: int, accept: Callable[[bytes], T], found: Salvaged[T]) -> int:
    """Read what begins at ``starts[index]``; how many of the starts are done with."""
    begin, stop = starts[index], starts[index + 1]
    end = data.rfind(b"}", begin, stop) + 1
    if end and _taken(data[begin:end], accept, found):
        return _behind(data, begin, end, stop, accept, found)
    end = object_end(data, begin, stop)
    if end > 0 and _taken(data[begin:end], accept, found):
        return _behind(data, begin, end, stop, accept, found)
    if end < 0:
        for more in range(2, min(_JOIN, len(starts) - index)):
            joined = object_end(data, begin, starts[index + more])
            if joined > 0 and _taken(data[begin:joined], accept, found):
                _behind(data, begin, joined, starts[index + more], accept, found)
                return more
    last = data.rfind(b"}", begin, stop) + 1
    for close in dict.fromkeys(e for e in (end, last) if e > 0):
        for text, kinds in repairs(data[begin:close]):
            if _taken(text, accept, found):
                found.repaired.update(kinds)
                found.repaired_at.append(begin)
                return _behind(data, begin, close, stop, accept, found)
    if data[begin:stop].strip(_SPACE + b","):
        reason = "cut off" if stop == len(data) and not last else "not readable"
        found.lost.append((begin, reason))
    return 1


def _behind(data: bytes, begin: int, end: int, stop: int, accept: Callable[[bytes], T], found: Salvaged[T]) -> int:
    """What follows an object before the next known start: separators, the end of the list, other items, or rubbish."""
    while end < stop:
        if data[end] in b" \t\r\n,":
            end += 1
        elif data[end : end + 1] == b"]":
            found.tail = end + 1
            break
        elif data[end : end + 1] == b"{":
            closed = object_end(data, end, stop)
            if closed < 0 or not _taken(data[end:closed], accept, found):
                found.lost.append((end, "not readable"))
            end = closed if closed > 0 else stop
        else:
            # Not an object: a number, a string, null. One item of the list, which is no event.
            close = _item_end(data, end, stop)
            found.lost.append((end, "not an event"))
            end = close
    return 1


def _taken(text: bytes, accept: Callable[[bytes], T], found: Salvaged[T]) -> bool:
    try:
        found.items.append(accept(text))
    except UNREADABLE:
        return False
    return True


def object_end(data: bytes, begin: int, stop: int) -> int:
    """The position behind the object (or list) that begins at ``begin``, minding strings; -1 if it does not end."""
    depth = 0
    for match in _TOKEN.finditer(data, begin, stop):
        token = data[match.start()]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth <= 0:
                return match.end()
    return -1


def _item_end(data: bytes, begin: int, stop: int) -> int:
    """The position of the comma or bracket behind a list item that is not an object; ``stop`` for a list left open."""
    if data[begin : begin + 1] == b"[":
        # Not one byte further: each of a thousand open brackets would look through all that follows it.
        closed = object_end(data, begin, stop)
        return closed if closed > 0 else stop
    match = re.compile(rb'(?:"(?:[^"\\]|\\.)*"|[^,\]{"])+|.', re.DOTALL).match(data, begin, stop)
    return match.end() if match else stop


_TEXT = re.compile(
    r"""("(?:[^"\\]|\\.)*")|(-?\b(?:nan|inf|infinity)\b)|(,(?=\s*[}\]]))|([\x00-\x08\x0b\x0c\x0e-\x1f])""",
    re.DOTALL | re.IGNORECASE,
)
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SURROGATE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..")
_CONTROL = re.compile(r"[\x00-\x1f]")
_VALUE = re.compile(
    r"""("(?:[^"\\]|\\.)*"\s*:\s*)"(.*?)"(?=\s*(?:[}\]]|,\s*"(?:[^"\\]|\\.)*"\s*:))""",
    re.DOTALL,
)
_BARE_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')


def repairs(text: bytes) -> Iterator[tuple[bytes, list[str]]]:
    """Mended versions of one JSON object's text, each with what was mended; the least invasive first."""
    kinds: list[str] = []
    try:
        plain = text.decode()
    except UnicodeDecodeError:
        plain = text.decode("utf-8", "replace")
        kinds.append("bad UTF-8")
    if text.count(b"\0") and not plain.strip("\0 \t\r\n"):
        return
    quoted = _VALUE.sub(_escape_quotes, plain)
    for version, quote_kinds in ((plain, kinds), (quoted, [*kinds, "unescaped quote"])):
        if version is quoted and quoted == plain:
            return
        found: list[str] = []
        mended = _TEXT.sub(lambda match, found=found: _mend(match, found), version)  # type: ignore[misc]
        yield mended.encode("utf-8", "replace"), list(dict.fromkeys([*quote_kinds, *found]))


def _escape_quotes(match: re.Match[str]) -> str:
    return f'{match[1]}"{_BARE_QUOTE.sub(lambda quote: quote[1] + chr(92) + chr(34), match[2])}"'


def _mend(match: re.Match[str], kinds: list[str]) -> str:
    string, number, comma, control = match.groups()
    if string is not None:
        return _mend_string(string, kinds)
    if number is not None:
        kinds.append("NaN or infinity")
        return "null"
    kinds.append("trailing comma" if comma is not None else "control character")
    return "" if control is None else " "


def _mend_string(string: str, kinds: list[str]) -> str:
    body = string[1:-1]
    if "\\" in body and any(len(escape[0]) == 1 for escape in _ESCAPE.finditer(body)):
        # One bad escape says that the writer escaped nothing: a Windows path, where \n is a folder and no line's end.
        kinds.append("unescaped backslash")
        body = re.sub(r'\\(?!["\\])|\\\\', r"\\\\", body)
    if any(len(escape[0]) == 6 for escape in _SURROGATE.finditer(body)):
        kinds.append("half of a character")
        body = _SURROGATE.sub(lambda match: match[0] if len(match[0]) == 12 else "\\ufffd", body)
    if _CONTROL.search(body):
        kinds.append("control character")
        body = _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", body)
    return f'"{body}"'
