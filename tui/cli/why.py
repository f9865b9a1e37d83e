"""Which rule put which kernels into which group: the groups table, one step deeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profilers.analysis.registry import Col, Table

if TYPE_CHECKING:
    import pandas as pd

    from profilers.rules.matcher import RuleSet
    from profilers.tables import Recording

WHY = Table(
    "groups-why",
    "Which rule decided, from which line of which file?",
    (
        Col("group", "group", "group"),
        Col("rule", "rule"),
        Col("where", "from"),
        Col("kernels", "kernel names", "count"),
        Col("calls", "calls", "count"),
        Col("time_us", "time", "us"),
        Col("pct", "% kernel time", "pct", "of kernel time"),
        Col("top_name", "largest kernel", "name"),
    ),
    "",
    "time_us",
)


def why(recording: Recording, rules: RuleSet) -> pd.DataFrame:
    """One row a group and rule, largest first; ``where`` is the rule's file and line ('' where no rule applied)."""
    import pandas as pd

    from profilers.analysis.view import view

    kernels = recording.kernels.iloc[view(recording).rows]
    by = ["group", "rule"]
    names = kernels.groupby([*by, "name"], observed=True)["dur_ns"].agg(["sum", "size"]).reset_index()
    found = names.groupby(by, observed=True).agg(kernels=("name", "size"), calls=("size", "sum"), ns=("sum", "sum"))
    largest = names.loc[names.groupby(by, observed=True)["sum"].idxmax()].set_index(by)["name"]
    total = int(kernels["dur_ns"].sum())
    frame = found.join(largest.rename("top_name")).reset_index()
    frame["where"] = [rules.where(str(rule)) for rule in frame["rule"]]
    frame["time_us"] = frame["ns"] / 1000.0
    frame["pct"] = frame["ns"] * (100.0 / total) if total else 0.0
    frame = frame.sort_values("ns", ascending=False, kind="stable").reset_index(drop=True)
    return pd.DataFrame(frame[[column.name for column in WHY.columns]])
