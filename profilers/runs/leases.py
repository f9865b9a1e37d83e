"""One run at a time on a device: a lock that the kernel lets go of when its holder dies, however it dies.

The lock is an ``flock`` on a file in the runs folder, so it holds between terminals, and between users of one machine
who share that folder. What is written in the file is for people only.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import os
import re
from pathlib import Path

from profilers.runs.status import boot_id

FOLDER = ".leases"
_BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


def lease_key(device: str, uuid: str = "") -> str:
    """What is locked. A GPU has a number of its own; ``cpu`` means this machine's, where several share a disk."""
    text = uuid or f"{device}@{boot_id().split(' ')[0][:13] or 'here'}"
    return re.sub(r"[^A-Za-z0-9@._-]+", "_", text)


class Lease:
    """The lock of one device. Not acquired when made."""

    def __init__(self, root: Path, key: str) -> None:
        self.key = key
        self.path = root / FOLDER / f"{key}.lock"
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self) -> bool:
        """Take the lock if it is free; never waits. Raises OSError where locks do not work at all."""
        if self._fd is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            # Another user's file: it can still be locked.
            fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in _BUSY:
                return False
            raise
        self._fd = fd
        return True

    def say(self, run_id: str) -> None:
        """Write down who holds it, for others who wait."""
        if self._fd is None:
            return
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"run {run_id} of {user} (pid {os.getpid()})".encode(), 0)
        except OSError:
            pass

    def holder(self) -> str:
        """Who wrote that they hold it; '' where nobody did."""
        try:
            return self.path.read_text(errors="replace")[:200].strip()
        except OSError:
            return ""

    def release(self) -> None:
        """Let go."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
