"""Which rank do the others wait for: each device's step in work, communication that nothing hides, and idle time.

Ranks that reduce their gradients together take equally long steps, whatever each of them does: the fast ones wait in the
collective, and their *communication* is long for it. What tells them apart is the **work**: the time in which anything
but communication runs. The rank with most of it is the slowest; how much more it has than the least is what a perfect
balance could save of a step at most.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import intervals
from profilers.analysis.options import Options
from profilers.analysis.view import COMMUNICATION_CODE, pct, view
from profilers.tables import Recording

_COLUMNS = [
    "device", "steps", "step_us", "work_us", "exposed_us", "idle_us", "exposed_pct", "communication_us", "behind_us", "slowest",
]  # fmt: skip

LEAST = 0.02
"""Work that exceeds the least by less than this share of it names no slowest rank."""


def ranks(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per device (of several ranks ``rank0/cuda:0`` ...). Times in us a step, over the steps' intervals (the
    device's span where no step is known, as one).

    ``step_us``: mean wall time. ``work_us``: kernels, copies and sets other than communication, as a union;
    ``exposed_us``: communication while none of those ran; ``idle_us``: nothing ran. The three add up to ``step_us``.
    ``communication_us``: all of it, hidden or not. ``exposed_pct``: of the step. ``behind_us``: work beyond that of the
    device with least. ``slowest``: the device with most work, where there are several and it has over 2 % more than the
    least. On a CPU a rank that waits in C code is idle: only operators are seen there.
    """
    v = view(recording)
    rows = []
    for index, device in enumerate(v.devices):
        begin, end, row = v.segments(index)
        talk = v.cls[row] == COMMUNICATION_CODE
        low, high = v.wall(index)
        count = max(len(v.device_steps(index)) if v.windows(index)[0].size else 1, 1)
        wall = int((high - low).sum())
        work = _within(low, high, begin[~talk], end[~talk])
        busy = _within(low, high, begin, end)
        communication = _within(low, high, begin[talk], end[talk])
        each = [time / count / 1e3 for time in (wall, work, busy - work, wall - busy)]
        rows.append((device, count, *each, pct(busy - work, wall), communication / count / 1e3, 0.0, ""))
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    if len(frame) > 1:
        work_us = frame["work_us"].to_numpy()
        frame["behind_us"] = work_us - work_us.min()
        if work_us.max() > (1 + LEAST) * work_us.min():
            frame.loc[int(np.argmax(work_us)), "slowest"] = "slowest"
    return frame


def _within(low: intervals.Ints, high: intervals.Ints, begin: intervals.Ints, end: intervals.Ints) -> int:
    """Nanoseconds of the intervals ``low, high`` in which any of ``begin, end`` lies."""
    return int(intervals.covered(low, high, *intervals.union(begin, end)).sum())
