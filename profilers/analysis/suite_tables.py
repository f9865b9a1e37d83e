"""The columns of a suite's tables: several runs, a row each. Imports no pandas."""

from __future__ import annotations

from profilers.analysis.registry import Col, Table

_KERNEL_TIME = "of kernel time"

SUITE = Table(
    "suite",
    "What do these workloads consist of, and where does their time go?",
    (
        Col("workload", "workload"),
        Col("device", "device", wide=True),
        Col("step_ms", "step ms", "number", doc="median of the unprofiled steps"),
        Col("operators", "operators", "count", doc="distinct operators that the model calls and that launch kernels"),
        Col("operator_calls", "calls/step", "number", doc="calls of those in one step"),
        Col("kernels", "kernels", "count", doc="distinct kernel names"),
        Col("kernel_calls", "launches/step", "number", doc="kernels launched in one step"),
        Col("gemm_pct", "GEMM", "pct", _KERNEL_TIME),
        Col("attention_pct", "attention", "pct", _KERNEL_TIME + "; counted in GEMM unless told otherwise", wide=True),
        Col("nongemm_pct", "non-GEMM", "pct", _KERNEL_TIME),
        Col("communication_pct", "communication", "pct", _KERNEL_TIME, wide=True),
        Col("unclassified_pct", "unclassified", "pct", _KERNEL_TIME, wide=True),
        Col("idle_pct", "idle", "pct", "of the steps' wall time"),
        Col("states", "states", "count", doc="distinct utilization states"),
        Col("top_state", "top state", "state"),
        Col("top_state_pct", "in it", "pct", _KERNEL_TIME),
        Col("run_length", "kernels/run", "number", doc="mean number of consecutive kernels in one state"),
        Col("gemm_2x", "GEMM 2x", "ratio", doc="kernel time before over after if GEMM were twice as fast (Amdahl)"),
        Col("gemm_10x", "GEMM 10x", "ratio", doc="the same for ten times as fast"),
    ),
    "",
)
"""The last two rows: ``geomean`` over the workloads (counts, lengths, times, speed-ups) and ``mean`` (percentages)."""

TOP = Table(
    "suite-operators",
    "Which three operators take most of each workload's kernel time?",
    (
        Col("workload", "workload"),
        Col("first", "first", "name"),
        Col("first_pct", "%", "pct", _KERNEL_TIME),
        Col("second", "second", "name"),
        Col("second_pct", "%", "pct", _KERNEL_TIME),
        Col("third", "third", "name"),
        Col("third_pct", "%", "pct", _KERNEL_TIME),
        Col("other_pct", "others", "pct", _KERNEL_TIME),
    ),
    "",
)

UNION = Table(
    "suite-union",
    "How many kernels must be fast before most of every workload is covered?",
    (
        Col("pct", "covers", "pct", "of each workload's kernel time, its GEMM kernels lumped"),
        Col("workloads", "workloads", "count"),
        Col("names", "kernels", "count", doc="the other two columns together"),
        Col("gemm_names", "all GEMM", "count", doc="every GEMM kernel that occurs (1,000-kernels study)"),
        Col("other_names", "others", "count", doc="other kernels that some workload needs"),
        Col("all_kernels", "of kernels", "count", doc="distinct kernel names of all workloads"),
        Col("all_operators", "operators", "count", doc="distinct operators of all workloads"),
    ),
    "",
)

TABLES = {table.name: table for table in (SUITE, TOP, UNION)}
