"""Kernel time by kernel name."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.states import state_codes, state_names
from profilers.analysis.view import view
from profilers.rules.taxonomy import CLASSES
from profilers.tables import Recording


def kernels(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per kernel name, longest first. ``cum_pct`` adds ``pct`` up in that order.

    Group, class, state and rule are those with most of the name's time (one kernel may serve several operators).
    """
    v = view(recording)
    rows, frame = v.rows, v.kernels
    names = tally.texts(frame["name"])
    code, dur = tally.codes(frame["name"])[rows], v.dur[rows]
    size = names.size
    time, calls = tally.total(code, dur, size), tally.count(code, size)
    order = np.flatnonzero(calls)
    order = order[np.argsort(-time[order], kind="stable")]
    by_name = pd.DataFrame({"dur": dur, "threads": frame["threads"].to_numpy()[rows]}).groupby(code)
    spread = by_name.agg(low=("dur", "min"), high=("dur", "max"), threads=("threads", "median")).reindex(order)
    whole = max(time.sum(), 1)

    def most(column: str) -> np.ndarray:
        values = tally.dominant(code, tally.codes(frame[column])[rows], dur, size)[order]
        return tally.texts(frame[column])[values]

    classes = tally.dominant(code, v.cls[rows].astype(np.int64), dur, size)[order]
    states = tally.dominant(code, state_codes(v, options)[rows], dur, size)[order]
    return tally.frame(
        name=names[order],
        group=most("group"),
        class_=np.array(CLASSES, object)[classes],
        calls=calls[order],
        time_us=time[order] / 1e3,
        mean_us=time[order] / calls[order] / 1e3,
        min_us=spread["low"].to_numpy() / 1e3,
        max_us=spread["high"].to_numpy() / 1e3,
        pct=100 * time[order] / whole,
        cum_pct=100 * np.cumsum(time[order]) / whole,
        threads_median=np.round(spread["threads"].to_numpy()).astype(np.int64),
        state=state_names()[states],
        rule=most("rule"),
    )
