"""Why the device waits: every gap in its busy time, by what the host and the next kernel's launch were doing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis import intervals
from profilers.analysis.options import Options
from profilers.analysis.tally import count, total
from profilers.analysis.view import COMMUNICATION_CODE, View, equals, is_cpu, pct, view
from profilers.readers.calls import LOADING
from profilers.tables import NONE, Recording

CAUSES = {
    "data loading": "the host was fetching the next batch from a DataLoader and had nothing launched ahead",
    "launch-bound": "the host had not launched the next kernel when the device became free, or the launching call lasted on",
    "synchronisation": "the host was waiting for the device (a synchronising call) and had nothing launched ahead",
    "between steps": "a step began or ended, or no step was running",
    "communication": "the next kernel was launched in time; it, or the one before it, is communication",
    "queued": "the next kernel was launched in time; it waited for another stream, an event or the device itself",
    "outside operators": "no operator ran: the program itself, or waiting (CPU runs)",
    "unknown": "no launch of the next kernel was recorded",
}

_LATENCY_NS = 10_000
"""A launch reaches a free device within this time; a kernel that starts later after its launch was held back."""

_NAMES = list(CAUSES)
Ints = npt.NDArray[np.int64]


def idle(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per cause, longest first. ``pct`` is of the devices' spans (first start to last end) added up, so the
    rows add up to the idle part of them."""
    v = view(recording)
    host = Host.of(recording)
    lengths, causes, span = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for device in range(len(v.devices)):
        low, high = v.span(device)
        span += high - low
        begin, end, cause = classified_gaps(v, device, host)
        lengths.append(end - begin)
        causes.append(cause)
    length, cause = np.concatenate(lengths), np.concatenate(causes)
    time, gaps = total(cause, length, len(_NAMES)), count(cause, len(_NAMES))
    longest = np.zeros(len(_NAMES), np.int64)
    np.maximum.at(longest, cause, length)
    order = [int(index) for index in np.argsort(-time, kind="stable") if gaps[index]]
    rows = [
        (_NAMES[i], int(gaps[i]), float(time[i]) / 1e3, pct(float(time[i]), span), float(longest[i]) / 1e3)
        for i in order
    ]
    return pd.DataFrame(rows, columns=["cause", "gaps", "time_us", "pct", "longest_us"])


