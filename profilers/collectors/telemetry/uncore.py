"""The host's memory bandwidth, from the counters of its memory controllers (Linux perf, "uncore"), where permitted.

The kernel describes each counter under ``/sys/bus/event_source/devices``: its number, the fields of its events, and the
unit of a count. Reading them for the whole machine takes CAP_PERFMON, or a ``perf_event_paranoid`` of 0 or less.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

DEVICES = Path("/sys/bus/event_source/devices")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

_EVENTS = {
    "dram_read_gb_s": ("cas_count_read", "data_reads", "data_read"),
    "dram_write_gb_s": ("cas_count_write", "data_writes", "data_write"),
}
"""Metric -> what the controllers of server, client and newer client processors call it."""

_UNITS = {"MiB": 2**20, "Bytes": 1, "KiB": 2**10, "GiB": 2**30}
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_SIZE = 64  # the first published layout: type, size, config, period, formats, flags, ...

Opener = Callable[[int, int, int], int]
"""(type, config, cpu) -> file descriptor. Raises OSError."""


@dataclass(frozen=True)
class Counter:
    """One event of one memory controller on one socket. ``scale``: bytes a count."""

    metric: str
    kind: int
    config: int
    cpu: int
    scale: float


class Uncore:
    """Bandwidth between two calls of :meth:`read`. ``reason`` says why there is none ('' when there is)."""

    def __init__(self, devices: Path = DEVICES, opener: Opener | None = None) -> None:
        self.reason = ""
        self._open: list[tuple[Counter, int]] = []
        self._before: dict[str, float] = {}
        self._at = 0.0
        counters = list(_counters(devices))
        if not counters:
            self.reason = "the kernel offers no memory controller counters here"
            return
        try:
            for counter in counters:
                self._open.append((counter, (opener or _perf_open)(counter.kind, counter.config, counter.cpu)))
        except OSError as error:
            self.close()
            self.reason = _why(error)

    def read(self) -> list[tuple[str, float | None, str]]:
        """(metric, GB/s or None, reason) for reads and writes."""
        if self.reason:
            return [(metric, None, self.reason) for metric in _EVENTS]
        now, totals = time.monotonic(), dict.fromkeys((counter.metric for counter, _ in self._open), 0.0)
        for counter, fd in self._open:
            totals[counter.metric] += struct.unpack("<Q", os.read(fd, 8))[0] * counter.scale
        before, then, self._before, self._at = self._before, self._at, totals, now
        if not before:
            return [(metric, None, "no value yet: it takes two samples") for metric in totals]
        seconds = max(now - then, 1e-9)
        return [(metric, (total - before[metric]) / 1e9 / seconds, "") for metric, total in totals.items()]

    def close(self) -> None:
        """Close the counters."""
        for _, fd in self._open:
            os.close(fd)
        self._open = []


def _counters(devices: Path) -> Iterator[Counter]:
    for folder in sorted(devices.glob("uncore_imc*")):
        kind = _text(folder / "type")
        if not kind.isdigit():
            continue
        for metric, names in _EVENTS.items():
            event = next((name for name in names if (folder / "events" / name).is_file()), "")
            unit = _text(folder / "events" / f"{event}.unit")
            if not event or unit not in _UNITS:
                continue
            scale = float(_text(folder / "events" / f"{event}.scale") or 1.0) * _UNITS[unit]
            config = _config(folder, _text(folder / "events" / event))
            for cpu in _cpus(_text(folder / "cpumask")):
                yield Counter(metric, int(kind), config, cpu, scale)


def _config(folder: Path, event: str) -> int:
    """``event=0x04,umask=0x03`` as the number that the controller's ``format`` files say. Only ``config`` is used."""
    config = 0
    for part in event.split(","):
        name, _, value = part.partition("=")
        form = re.fullmatch(r"config:(\d+)(?:-\d+)?", _text(folder / "format" / name.strip()))
        if form:
            config |= int(value or "1", 0) << int(form.group(1))
    return config


def _cpus(text: str) -> list[int]:
    """The first processor of every range of a list such as ``0,18``: one a socket."""
    return [int(part.split("-")[0]) for part in text.split(",") if part.split("-")[0].isdigit()]


def _perf_open(kind: int, config: int, cpu: int) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"not known how to ask on {platform.machine()}")
    attribute = ctypes.create_string_buffer(_ATTRIBUTE_SIZE)
    struct.pack_into("<IIQ", attribute, 0, kind, _ATTRIBUTE_SIZE, config)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, attribute, -1, cpu, -1, 8)  # 8: close on exec
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(fd)


def _why(error: OSError) -> str:
    if isinstance(error, PermissionError):
        level = _text(PARANOID) or "?"
        return f"not permitted: takes CAP_PERFMON, or kernel.perf_event_paranoid of 0 or less (here {level})"
    return f"the kernel refuses its memory controller counters: {error.strerror or error}"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
