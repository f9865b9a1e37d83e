"""The device waits for the next batch: the input pipeline, not the model, sets the pace."""

from __future__ import annotations

from profilers.analysis import idle
from profilers.analysis.advice.case import Case, Finding

CAUSE = "data loading"


def find(case: Case) -> Finding | None:
    """Gaps in which the host fetched a batch; priced as if every batch lay ready."""
    gaps, waited = case.waits[CAUSE]
    if not gaps:
        return None
    fetches = idle.loading(case.recording)
    evidence = (
        f"idle: {CAUSE} {case.wall_pct(waited):.1f} % of wall time in {gaps:,} gaps; "
        f"{len(fetches) / case.steps:,.1f} batches fetched a {case.per}, {fetches['dur_ns'].mean() / 1e6:,.3g} ms on average"
    )
    if fetches["name"].str.contains("SingleProcess").all():
        do = (
            "the DataLoader works in the training process itself: num_workers=4 or more, with pin_memory=True and "
            "persistent_workers=True, prepares batches while the device computes"
        )
    else:
        do = (
            "the DataLoader's workers do not keep up: more of them, a larger prefetch_factor, cheaper transforms (decode, "
            "augment on the device), or data stored in the form that the model takes; persistent_workers=True"
        )
    return Finding("The device waits for the next batch", evidence, do, case.without_wait(CAUSE))
