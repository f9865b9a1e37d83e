"""Files that one process writes while others read them: either the old content is seen or the new, never half of it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

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


def tail(path: Path, lines: int, limit: int = 64 * 1024) -> list[str]:
    """The last ``lines`` lines of a text file, read from at most its last ``limit`` bytes; [] where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except OSError:
        return []
    text = data.decode("utf-8", "replace")
    found = [line.rstrip() for line in text.replace("\r", "\n").split("\n")]
    if size > limit:
        found = found[1:]
    while found and not found[-1]:
        found.pop()
    return found[-lines:] if lines > 0 else []
