"""Communication during which the device computes nothing."""

from __future__ import annotations

import numpy as np

from profilers.analysis import intervals
from profilers.analysis.advice.case import Case, Finding
from profilers.analysis.view import COMMUNICATION_CODE

EXCHANGE = (
    "begin the exchange (async_op=True) before work that does not need it, split it into parts that run beside the "
    "computation on each other, or send less: fewer rows, a smaller type"
)
TRAINING = (
    "start collectives earlier and compute meanwhile: smaller DDP buckets (bucket_cap_mb), FSDP prefetch, "
    "async_op=True, tensor parallelism with asynchronous collectives"
)
SERVING = (
    "fuse or overlap the collectives of tensor parallelism with the products beside them (symmetric memory, asynchronous "
    "tensor parallelism), split the batch in two so that one half computes while the other talks, or use fewer ranks"
)


def _exchanges(case: Case) -> bool:
    """Whether most of the time goes to point-to-point or all-to-all transfers."""
    talk = case.of_group("collective")
    moves = talk & case.named(("sendrecv", "send_recv", "alltoall", "all_to_all", "all2all", "dispatch", "combine"))
    return bool(2 * case.time[moves].sum() > case.time[talk].sum())


def _trains(case: Case) -> bool:
    """Whether gradients or an optimizer were seen."""
    names = case.view.operators["name"].cat.categories
    return bool(case.of_group("optimizer").any()) or any("Backward" in str(name) for name in names)


def find(case: Case) -> Finding | None:
    """Priced in wall time as if all of it ran beside computation; kernel time stays what it is."""
    v, exposed, whole, talks = case.view, 0.0, 0.0, 0
    for device in range(len(v.devices)):
        mine = v.is_kernel & (v.device == device)
        talk, work = (
            np.flatnonzero(mine & (v.cls == COMMUNICATION_CODE)),
            np.flatnonzero(mine & (v.cls != COMMUNICATION_CODE)),
        )
        talks += talk.size
        begin, end = intervals.union(v.start[talk], v.start[talk] + v.dur[talk])
        busy = intervals.union(v.start[work], v.start[work] + v.dur[work])
        whole += float(intervals.covered(begin, end, *v.wall(device)).sum())
        exposed += intervals.alone(begin, end, busy, v.wall(device))
    if not talks or exposed <= 0:
        return None
    evidence = (
        f"communication: {talks / case.steps:,.0f} collectives a {case.per}, {100 * exposed / whole:.1f} % of their time "
        f"exposed, {case.wall_pct(exposed):.1f} % of wall time"
    )
    do = EXCHANGE if _exchanges(case) else TRAINING if _trains(case) else SERVING
    priced = case.model.price_each(np.ones(case.rows.size), exposed)
    return Finding("Communication is not hidden behind computation", evidence, do, priced)
