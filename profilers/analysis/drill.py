"""From a row to what is under it: a kernel's operators and shapes, its occurrences in time, an operator's kernels."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.view import View, equals, pct, view
from profilers.tables import NONE, Recording


def operators_of_kernel(recording: Recording, kernel_name: str) -> pd.DataFrame:
    """Which operators launched a kernel, with which shapes and for which module: ``operator shapes module calls time_us
    pct`` (of this kernel's time), longest first. No operator known: an empty operator."""
    v = view(recording)
    rows = np.flatnonzero(v.is_kernel & equals(v.kernels["name"], kernel_name))
    inner = v.operator_row[rows]
    columns = {
        "operator": _of_operator(v, "name", inner),
        "shapes": _of_operator(v, "input_shapes", inner),
        "module": _of_operator(v, "module", inner),
    }
    frame = pd.DataFrame({**columns, "time_us": v.dur[rows] / 1e3})
    table = frame.groupby(list(columns), sort=False)["time_us"].agg(calls="size", time_us="sum").reset_index()
    table["pct"] = [pct(time, float(frame["time_us"].sum())) for time in table["time_us"]]
    return table.sort_values("time_us", ascending=False, kind="stable", ignore_index=True)


def occurrences(recording: Recording, kernel_name: str) -> pd.DataFrame:
    """Every time a kernel ran, by start: ``start_us dur_us step device stream operator`` (start since the recording's
    origin). Copies and sets may be asked for too."""
    v = view(recording)
    rows = np.flatnonzero(v.believed & equals(v.kernels["name"], kernel_name))
    rows = rows[np.argsort(v.start[rows], kind="stable")]
    picked = v.kernels.iloc[rows]
    return tally.frame(
        start_us=v.start[rows] / 1e3,
        dur_us=v.dur[rows] / 1e3,
        step=picked["step"].to_numpy(),
        device=picked["device"].astype(object).to_numpy(),
        stream=picked["stream"].to_numpy(),
        operator=_of_operator(v, "name", v.operator_row[rows]),
    )


def kernels_of_operator(recording: Recording, operator_name: str) -> pd.DataFrame:
    """Which kernels an operator launches, itself or through the operators it calls: ``kernel group class calls time_us
    pct`` (of their time), longest first."""
    v = view(recording)
    inside = equals(v.operators["name"], operator_name)
    depth = v.operators["depth"].to_numpy()
    for level in range(1, int(depth.max(initial=0)) + 1):
        below = np.flatnonzero((depth == level) & (v.parent_row >= 0))
        inside[below] |= inside[v.parent_row[below]]
    inner = v.operator_row
    rows = np.flatnonzero(v.is_kernel & (inner >= 0) & np.r_[inside, False][inner])
    picked = v.kernels.iloc[rows]
    keys = {"kernel": picked["name"], "group": picked["group"], "class": picked["class"]}
    frame = pd.DataFrame({key: column.astype(object).to_numpy() for key, column in keys.items()})
    frame["time_us"] = v.dur[rows] / 1e3
    table = frame.groupby(list(keys), sort=False)["time_us"].agg(calls="size", time_us="sum").reset_index()
    table["pct"] = [pct(time, float(frame["time_us"].sum())) for time in table["time_us"]]
    return table.sort_values("time_us", ascending=False, kind="stable", ignore_index=True)


def _of_operator(v: View, column: str, rows: np.ndarray) -> np.ndarray:
    """A text column of the operators for each of ``rows`` ('' for -1)."""
    names, code = tally.texts(v.operators[column]), np.append(tally.codes(v.operators[column]), [NONE])
    return names[code[rows]]
