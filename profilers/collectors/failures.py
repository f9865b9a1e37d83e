"""Why a worker failed, in one line that says what to do about it."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from profilers.collectors.files import NO_SPACE
from profilers.collectors.protocol import Failure

_CUDA_TRIED = re.compile(r"Tried to allocate ([\d.]+ [KMG]?i?B)")
_CUDA_ROOM = re.compile(r"total capacity of ([\d.]+ [KMG]?i?B) of which ([\d.]+ [KMG]?i?B) is free")
_CPU_TRIED = re.compile(r"you tried to allocate (\d+) bytes")
_SMALLER = "use a smaller --batch, --seq or --dtype bf16"
SCRIPTS = "use a smaller batch in the script"


REFUSED = ("usage", "dtype", "device")
"""Kinds of failures that are a word of ours about what was asked: where in our code it was said helps nobody."""


class UsageError(Exception):
    """What was asked cannot be done here. The message is one line."""

    kind = "usage"


class DtypeError(UsageError):
    """The device cannot compute in the precision that was asked for."""

    kind = "dtype"


class DeviceError(UsageError):
    """The device is not there, or does not answer."""

    kind = "device"


def explain(error: BaseException, device: str = "", smaller: str = _SMALLER) -> Failure:
    """The failure that an exception means. ``device`` is named where memory ran out, and ``smaller`` is then advised."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    if isinstance(error, UsageError):
        return Failure(kind=error.kind, cause=text)
    # By name, as nothing below may import the apps; others have a BadRequest too.
    if name in {"UnknownWorkload", "BadRequest", "CatalogueError"} and type(error).__module__ == "apps.catalogue":
        return Failure(kind="usage", cause=text)
    if name == "DoesNotFit":
        return Failure(kind="memory", cause=text)
    if name == "OutOfMemoryError" or "CUDA out of memory" in text:
        return Failure(kind="memory", cause=_cuda_memory(text, device, smaller))
    if tried := _CPU_TRIED.search(text):
        asked = int(tried.group(1)) / 1e9
        return Failure(kind="memory", cause=f"out of memory on {device or 'cpu'}: asked for {asked:,.1f} GB; {smaller}")
    if isinstance(error, MemoryError):
        return Failure(kind="memory", cause=f"out of memory on {device or 'cpu'}; {smaller}")
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        where = f" while writing {error.filename}" if error.filename else ""
        return Failure(kind="disk", cause=f"the disk is full{where}")
    if isinstance(error, SystemExit):
        return Failure(kind="workload", cause=f"the workload ended by itself with exit code {error.code}")
    place = _place(error)
    return Failure(kind="workload", cause=f"{name}: {text[:300] or '(no message)'}" + (f" ({place})" if place else ""))


def _cuda_memory(text: str, device: str, smaller: str) -> str:
    tried, room = _CUDA_TRIED.search(text), _CUDA_ROOM.search(text)
    said = f"CUDA out of memory on {device or 'the device'}"
    if tried:
        said += f": tried to allocate {tried.group(1)}"
    if room:
        said += f", {room.group(2)} of {room.group(1)} were free"
    return f"{said}; {smaller}"


def _place(error: BaseException) -> str:
    """The innermost line outside installed packages, where the mistake most likely is."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "site-packages" not in frame.filename and not frame.filename.startswith("<"):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""
