"""The host waits for the device in the middle of a step and launches nothing meanwhile."""

from __future__ import annotations

import numpy as np

from profilers.analysis import tally
from profilers.analysis.advice.case import Case, Finding
from profilers.analysis.idle import blocking

CAUSE = "synchronisation"
READS = ("item", "_local_scalar_dense", "is_nonzero", "nonzero", "unique", "masked_select", "equal", "to", "_to_copy")
"""Operators that read a value of the device back, so that the host must wait for it."""


def find(case: Case) -> Finding | None:
    """Gaps behind a synchronising call; priced as if the host never waited there."""
    gaps, waited = case.waits[CAUSE]
    if not gaps:
        return None
    runtime = case.recording.runtime
    names, sync = tally.texts(runtime["name"]), blocking(runtime)
    codes = tally.codes(runtime["name"])[sync] % names.size
    calls = tally.count(codes, names.size)
    longest = int(tally.total(codes, runtime["dur_ns"].to_numpy()[sync], names.size).argmax())
    evidence = (
        f"idle: {CAUSE} {case.wall_pct(waited):.1f} % of wall time in {gaps:,} gaps; "
        f"{calls[longest] / case.steps:,.1f} {names[longest]} a {case.per}"
    )
    readers = _readers(case, sync)
    if readers:
        evidence += f"; operators: {readers} hold such calls"
    item = "item" in readers or "_local_scalar_dense" in readers
    do = (
        "keep .item() and printing of losses out of the step: leave the value on the device, read it every so many steps"
        if item
        else "take the call out of the step: no .item(), .cpu() or data-dependent shape (nonzero, boolean masks) in it; "
        "copy with non_blocking=True from pinned memory"
    )
    return Finding("The host waits for the device in the middle of a step", evidence, do, case.without_wait(CAUSE))


def _readers(case: Case, sync: np.ndarray) -> str:
    """The reading operators that hold synchronising calls, those with most calls first."""
    runtime, ops = case.recording.runtime, case.view.operators
    if not len(ops):
        return ""
    texts = tally.texts(ops["name"])
    wanted = np.array([str(name).rpartition("::")[2].rstrip("_") in READS for name in texts], bool)
    rows = np.flatnonzero(wanted[tally.codes(ops["name"])])
    at = runtime["start_ns"].to_numpy()[sync]
    thread = runtime["thread_id"].to_numpy()[sync]
    counts: dict[str, int] = {}
    for one in np.unique(thread):
        mine = rows[ops["thread_id"].to_numpy()[rows] == one]
        begin = ops["start_ns"].to_numpy()[mine]
        order = np.argsort(begin, kind="stable")
        mine, begin = mine[order], begin[order]
        calls = at[thread == one]
        place = np.searchsorted(begin, calls, side="right") - 1
        inside = place >= 0
        place = place[inside]
        inside_end = begin[place] + ops["dur_ns"].to_numpy()[mine[place]] >= calls[inside]
        for code, number in zip(
            *np.unique(tally.codes(ops["name"])[mine[place[inside_end]]], return_counts=True), strict=True
        ):
            name = str(texts[code])
            counts[name] = counts.get(name, 0) + int(number)
    return ", ".join(sorted(counts, key=lambda name: -counts[name])[:2])
