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
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.runs.status import boot_id

if TYPE_CHECKING:
    from profilers.collectors.telemetry.devices import DeviceRow

FOLDER = ".leases"
_BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


def lease_key(device: str, uuid: str = "") -> str:
    """What is locked. A GPU has a number of its own; ``cpu`` means this machine's, where several share a disk."""
    text = uuid or f"{device}@{boot_id().split(' ')[0][:13] or 'here'}"
    return re.sub(r"[^A-Za-z0-9@._-]+", "_", text)


def user_name() -> str:
    """Who we are, for others to read."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


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
        shared_folder(self.path.parent)
        fd = _open(self.path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in _BUSY:
                return False
            raise
        self._fd = fd
        return True

    @property
    def taken(self) -> bool:
        """Whether somebody holds it, us included. Looks only: the lock is let go of at once."""
        if self._fd is not None:
            return True
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in _BUSY
        finally:
            os.close(fd)
        return False

    def say(self, run_id: str) -> None:
        """Write down who holds it, for others who wait."""
        if self._fd is None:
            return
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"run {run_id} of {user_name()} (pid {os.getpid()})".encode(), 0)
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


class Leases:
    """The locks of several devices, as one: all of them or none."""

    def __init__(self, root: Path, keys: Sequence[str]) -> None:
        self._each = [Lease(root, key) for key in dict.fromkeys(keys)]
        self._refused: Lease | None = None

    def acquire(self) -> bool:
        """Take all that are free together; never waits. Raises OSError where locks do not work at all."""
        for lease in self._each:
            if not lease.acquire():
                self._refused = lease
                self.release()
                return False
        return True

    def say(self, run_id: str) -> None:
        """Write down who holds them."""
        for lease in self._each:
            lease.say(run_id)

    def holder(self) -> str:
        """Who holds the one that could not be had."""
        return self._refused.holder() if self._refused is not None else ""

    def release(self) -> None:
        """Let go of all."""
        for lease in self._each:
            lease.release()


def holders(root: Path) -> dict[str, str]:
    """Who holds which lease of a runs folder now: :func:`lease_key` -> what its holder wrote."""
    found = {}
    for path in sorted((root / FOLDER).glob("*.lock")):
        lease = Lease(root, path.name.removesuffix(".lock"))
        if lease.taken:
            found[lease.key] = lease.holder() or "another run"
    return found


def with_holders(rows: Sequence[DeviceRow], root: Path) -> list[DeviceRow]:
    """Devices with the run that has leased each among their users: others who start one there wait for it."""
    held = holders(root)
    found = []
    for row in rows:
        holder = held.get(lease_key(row.device, row.uuid))
        found.append(replace(row, users=", ".join(filter(None, (row.users, holder)))) if holder else row)
    return found


def shared_folder(folder: Path) -> None:
    """Make the folder of locks so that every user who shares the runs folder can put theirs there, and remove no other's."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        shared = stat.S_IMODE(folder.parent.stat().st_mode) & 0o022
        if shared:
            folder.chmod(0o1777 if shared & 0o002 else 0o3775)


def _open(path: Path) -> int:
    """Open a lock file, made where there is none. Never through a link. Raises OSError."""
    for _ in range(2):
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except PermissionError:
            # Another user's file: it can still be locked.
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            except FileExistsError:
                continue
            if path.parent.stat().st_mode & 0o022:
                # Whoever holds it next must be able to write down who they are.
                os.fchmod(fd, 0o666 if path.parent.stat().st_mode & 0o002 else 0o664)
            return fd
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
