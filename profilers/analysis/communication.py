"""How long devices talk to each other, and how much of that is hidden behind other work."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import intervals, tally
from profilers.analysis.options import Options
from profilers.analysis.view import COMMUNICATION_CODE, view
from profilers.tables import Recording

_COLUMNS = ["device", "name", "calls", "time_us", "exposed_us", "overlapped_us", "exposed_pct"]


def communication(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per device and communication kernel, longest first. ``exposed_us``: no kernel of another class ran on the
    device meanwhile; with ``overlapped_us`` it adds up to ``time_us``."""
    v = view(recording)
    names, code = tally.texts(v.kernels["name"]), tally.codes(v.kernels["name"])
    rows = []
    for index, device in enumerate(v.devices):
        mine = v.is_kernel & (v.device == index)
        talk, work = (
            np.flatnonzero(mine & (v.cls == COMMUNICATION_CODE)),
            np.flatnonzero(mine & (v.cls != COMMUNICATION_CODE)),
        )
        if not talk.size:
            continue
        busy = intervals.union(v.start[work], v.start[work] + v.dur[work])
        hidden = intervals.covered(v.start[talk], v.start[talk] + v.dur[talk], *busy)
        time, calls = tally.total(code[talk], v.dur[talk], names.size), tally.count(code[talk], names.size)
        overlapped = tally.total(code[talk], hidden, names.size)
        for name in np.flatnonzero(calls):
            exposed = time[name] - overlapped[name]
            share = 100 * exposed / time[name] if time[name] else 0.0
            rows.append(
                (device, names[name], int(calls[name]), time[name] / 1e3, exposed / 1e3, overlapped[name] / 1e3, share)
            )
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    return frame.sort_values("time_us", ascending=False, kind="stable", ignore_index=True)
