"""Two or more recordings side by side: what grew, what shrank, what is new, and the speed-up.

Where every recording has steps, times are per step (kernel time launched in steps over their number); else they are
whole recordings. ``summary_block`` says which.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.expansion import owners
from profilers.analysis.options import Options
from profilers.analysis.states import mean_run_length, states
from profilers.analysis.view import View, pct, view
from profilers.rules.taxonomy import CLASSES
from profilers.tables import NONE, Recording

By = Literal["kernel", "operator", "group"]


STATE_PCT = 1.0
"""A state is compared where it has at least this share of kernel time in one of the recordings."""


class CompareError(ValueError):
    """Recordings that cannot be compared; the message says why."""


@dataclass(frozen=True)
class Beside:
    """What a run knows beside its recording; NaN: it does not. ``step_us``: median of its steps timed without the
    profiler. ``energy_j``: joules a step (:func:`profilers.analysis.energy.energy_a_step`, an estimate)."""

    step_us: float = np.nan
    energy_j: float = np.nan


def compare(
    recordings: Sequence[Recording], names: Sequence[str], options: Options | None = None, by: By = "kernel"
) -> pd.DataFrame:
    """One row per kernel name (or operator, or group) of any recording, largest change first.

    Columns ``name group a_us b_us ... ratio delta_us pct sign``: a is the first recording, ``ratio`` is last over first
    (inf: appeared, 0: vanished), ``delta_us`` last less first, ``pct`` the size of that change in percent of all changes'
    sizes added up, ``sign`` appeared, vanished, more, less or same. ``frame.attrs["names"]`` maps a, b ... to ``names``.
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
    changed = np.abs(last - first)
    frame["pct"] = 100.0 * changed / changed.sum() if changed.sum() > 0 else 0.0
    frame["sign"] = np.select(
        [(first == 0) & (last > 0), (first > 0) & (last == 0), last > first, last < first],
        ["appeared", "vanished", "more", "less"],
        "same",
    ).astype(object)
    frame.insert(0, "group", [groups[name] for name in frame.index])
    frame.insert(0, "name", frame.index.astype(object))
    order = np.argsort(-np.abs(frame["delta_us"].to_numpy()), kind="stable")
    frame = frame.iloc[order].reset_index(drop=True)
    frame.attrs["names"] = dict(zip(letters, names, strict=True))
    frame.attrs["per"] = "step" if per_step else "recording"
    return frame


def summary_block(
    recordings: Sequence[Recording],
    names: Sequence[str],
    options: Options | None = None,
    beside: Sequence[Beside] | None = None,
) -> pd.DataFrame:
    """One row per quantity: ``quantity unit`` and a column per recording (its letter), ``change`` last against first.

    Step and kernel time and energy (``change`` is the speed-up or saving, first over last), for three and more recordings
    the geometric mean of the speed-ups against the first, the shares of kernel time by class and by utilization state
    (``change`` in percentage points), kernel names in common, appeared and vanished.
    """
    options = options or Options()
    beside = beside or [Beside()] * len(recordings)
    views = [view(recording) for recording in recordings]
    table = compare(recordings, names, options)
    letters = list(table.attrs["names"])
    times = [
        ("step time", "step time (mean)", [_mean_step_us(v) for v in views]),
        ("kernel time", f"kernel time a {table.attrs['per']}", [table[f"{letter}_us"].sum() for letter in letters]),
        ("unprofiled", "unprofiled step time (median)", [one.step_us for one in beside]),
    ]
    times = [one for one in times if any(value == value for value in one[2])]
    rows: list[tuple[object, ...]] = [(what, "us", *values, _over(values[0], values[-1])) for _, what, values in times]
    energy = [one.energy_j for one in beside]
    if any(value == value for value in energy):
        rows.append(("energy a step (estimate)", "J", *energy, _over(energy[0], energy[-1])))
    for what, _, values in times:
        gains = [_over(values[0], value) for value in values[1:]]
        if len(views) > 2 and all(gain > 0 for gain in gains):
            mean = float(np.exp(np.mean(np.log(gains))))
            rows.append((f"{what}: geomean speed-up over a", "x", *[np.nan, *gains], mean))
    rows += _class_rows(views) + _state_rows(recordings, options) + _name_rows(table, letters)
    return pd.DataFrame(rows, columns=["quantity", "unit", *letters, "change"])


def _class_rows(views: Sequence[View]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for index, name in enumerate(CLASSES):
        shares = [pct(v.time_ns(v.cls == index), v.time_ns(v.is_kernel)) for v in views]
        if any(shares):
            rows.append((f"{name} (of kernel time)", "%", *shares, shares[-1] - shares[0]))
    return rows


def _state_rows(recordings: Sequence[Recording], options: Options) -> list[tuple[object, ...]]:
    """The states with :data:`STATE_PCT` or more anywhere, largest change first, and how long a state lasts."""
    found = [dict(zip(t["state"], t["pct"], strict=True)) for t in (states(r, options) for r in recordings)]
    kept = {name for one in found for name, share in one.items() if share >= STATE_PCT}
    shares = {name: [float(one.get(name, 0.0)) for one in found] for name in kept}
    order = sorted(shares, key=lambda name: (-abs(shares[name][-1] - shares[name][0]), name))
    rows: list[tuple[object, ...]] = [
        (f"state {name} (of kernel time)", "%", *shares[name], shares[name][-1] - shares[name][0]) for name in order
    ]
    lengths = [mean_run_length(recording, options) for recording in recordings]
    rows.append(("kernels in a row in a state (mean)", "", *lengths, lengths[-1] - lengths[0]))
    return rows


def _name_rows(table: pd.DataFrame, letters: Sequence[str]) -> list[tuple[object, ...]]:
    present = table[[f"{letter}_us" for letter in letters]].to_numpy() > 0
    counts = [float(count) for count in present.sum(axis=0)]
    rows: list[tuple[object, ...]] = [("kernel names", "", *counts, counts[-1] - counts[0])]
    rows.append(("kernel names in all", "", *[float(present.all(axis=1).sum())] * len(letters), np.nan))
    for what, rule in (("appeared", ~present[:, 0] & present[:, -1]), ("vanished", present[:, 0] & ~present[:, -1])):
        column = letters[-1] if what == "appeared" else letters[0]
        time = float(table[f"{column}_us"].to_numpy()[rule].sum())
        rows.append((f"kernel names that {what}", "", *[np.nan] * len(letters), float(rule.sum())))
        rows.append((f"time in names that {what}", "us", *[np.nan] * len(letters), time))
    return rows


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
        code, names = owners(v, rows)
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
