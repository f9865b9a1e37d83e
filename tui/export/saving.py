"""Bytes to a file, all or nothing: written beside the target, then renamed. Every failure is one line."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


class ExportError(Exception):
    """An export that did not happen; the message says why and what to do."""


def save(data: bytes, target: Path, *, force: bool = False) -> Path:
    """Write ``data`` to ``target`` and return its absolute path.

    A regular file that exists is replaced only with ``force``, and a link stays a link. A device
    or a pipe is written to. Raises :class:`ExportError`; a file that was there before is then unchanged.
    """
    try:
        target = Path(os.path.realpath(target.expanduser()))
        if _is_stream(target):
            target.write_bytes(data)
            return target
        _refuse(target, force)
        _replace(data, target)
    except (OSError, RuntimeError, ValueError) as error:  # the last two: no home directory, a NUL in the path
        raise ExportError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}") from error
    return target


def _is_stream(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _refuse(target: Path, force: bool) -> None:
    if target.is_dir():
        raise ExportError(f"cannot write {target}: it is a folder; name a file in it")
    if target.exists() and not force:
        raise ExportError(f"{target} exists; say --force to replace it")
    if not target.parent.is_dir():
        raise ExportError(f"cannot write {target}: there is no folder {target.parent}")


def _replace(data: bytes, target: Path) -> None:
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    handle, aside = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
            os.fchmod(out.fileno(), mode)
        Path(aside).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(aside).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