def blocking(runtime: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Synchronising calls in which the host waits: one that only asks (a query), or makes a stream wait, does not."""
    names = runtime["name"].cat.categories
    waiting = [not str(name).endswith("Query") and "StreamWaitEvent" not in str(name) for name in names]
    return equals(runtime["kind"], "sync") & np.array([*waiting, False])[runtime["name"].cat.codes.to_numpy()]


def loading(recording: Recording) -> pd.DataFrame:
    """``name thread_id start_ns dur_ns`` of every fetch of a batch, whether its range was kept as a call or as an operator."""
    columns = ["name", "thread_id", "start_ns", "dur_ns"]
    operators, runtime = recording.operators, recording.runtime
    names = operators["name"].cat.categories
    marked = np.array([*(str(name).startswith(LOADING) for name in names), False])
    found = [operators.loc[marked[operators["name"].cat.codes.to_numpy()], columns]]
    found.append(runtime.loc[equals(runtime["kind"], "loading"), columns])
    return pd.concat([part.astype({"name": str}) for part in found], ignore_index=True)


@dataclass(frozen=True, eq=False)
class Host:
    """What the host did: synchronising calls, fetches of batches, and launching calls in order of time."""

    sync: pd.DataFrame
    loads: pd.DataFrame
    launches: pd.DataFrame

    @classmethod
    def of(cls, recording: Recording) -> Host:
        runtime = recording.runtime
        launches = runtime[equals(runtime["kind"], "launch")].sort_values("start_ns", kind="stable")
        return cls(runtime[blocking(runtime)], loading(recording), launches)

    def launching_ns(self, launch: Ints, correlation: Ints) -> Ints:
        """How long the calls lasted that began then and bear these numbers; 0 where there is none."""
        start = self.launches["start_ns"].to_numpy()
        if not start.size:
            return np.zeros(launch.size, np.int64)
        place = np.minimum(np.searchsorted(start, launch), start.size - 1)
        same = (start[place] == launch) & (self.launches["correlation"].to_numpy()[place] == correlation)
        return np.where(same, self.launches["dur_ns"].to_numpy()[place], 0)


def waits(v: View, device: int, calls: pd.DataFrame) -> tuple[Ints, Ints]:
    """When a thread that launches on the device (any, where that is not known) was in one of these calls, joined."""
    threads = v.threads(device)
    calls = calls[np.isin(calls["thread_id"].to_numpy(), threads)] if threads.size else calls
    start = calls["start_ns"].to_numpy()
    return intervals.union(start, start + calls["dur_ns"].to_numpy())


def classified_gaps(v: View, device: int, host: Host) -> tuple[Ints, Ints, Ints]:
    """The gaps of one device, and the position of their cause in :data:`CAUSES`.

    A DataLoader is the cause where it took more than half of the host's delay. A launching call that takes more than
    half of a gap (it loads a module, captures or instantiates a graph) is a late launch, although it began in time.
    """
    begin, end, row = v.segments(device)
    left, right = intervals.gaps(begin, end)
    if not left.size:
        return left, right, left
    stepping = _at_step(v, device, left, right)
    waiting, fetching = waits(v, device, host.sync), waits(v, device, host.loads)
    if is_cpu(v.devices[device]):
        cause = np.where(stepping, _NAMES.index("between steps"), _NAMES.index("outside operators"))
        return left, right, np.where(_mostly(left, right, fetching), _NAMES.index("data loading"), cause)
    after = row[np.argsort(begin, kind="stable")][np.searchsorted(np.sort(begin), right)]
    by_end = np.argsort(end, kind="stable")
    before = row[by_end][np.searchsorted(end[by_end], left, side="right") - 1]
    launch = v.kernels["launch_ns"].to_numpy()[after]
    late = (launch > left) & (right - launch <= np.maximum(_LATENCY_NS, launch - left))
    launched = np.clip(launch, left, right)
    synced = intervals.covered(left, launched, *waiting) > 0
    talking = (v.cls[after] == COMMUNICATION_CODE) | (v.cls[before] == COMMUNICATION_CODE)
    # A kernel may seem to start before its launch (clocks differ): the host was late then, too.
    late |= launch >= right
    call = host.launching_ns(launch, v.kernels["correlation"].to_numpy()[after])
    inside = np.minimum(launch + call, right) - np.maximum(launch, left)
    late |= (call > _LATENCY_NS) & (2 * inside > right - left)
    cause = np.select(
        [launch == NONE, late & _mostly(left, launched, fetching), late & stepping, late & synced, late, talking],
        [
            _NAMES.index(name)
            for name in ("unknown", "data loading", "between steps", "synchronisation", "launch-bound", "communication")
        ],
        _NAMES.index("queued"),
    )
    return left, right, cause.astype(np.int64)


def _mostly(left: Ints, right: Ints, inside: tuple[Ints, Ints]) -> npt.NDArray[np.bool_]:
    """Which of these intervals are covered for more than half."""
    return 2 * intervals.covered(left, right, *inside) > right - left


def _at_step(v: View, device: int, left: Ints, right: Ints) -> npt.NDArray[np.bool_]:
    """Gaps that hold the begin or the end of a step, or lie outside all of them."""
    steps = v.device_steps(device)
    if not len(steps):
        return np.zeros(left.size, bool)
    start = steps["start_ns"].to_numpy()
    marks = np.sort(np.r_[start, start + steps["dur_ns"].to_numpy()])
    holds = np.searchsorted(marks, right, side="left") > np.searchsorted(marks, left, side="left")
    return holds | (intervals.covered(left, right, *v.windows(device)) == 0)
