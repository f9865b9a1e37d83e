"""The columns of a comparison, which depend on how many are compared. Imports no pandas."""

from __future__ import annotations

from collections.abc import Sequence

from profilers.analysis.registry import Col, Table


def rows_table(letters: Sequence[str], by: str) -> Table:
    """The columns of :func:`profilers.analysis.compare.compare` of so many recordings, by kernel, operator or group."""
    return Table(
        "compare",
        "What grew, what shrank, what is new?",
        (
            Col("name", by, "group" if by == "group" else "name"),
            Col("group", "group", "group", wide=by == "group"),
            *(Col(f"{letter}_us", letter, "us") for letter in letters),
            Col("ratio", f"{letters[-1]}/a", "ratio", doc="inf: appeared; 0: vanished"),
            Col("delta_us", f"{letters[-1]} - a", "us"),
            Col("pct", "of change", "pct", "of all changes, sizes added up"),
            Col("sign", "sign", doc="appeared, vanished, more, less or same"),
        ),
        "",
        "pct",
        one_unit=True,
    )


def summary_table(letters: Sequence[str]) -> Table:
    """The columns of :func:`profilers.analysis.compare.summary_block` of so many recordings."""
    return Table(
        "compare-summary",
        "How much faster, and by which share of the time?",
        (
            Col("quantity", "quantity"),
            Col("unit", "unit"),
            *(Col(letter, letter, "number") for letter in letters),
            Col(
                "change",
                "change",
                "number",
                f"times and energy: a/{letters[-1]}, above 1 is less; else {letters[-1]} - a",
                doc="of times and energy a over the last; of shares percentage points",
            ),
        ),
        "",
    )
