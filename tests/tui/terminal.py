"""A real terminal for tests: a pseudo-terminal with a size, a reader that counts bytes, and an emulator that holds the screen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parents[2]

_LEFT_OUT = ("NO_COLOR", "TMUX", "COLORTERM", "COLUMNS", "LINES")
"""What a terminal decides itself. A test runner's workers set COLUMNS, which would come before the terminal's size."""


class Terminal:
    """A program on a pseudo-terminal. Bytes are read all the time; ``rate`` (bytes a second) makes a slow link."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        size: tuple[int, int] = (120, 34),
        env: Mapping[str, str] | None = None,
        rate: float | None = None,
        preexec: object = None,
    ) -> None:
        self.size = size
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        self.received = bytearray()
        self.rate = rate
        self._lock = threading.Lock()
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in _LEFT_OUT}
        environment |= {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8",
            **(env or {}),
        }
        for name in [name for name, value in environment.items() if value == ""]:
            del environment[name]

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if preexec is not None:
                preexec()  # type: ignore[operator]

        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tui.cli", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            preexec_fn=take_terminal,
            close_fds=True,
        )
        os.close(slave)
        self._closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._closed:
            try:
                ready, _, _ = select.select([self.master], [], [], 0.1)
                if not ready:
                    continue
                data = os.read(self.master, 65536 if self.rate is None else max(int(self.rate / 20), 64))
            except (OSError, ValueError):
                return
            if not data:
                return
            with self._lock:
                self.received += data
                with contextlib.suppress(Exception):  # the emulator does not know every newer sequence
                    self.stream.feed(data)
            if self.rate is not None:
                time.sleep(len(data) / self.rate)

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    @property
    def text(self) -> str:
        """What is on the screen now."""
        with self._lock:
            return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def count(self) -> int:
        """Bytes received so far."""
        with self._lock:
            return len(self.received)

    def wait_for(self, text: str, timeout: float = 20.0) -> str:
        """The screen, once it holds ``text``. Fails with the screen's content otherwise."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            now = self.text
            if text in now:
                return now
            if self.process.poll() is not None:
                time.sleep(0.3)
                break
            time.sleep(0.05)
        assert text in self.text, f"{text!r} did not appear; the screen shows:\n{self.text}"
        return self.text

    def cpu_seconds(self) -> float:
        """Processor time that the program has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def hang_up(self) -> None:
        """The link is gone: the terminal's other side is closed."""
        self._closed = True
        self._reader.join(1)
        os.close(self.master)

    def close(self) -> None:
        if not self._closed:
            self.hang_up()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@contextlib.contextmanager
def terminal(argv: Sequence[str], **options: object) -> Iterator[Terminal]:
    """A :class:`Terminal` that is closed at the end whatever happens."""
    opened = Terminal(argv, **options)  # type: ignore[arg-type]
    try:
        yield opened
    finally:
        opened.close()
