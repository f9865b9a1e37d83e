"""The host launches kernels more slowly than the device runs them."""

from __future__ import annotations

from profilers.analysis.advice.case import Case, Finding

CAUSE = "launch-bound"


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
    graph = "CUDA graphs (torch.compile(mode='reduce-overhead') or torch.cuda.graph) replay a step with one launch"
    batch = "a larger batch gives each launch more to do"
    do = f"{batch}; {graphs:.0f} % of the kernels are graph replays already" if graphs > 50 else f"{graph}; {batch}"
    return Finding("The device waits for launches", evidence, do, case.without_wait(CAUSE))
