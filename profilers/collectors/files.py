"""Files that one process writes while others read them: either the old content is seen or the new, never half of it."""

from __future__ import annotations

import errno
import os
import re
import threading
from pathlib import Path

_RANK = re.compile(r"\[rank \d+\]")

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the operating system says when a disk or a quota is full."""


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` in one step. Raises OSError when it cannot be written.

    On a full disk an existing file is overwritten in its place as a last resort: its blocks are already ours, and the
    last word on a run (why it ended) matters more than a reader's retry.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}.tmp")
    try:
        aside.write_bytes(data)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        if error.errno not in NO_SPACE or not path.exists():
            raise
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()


def read_bytes(path: Path) -> bytes | None:
    """The file's content, or None where there is none (yet)."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


class Growing:
    """A file that another process appends to: every call of :meth:`news` gives the whole lines since the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def news(self, *, last: bool = False) -> bytes:
        """What has been added up to the last line end; with ``last`` also a line without one. b'' where there is no file
        (yet). Raises OSError where it cannot be read."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return b""
        whole = data if last else data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole


def tail(path: Path, lines: int, limit: int = 64 * 1024) -> list[str]:
    """The last ``lines`` lines of a text file, read from at most its last ``limit`` bytes; [] where there is none.

    Of a line that was rewritten (a progress bar) the newest state, of each rank where several write into the file.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except OSError:
        return []
    text = data.decode("utf-8", "replace")
    if size > limit:
        # What comes first may have lost its beginning.
        end = re.search(r"[\r\n]", text)
        text = text[end.end() :] if end else ""
    found = [state for line in text.split("\n") for state in newest(line)]
    while found and not found[-1]:
        found.pop()
    return found[-lines:] if lines > 0 else []


def newest(line: str) -> list[str]:
    """What stays of a line of text that was rewritten after carriage returns: its last state, or the last of each rank
    (``[rank 1] ...``, see :mod:`profilers.collectors.rankoutput`)."""
    states: dict[str, str] = {}
    for text in line.split("\r"):
        if text.strip():
            rank = _RANK.match(text)
            key = rank[0] if rank else ""
            states.pop(key, None)
            states[key] = text.rstrip()
    return list(states.values()) or [""]
