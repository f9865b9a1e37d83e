"""The host launches kernels more slowly than the device runs them."""

from __future__ import annotations

from profilers.analysis.advice.case import Case, Finding

FINDING = "The device waits for launches"
CAUSE = "launch-bound"
LONG_NS = 1_000_000
"""No launch takes this long: a host that leaves the device alone for more does something else meanwhile."""


def find(case: Case) -> Finding | None:
    """Gaps whose next kernel was launched too late; priced as if none were left (what graphs do at best)."""
    gaps, waited = case.waits[CAUSE]
    launched = case.gpu & (case.view.kernels["launch_ns"].to_numpy()[case.rows] >= 0)
    if not gaps or not launched.any():
        return None
    count = int(case.gpu.sum())
    graphs = 100.0 * float(case.view.kernels["graph"].to_numpy()[case.rows][case.gpu].mean())
    evidence = (
        f"idle: {CAUSE} {case.wall_pct(waited):.1f} % of wall time in {gaps:,} gaps; "
        f"kernels: {count / case.steps:,.0f} a {case.per}, {float(case.time[case.gpu].mean()) / 1e3:.1f} us on average"
    )
    if waited / gaps > LONG_NS:
        evidence += f"; {waited / gaps / 1e6:,.3g} ms a gap on average"
        do = (
            "launching takes microseconds: in gaps this long the host does other work (Python, allocations, set-up in the "
            "first steps); record with with_stack=True or py-spy to see what, and move it out of the step"
        )
        return Finding(FINDING, evidence, do, case.without_wait(CAUSE))
    graph = "CUDA graphs (torch.compile(mode='reduce-overhead') or torch.cuda.graph) replay a step with one launch"
    batch = "a larger batch gives each launch more to do"
    do = f"{batch}; {graphs:.0f} % of the kernels are graph replays already" if graphs > 50 else f"{graph}; {batch}"
    return Finding(FINDING, evidence, do, case.without_wait(CAUSE))
