"""What the Ranks tab says above its table."""

from __future__ import annotations

import pandas as pd

from tui.panes.ranks import verdict


def frame(*rows: tuple[str, float, float, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["device", "step_us", "behind_us", "slowest"])


def test_the_slowest_is_named_with_what_it_costs() -> None:
    said = verdict(frame(("rank0/cpu", 100_000.0, 0.0, ""), ("rank1/cpu", 100_000.0, 50_000.0, "slowest")))
    assert said == "Slowest: rank1/cpu, +50.0 ms work (50 % of a step)"
    assert "None is slower" in verdict(frame(("a", 1.0, 0.0, ""), ("b", 1.0, 0.0, "")))
    assert verdict(frame(("cpu", 1.0, 0.0, ""))) == ""
