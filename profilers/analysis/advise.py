"""What to do next: at most five findings, each with the rows that it rests on and a priced gain.

Every gain comes from the what-if model on this recording's own times (kernels made faster or taken out, waits taken out),
each change by itself: gains do not add up. Where a rule cannot price its change, it says nothing.
"""

from __future__ import annotations

import math

import pandas as pd

from profilers.analysis.advice import (
    copies,
    launches,
    layouts,
    loading,
    norms,
    optimizers,
    overlap,
    pointwise,
    rotary,
    scores,
    syncs,
    tiles,
)
from profilers.analysis.advice.case import Case, Finding
from profilers.analysis.options import Options
from profilers.tables import Recording

MOST = 5
RULES = (
    copies.find,
    loading.find,
    launches.find,
    syncs.find,
    pointwise.find,
    norms.find,
    rotary.find,
    scores.find,
    optimizers.find,
    layouts.find,
    tiles.find,
    overlap.find,
)

_COLUMNS = ["finding", "evidence", "do", "device_speedup", "wall_speedup", "of"]


def findings(recording: Recording, options: Options) -> list[Finding]:
    """What the rules find and what pays, most wall time first."""
    case = Case(recording, options)
    if not case.rows.size:
        return []
    found = [finding for finding in (rule(case) for rule in RULES) if finding is not None and finding.pays]
    return sorted(found, key=lambda finding: [-worth for worth in finding.worth])[:MOST]


def advice(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per finding. ``wall_speedup`` and ``device_speedup`` are times before over after; ``of`` says of which times."""
    wall = "step time" if len(recording.steps) else "the recording's span"
    rows = [
        (
            f.finding,
            f.evidence,
            f.do,
            f.priced.device_speedup,
            f.priced.wall_speedup,
            f"wall: {wall}; device: kernel time",
        )
        for f in findings(recording, options)
        if not math.isnan(f.priced.device_speedup)
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)
