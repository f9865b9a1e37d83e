"""Two or more recordings side by side: what grew, what shrank, what is new, and the speed-up.

Where every recording has steps, times are per step (kernel time launched in steps over their number); else they are
whole recordings. ``summary_block`` says which.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.view import View, pct, view
from profilers.rules.taxonomy import CLASSES
from profilers.tables import NONE, Recording

By = Literal["kernel", "operator", "group"]


class CompareError(ValueError):
    """Recordings that cannot be compared; the message says why."""


def compare(
    recordings: Sequence[Recording], names: Sequence[str], options: Options | None = None, by: By = "kernel"
) -> pd.DataFrame:
    """One row per kernel name (or operator, or group) of any recording, largest change first.

    Columns ``name group a_us b_us ... ratio delta_us``: a is the first recording, ``ratio`` is last over first (inf:
    appeared, 0: vanished), ``delta_us`` last less first. ``frame.attrs["names"]`` maps a, b ... to ``names``.
    By operator, kernel time goes to the outermost operator around the launch.
    """
    if len(recordings) < 2:
        raise CompareError("compare needs two recordings or more")
    if len(recordings) != len(names):
        raise CompareError(f"{len(recordings)} recordings but {len(names)} names")
    if len(recordings) > len(string.ascii_lowercase):
        raise CompareError(f"compare takes up to {len(string.ascii_lowercase)} recordings, not {len(recordings)}")
    views = [view(recording) for recording in recordings]
    per_step = all(_steps(v) for v in views)
    letters = string.ascii_lowercase[: len(views)]
    parts, groups = [], {}
    for letter, v in zip(letters, views, strict=True):
        times, group = _times(v, by, per_step)
        parts.append(pd.Series(times, name=f"{letter}_us", dtype=float))
        groups.update({name: value for name, value in group.items() if name not in groups})
    frame = pd.concat(parts, axis=1).fillna(0.0)
    first, last = frame.iloc[:, 0].to_numpy(), frame.iloc[:, -1].to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        frame["ratio"] = np.where(first > 0, last / first, np.where(last > 0, np.inf, 1.0))
    frame["delta_us"] = last - first
    frame.insert(0, "group", [groups[name] for name in frame.index])
    frame.insert(0, "name", frame.index.astype(object))
    order = np.argsort(-np.abs(frame["delta_us"].to_numpy()), kind="stable")
    frame = frame.iloc[order].reset_index(drop=True)
    frame.attrs["names"] = dict(zip(letters, names, strict=True))
    frame.attrs["per"] = "step" if per_step else "recording"
    return frame


def summary_block(
    recordings: Sequence[Recording], names: Sequence[str], options: Options | None = None
) -> pd.DataFrame:
    """One row per quantity: ``quantity unit`` and a column per recording (its letter), ``change`` last against first.

    Step and kernel time (``change`` is the speed-up, first over last), the shares of kernel time by class (``change`` in
    percentage points), kernel names in common, appeared and vanished; for three and more the geometric mean of the
    speed-ups against the first.
    """
    options = options or Options()
    views = [view(recording) for recording in recordings]
    table = compare(recordings, names, options)
    letters = list(table.attrs["names"])
    per = table.attrs["per"]
    kernel = [table[f"{letter}_us"].sum() for letter in letters]
    step = [_mean_step_us(v) for v in views]
    rows: list[tuple[object, ...]] = [("step time (mean)", "us", *step, _over(step[0], step[-1]))]
    rows.append((f"kernel time a {per}", "us", *kernel, _over(kernel[0], kernel[-1])))
    for what, values in (("step time", step), ("kernel time", kernel)):
        gains = [_over(values[0], value) for value in values[1:]]
        if len(views) > 2 and all(gain > 0 for gain in gains):
            mean = float(np.exp(np.mean(np.log(gains))))
            rows.append((f"{what}: geometric mean of speed-ups against a", "x", *[np.nan, *gains], mean))
    for index, name in enumerate(CLASSES):
        shares = [pct(v.time_ns(v.cls == index), v.time_ns(v.is_kernel)) for v in views]
        if any(shares):
            rows.append((f"{name} (of kernel time)", "%", *shares, shares[-1] - shares[0]))
    present = table[[f"{letter}_us" for letter in letters]].to_numpy() > 0
    rows.append(
        ("kernel names", "", *map(float, present.sum(axis=0)), float(present[:, -1].sum() - present[:, 0].sum()))
    )
    rows.append(("kernel names in all", "", *[float(present.all(axis=1).sum())] * len(views), np.nan))
    for what, rule in (("appeared", ~present[:, 0] & present[:, -1]), ("vanished", present[:, 0] & ~present[:, -1])):
        column = letters[-1] if what == "appeared" else letters[0]
        time = float(table[f"{column}_us"].to_numpy()[rule].sum())
        rows.append((f"kernel names that {what}", "", *[np.nan] * len(views), float(rule.sum())))
        rows.append((f"time in names that {what}", "us", *[np.nan] * len(views), time))
    return pd.DataFrame(rows, columns=["quantity", "unit", *letters, "change"])


def _over(first: float, last: float) -> float:
    return first / last if last else np.nan


def _steps(v: View) -> int:
    """Steps, where kernels were launched in them (else kernel time per step would mean nothing)."""
    return len(v.steps) if len(v.steps) and (v.kernels["step"].to_numpy()[v.rows] != NONE).any() else 0


def _mean_step_us(v: View) -> float:
    return float(v.steps["dur_ns"].mean()) / 1e3 if len(v.steps) else np.nan


def _times(v: View, by: By, per_step: bool) -> tuple[dict[str, float], dict[str, str]]:
    """Microseconds and group per name."""
    rows = v.rows
    if per_step:
        rows = rows[v.kernels["step"].to_numpy()[rows] != NONE]
    if by == "operator":
        names = np.append(tally.texts(v.operators["name"]), ["(no operator)"])
        inner = v.operator_row[rows]
        code = np.full(rows.size, names.size - 1, np.int64)
        if len(v.operators):
            outer = np.where(inner >= 0, v.outermost[inner], NONE)
            owner = np.where(outer >= 0, outer, inner)
            code[owner >= 0] = tally.codes(v.operators["name"])[owner[owner >= 0]]
    else:
        column = "name" if by == "kernel" else "group"
        names, code = tally.texts(v.kernels[column]), tally.codes(v.kernels[column])[rows]
    time, calls = tally.total(code, v.dur[rows], names.size), tally.count(code, names.size)
    group = tally.dominant(code, tally.codes(v.kernels["group"])[rows], v.dur[rows], names.size)
    group_names = tally.texts(v.kernels["group"])
    divide = 1e3 * (_steps(v) if per_step else 1)
    present = np.flatnonzero(calls)
    times = {str(names[index]): float(time[index]) / divide for index in present}
    return times, {str(names[index]): str(group_names[group[index]]) for index in present}
