"""Copies between host and device during which no kernel runs."""

from __future__ import annotations

import re

import numpy as np

from profilers.analysis import intervals, tally
from profilers.analysis.advice.case import Case, Finding
from profilers.analysis.view import is_cpu

ACROSS = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost|Host -> Device|Device -> Host")
PAGEABLE = re.compile(r"Pageable")


def find(case: Case) -> Finding | None:
    """Priced in wall time as if every such copy ran beside kernels; kernel time stays what it is."""
    v = case.view
    names, code = tally.texts(v.kernels["name"]), tally.codes(v.kernels["name"])
    across = np.array([bool(ACROSS.search(str(name))) for name in names] + [False])[code]
    across &= v.believed & ~v.is_kernel
    exposed = 0.0
    for device, name in enumerate(v.devices):
        mine = v.device == device
        copies = np.flatnonzero(mine & across)
        if is_cpu(name) or not copies.size:
            continue
        work = np.flatnonzero(mine & v.is_kernel)
        busy = intervals.union(v.start[work], v.start[work] + v.dur[work])
        exposed += intervals.alone(v.start[copies], v.start[copies] + v.dur[copies], busy, v.wall(device))
    rows = np.flatnonzero(across)
    if exposed <= 0:
        return None
    time = float(v.dur[rows].sum())
    moved = np.nan_to_num(v.kernels["bytes"].to_numpy()[rows])
    amount = f", {moved.sum() / 1e9:,.3g} GB at {moved.sum() / time:,.3g} GB/s" if moved.sum() > 0 and time else ""
    most = str(names[int(tally.total(code[rows] % names.size, v.dur[rows], names.size).argmax())])
    evidence = (
        f"copies: {rows.size / case.steps:,.0f} between host and device a {case.per}{amount}, "
        f"{case.wall_pct(exposed):.1f} % of wall time without a kernel beside them; most: {most}"
    )
    do = (
        "copy from pinned memory (DataLoader(pin_memory=True), tensor.pin_memory()) with non_blocking=True, the next batch "
        "while this one computes"
        if PAGEABLE.search(most)
        else "keep on the device what is copied again and again (offloaded parameters, optimizer states, caches), or copy the "
        "next part on a stream of its own while kernels run"
    )
    return Finding(
        "The device copies instead of computing",
        evidence,
        do,
        case.model.price_each(np.ones(case.rows.size), exposed),
    )
