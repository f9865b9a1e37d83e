"""What a row is made of: tables that need a name beside the recording."""

from __future__ import annotations

from profilers.analysis.registry import Col, Table

_D = "profilers.analysis.drill"

DRILLS: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "kernel-operators",
            "Which operators launch this kernel, on which shapes?",
            (
                Col("operator", "operator", "name"),
                Col("shapes", "input shapes"),
                Col("module", "module"),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("pct", "% of this kernel", "pct", "of this kernel's time"),
            ),
            f"{_D}:operators_of_kernel",
            "time_us",
        ),
        Table(
            "kernel-occurrences",
            "When did this kernel run?",
            (
                Col("start_us", "start", "us"),
                Col("dur_us", "length", "us"),
                Col("step", "step", "count"),
                Col("device", "device"),
                Col("stream", "stream", "count"),
                Col("operator", "operator", "name"),
            ),
            f"{_D}:occurrences",
            "start_us",
            descending=False,
        ),
        Table(
            "operator-kernels",
            "Into which kernels does this operator expand?",
            (
                Col("kernel", "kernel", "name"),
                Col("group", "group", "group"),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("pct", "% of this operator", "pct", "of this operator's kernel time"),
            ),
            f"{_D}:kernels_of_operator",
            "time_us",
        ),
    )
}
