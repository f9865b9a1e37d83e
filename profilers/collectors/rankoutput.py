"""What ranks print, in one log: every line begins with its rank, and lines of two ranks do not mix.

Order is kept within a rank. A state that is rewritten (a progress bar) ends with a carriage return here as well, so that
whoever shows the log shows the newest; what a rank printed without ending the line is shown in the same way after a
moment, and once more when the line is whole: the last words of a rank that hangs are there.
"""

from __future__ import annotations

import os
import re
import select
import threading

IDLE_MS = 500
"""A line that was not ended for so long is shown as far as it is."""

_LONGEST = 64 * 1024


class Lines:
    """The bytes that a rank printed, cut into lines with its rank before each."""

    def __init__(self, rank: int) -> None:
        self._prefix = b"[rank %d] " % rank
        self._torchs = b"[rank%d]: " % rank
        self._held = b""
        self._shown = b""

    def feed(self, data: bytes) -> bytes:
        """More was printed: what is to be written for it."""
        text, place = self._held + data, 0
        out = []
        # A carriage return at the very end may be half of the end of a line.
        for end in re.finditer(rb"\r\n|\n|\r(?=[^\n])", text):
            out.append(self._line(text[place : end.start()], b"\r" if end.group() == b"\r" else b"\n"))
            place = end.end()
        self._held = text[place:]
        if len(self._held) > _LONGEST:
            out.append(self.end())
        return b"".join(out)

    def idle(self) -> bytes:
        """Nothing was printed for a moment: the unended line as it stands, unless it was shown before."""
        if self._held == self._shown:
            return b""
        self._shown = self._held
        return self._line(self._held.strip(b"\r"), b"\r")

    def end(self) -> bytes:
        """Nothing more will be printed: what was not ended is ended."""
        text, self._held, self._shown = self._held.strip(b"\r"), b"", b""
        return self._line(text, b"\n") if text else b""

    def _line(self, text: bytes, end: bytes) -> bytes:
        # PyTorch says the rank before each line of a traceback, in its own way.
        if text := text.removeprefix(self._torchs):
            return self._prefix + text + end
        return self._prefix.rstrip() + end if end == b"\n" else b""


class Output(threading.Thread):
    """Copies what one rank prints (the reading end of a pipe, closed at its end) to a file descriptor."""

    def __init__(self, rank: int, fd: int, to: int = 1) -> None:
        super().__init__(name=f"output-{rank}", daemon=True)
        self._lines = Lines(rank)
        self._fd, self._to = fd, to

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            if not poll.poll(IDLE_MS):
                self._write(self._lines.idle())
            elif data := os.read(self._fd, 1 << 16):
                self._write(self._lines.feed(data))
            else:
                break
        os.close(self._fd)
        self._write(self._lines.end())

    def _write(self, data: bytes) -> None:
        # A log that cannot be written (a full disk) must not hold up who prints into it.
        try:
            while data:
                data = data[os.write(self._to, data) :]
        except OSError:
            pass
