"""The text of a recording, in pieces: plain, gzip (several members, cut off, with trailing bytes), UTF-8 or UTF-16."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import BinaryIO

from profilers.readers.errors import ReadError
from profilers.tables import Note

PIECE = 8 << 20
"""Bytes handed on at a time: large enough for the decoder, small enough that memory does not follow the file's size."""

_STEP = 1 << 16
_GZIP = b"\x1f\x8b"
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class Source:
    """Reads ``file`` of ``size`` bytes and hands out UTF-8 text without a byte order mark.

    ``notes`` fills while it is read. ``progress`` is called with the share of the file's bytes consumed, 0 to 1.
    """

    def __init__(self, file: BinaryIO, name: str, size: int, progress: Callable[[float], None] | None = None) -> None:
        self.name = name
        self.notes: list[Note] = []
        self._file = file
        self._size = max(size, 1)
        self._read = 0
        self._progress = progress

    def pieces(self) -> Iterator[bytes]:
        """UTF-8 text in order, pieces of at most about ``PIECE`` bytes. Raises ReadError for an empty file."""
        first = self._take()
        if not first:
            raise ReadError(f"{self.name} is empty (0 bytes): the recording was never written; record it again")
        stream = self._plain(first) if first[:2] != _GZIP else self._gunzip(first)
        return self._as_utf8(stream)

    def _take(self) -> bytes:
        data = self._file.read(PIECE)
        self._read += len(data)
        if self._progress is not None:
            self._progress(min(1.0, self._read / self._size))
        return data

    def _plain(self, data: bytes) -> Iterator[bytes]:
        while data:
            yield data
            data = self._take()

    def _gunzip(self, data: bytes) -> Iterator[bytes]:
        while data:
            data = yield from self._member(data)
            if len(data) == 1:
                data += self._take()
            if data and data[:2] != _GZIP:
                self._skip_rest(data)
                return

    def _member(self, data: bytes) -> Generator[bytes, None, bytes]:
        """The text of one gzip member; returns what follows it in the file."""
        inflate = zlib.decompressobj(wbits=31)
        text: list[bytes] = []
        size = 0
        while not inflate.eof:
            if not data and not (data := self._take()):
                yield b"".join(text)
                ends = f"the gzip data ends too early (a file of {self._read:,} bytes, cut off)"
                self.notes.append(Note("truncated_gzip", ends))
                return b""
            step, data = data[:_STEP], data[_STEP:]
            before = inflate.copy()
            try:
                text.append(inflate.decompress(step, PIECE))
            except zlib.error as error:
                yield b"".join([*text, *_up_to_damage(before, step)])
                near = self._read - len(data) - len(step)
                self.notes.append(Note("damaged_gzip", f"the gzip data is damaged behind byte {near:,} ({error})"))
                return b""
            data = inflate.unconsumed_tail + data
            size += len(text[-1])
            if size >= PIECE:
                yield b"".join(text)
                text, size = [], 0
        yield b"".join(text)
        return inflate.unused_data + data or self._take()

    def _skip_rest(self, data: bytes) -> None:
        count = 0
        while data:
            count += len(data)
            data = self._take()
        text = "bytes after the end of the gzip data were not read"
        self.notes.append(Note("trailing_bytes", text, count))

    def _as_utf8(self, stream: Iterator[bytes]) -> Iterator[bytes]:
        first = next(stream, b"")
        encoding = _UTF16.get(first[:2])
        if encoding is None and first[:1] in (b"{", b"[") and first[1:2] == b"\0":
            encoding = "utf-16-le"
        if encoding is None:
            yield first.removeprefix(codecs.BOM_UTF8)
            yield from stream
            return
        self.notes.append(Note("utf16", "the file is UTF-16 text; it was read as such"))
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(first).removeprefix("\ufeff").encode("utf-8", "replace")
        for data in stream:
            yield decoder.decode(data).encode("utf-8", "replace")


def _up_to_damage(inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """The text of compressed data up to the byte where it stops making sense."""
    for byte in data:
        try:
            yield inflate.decompress(bytes((byte,)))
        except zlib.error:
            return
