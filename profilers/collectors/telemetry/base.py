"""One value at one time, and what every source of such values looks like."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured value. ``value`` is None where the source has none, and ``reason`` then says why in a few words.

    ``pid`` is the process that a value is of, 0 for values of the device itself.
    """

    t_ns: int
    device: str
    metric: str
    value: float | None
    unit: str
    source: str
    reason: str = ""
    pid: int = 0


class Collector(Protocol):
    """A source of samples. It opens what it needs once; a fault of one device shows only in that device's samples."""

    def sample(self) -> list[Sample]:
        """The values of now. Never raises for a device's fault: the samples say it."""

    def close(self) -> None:
        """Let go of what was opened."""


def now_ns() -> int:
    """The time stamp of samples: nanoseconds since the epoch."""
    return time.time_ns()
