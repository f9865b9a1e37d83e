"""Every table the program can show: its question, its columns, and where the function is that answers it.

The screen, ``kernelscope show`` and every export take a table from here, so that they cannot disagree. The module
imports no pandas: ``--help`` and the screen's first paint read it. ``compute`` imports the analysis when it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from profilers.analysis.options import Options

if TYPE_CHECKING:
    import pandas as pd

    from profilers.tables import Recording

Format = Literal["text", "name", "group", "class", "state", "count", "us", "pct", "number", "ratio", "flag"]
"""How a cell is written: ``name`` is a long kernel or operator name (shortened for people, whole in exports), ``group``
and ``class`` carry their letter and colour, ``us`` is a time in microseconds, ``pct`` 0-100 with one decimal."""


@dataclass(frozen=True)
class Col:
    """A result column. ``title`` is what people read; ``of`` says what a percentage is of; ``wide``: shown only where there is room."""

    name: str
    title: str
    format: Format = "text"
    of: str = ""
    doc: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Table:
    """A result table: stable name, the question it answers, columns in order, and ``module:function`` that computes it."""

    name: str
    question: str
    columns: tuple[Col, ...]
    function: str
    sort: str = ""
    descending: bool = True
    one_unit: bool = False
    """All its times are written in one unit, since they are read against one another."""

    def compute(self, recording: Recording, options: Options | None = None) -> pd.DataFrame:
        """The table of one recording: a frame with exactly ``columns`` (percentages 0-100, times as the names say)."""
        module, _, function = self.function.partition(":")
        call = cast("Callable[[Recording, Options], pd.DataFrame]", getattr(importlib.import_module(module), function))
        frame = call(recording, options or Options())
        return frame[[column.name for column in self.columns]]

    def column(self, name: str) -> Col:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


_A = "profilers.analysis"
_KERNEL_TIME = "of kernel time"

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "summary",
            "How much ran, how busy was the device, and how much of it was matrix multiply?",
            (
                Col("device", "device"),
                Col("device_name", "name"),
                Col("kernels", "kernels", "count"),
                Col("distinct_kernels", "distinct", "count"),
                Col("distinct_operators", "operators", "count"),
                Col("kernel_time_us", "kernel time", "us"),
                Col("busy_us", "busy", "us"),
                Col("span_us", "span", "us"),
                Col("idle_us", "idle", "us"),
                Col("gemm_pct", "GEMM", "pct", _KERNEL_TIME),
                Col("attention_pct", "attention", "pct", _KERNEL_TIME + "; counted in GEMM unless told otherwise"),
                Col("nongemm_pct", "non-GEMM", "pct", _KERNEL_TIME),
                Col("communication_pct", "communication", "pct", _KERNEL_TIME),
                Col("unclassified_pct", "unclassified", "pct", _KERNEL_TIME),
                Col("unlaunched_kernels", "no launch", "count"),
                Col("dropped_events", "dropped", "count"),
                Col("steps", "steps", "count"),
            ),
            f"{_A}.summary:summary",
        ),
        Table(
            "shares",
            "Where does the time go, by class: of kernel time, of operator time, of wall time?",
            (
                Col("share", "share"),
                Col("device", "device"),
                Col("class", "class", "class"),
                Col("time_us", "time", "us"),
                Col("pct", "%", "pct", "of the share's own total, see 'of'"),
                Col("of", "of"),
            ),
            f"{_A}.shares:shares",
        ),
        Table(
            "shares_by_group",
            "The same three shares, by group.",
            (
                Col("share", "share"),
                Col("device", "device"),
                Col("class", "class", "class"),
                Col("group", "group", "group"),
                Col("time_us", "time", "us"),
                Col("pct", "%", "pct", "of the share's own total"),
            ),
            f"{_A}.share_groups:shares_by_group",
        ),
        Table(
            "groups",
            "Which groups of kernels take the time?",
            (
                Col("class", "class", "class"),
                Col("group", "group", "group"),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("pct", "% kernel time", "pct", _KERNEL_TIME),
                Col("top_name", "largest kernel", "name"),
            ),
            f"{_A}.groups:groups",
            "time_us",
        ),
        Table(
            "kernels",
            "Which kernels take the time?",
            (
                Col("name", "kernel", "name"),
                Col("group", "group", "group"),
                Col("class", "class", "class", wide=True),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("mean_us", "mean", "us"),
                Col("min_us", "min", "us", wide=True),
                Col("max_us", "max", "us", wide=True),
                Col("pct", "% kernel time", "pct", _KERNEL_TIME),
                Col("cum_pct", "Σ %", "pct", _KERNEL_TIME + ", largest first"),
                Col("threads_median", "threads", "count", wide=True),
                Col("state", "state", "state"),
                Col("rule", "rule", wide=True),
            ),
            f"{_A}.kernels:kernels",
            "time_us",
        ),
        Table(
            "operators",
            "Which operators take the time, on the host and on the device?",
            (
                Col("name", "operator", "name"),
                Col("group", "group", "group"),
                Col("class", "class", "class", wide=True),
                Col("calls", "calls", "count"),
                Col("self_us", "self", "us"),
                Col("device_us", "device", "us"),
                Col("total_us", "host total", "us"),
                Col("pct", "% operator self time", "pct", "of host self + device time of all operators"),
                Col("kernels_per_call", "kernels/call", "number"),
            ),
            f"{_A}.operators:operators",
            "pct",
        ),
        Table(
            "expansion",
            "Into how many kernels does each operator expand?",
            (
                Col("operator", "operator", "name"),
                Col("calls", "calls", "count"),
                Col("kernels", "kernels", "count"),
                Col("distinct_kernels", "distinct", "count"),
            ),
            f"{_A}.expansion:expansion",
            "kernels",
        ),
        Table(
            "coverage",
            "How many kernels must be fast before most of the time is covered?",
            (
                Col("pct", "covers", "pct", _KERNEL_TIME),
                Col("names", "kernels", "count", doc="distinct kernel names needed"),
                Col("gemm_names", "of them GEMM", "count"),
                Col("other_names", "others", "count"),
                Col("lumped_names", "GEMM lumped", "count", doc="names needed when all GEMM kernels count as one"),
            ),
            f"{_A}.coverage:coverage",
            "pct",
            descending=False,
        ),
        Table(
            "gemms",
            "Which matrix multiplies, convolutions and attentions, and how fast are they?",
            (
                Col("op", "op", "name"),
                Col("shape", "shape"),
                Col("dtype", "type"),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("gflops", "GFLOP", "number", doc="of one call"),
                Col("gbytes", "GB", "number", doc="of one call, moved at least once (estimate)", wide=True),
                Col("intensity", "FLOP/B", "number", wide=True),
                Col("tflops_per_s", "TFLOP/s", "number"),
                Col("pct_of_peak", "% of peak", "pct", "of the device's peak for this type"),
                Col("bound", "bound"),
                Col(
                    "peak_source",
                    "peak from",
                    doc="table | estimated | measured | given; unchecked: of the table, not found again in a datasheet",
                    wide=True,
                ),
            ),
            f"{_A}.gemms:gemms",
            "time_us",
        ),
        Table(
            "roofline",
            "Which kernels are limited by arithmetic, which by memory?",
            (
                Col("name", "kernel", "name"),
                Col("group", "group", "group"),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("intensity", "FLOP/B", "number"),
                Col("tflops_per_s", "TFLOP/s", "number"),
                Col("gb_per_s", "GB/s", "number"),
                Col("roof_tflops_per_s", "roof", "number", doc="the most the device allows at this intensity"),
                Col("pct_of_roof", "% of roof", "pct", "of what the device allows at this intensity"),
                Col("bound", "bound"),
                Col("source", "source"),
            ),
            f"{_A}.roofline:roofline",
            "time_us",
        ),
        Table(
            "roofline_groups",
            "How near is each group, as a whole, to what the device allows?",
            (
                Col("group", "group", "group"),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("known_pct", "known", "pct", "of its time", doc="its bytes are known; rates are of that part"),
                Col("intensity", "FLOP/B", "number"),
                Col("tflops_per_s", "TFLOP/s", "number"),
                Col("gb_per_s", "GB/s", "number"),
                Col("pct_of_roof", "% of roof", "pct", "of what the device allows at this intensity"),
                Col("bound", "bound"),
                Col("source", "source"),
            ),
            f"{_A}.roofline:roofline_groups",
            "time_us",
        ),
        Table(
            "roofs",
            "What does the device allow at most, in each type that occurs, and who says so?",
            (
                Col("model", "model"),
                Col("devices", "devices"),
                Col("roof", "roof", doc="a type that is computed in, or memory"),
                Col("tflops_per_s", "TFLOP/s", "number"),
                Col("gb_per_s", "GB/s", "number"),
                Col("source", "source", doc="table | unchecked | estimated | measured | given | none"),
                Col("cite", "from"),
            ),
            f"{_A}.roofs:roofs",
            "",
        ),
        Table(
            "states",
            "In which utilization states is the chip, for how long, and for how many kernels in a row?",
            (
                Col("state", "state", "state"),
                Col("time_us", "time", "us"),
                Col("pct", "% kernel time", "pct", _KERNEL_TIME),
                Col("gemm_pct", "in GEMM", "pct", _KERNEL_TIME),
                Col("nongemm_pct", "in the rest", "pct", _KERNEL_TIME),
                Col("kernels", "kernels", "count"),
                Col("runs", "runs", "count"),
                Col("mean_run_length", "kernels/run", "number"),
                Col("source", "source"),
            ),
            f"{_A}.states:states",
            "time_us",
        ),
        Table(
            "transitions",
            "Which state follows which?",
            (Col("from", "from", "state"), Col("to", "to", "state"), Col("count", "count", "count")),
            f"{_A}.states:transitions",
            "count",
        ),
        Table(
            "runlengths",
            "How many kernels in a row stay in one state?",
            (
                Col("state", "state", "state"),
                Col("length", "kernels in a row", "count"),
                Col("runs", "runs", "count"),
                Col("time_us", "time", "us"),
            ),
            f"{_A}.states:runlengths",
            "runs",
        ),
        Table(
            "utilization",
            "For how much of the time is the busiest resource below x %?",
            (
                Col("below_pct", "max(SM, DRAM, tensor) below", "pct", "of peak"),
                Col("time_us", "time", "us"),
                Col("time_pct", "% kernel time", "pct", _KERNEL_TIME),
                Col("source", "source"),
            ),
            f"{_A}.states:utilization",
            "below_pct",
            descending=False,
        ),
        Table(
            "timeline",
            "What ran when?",
            (
                Col("device", "device"),
                Col("bin", "slice", "count"),
                Col("start_us", "from", "us"),
                Col("dur_us", "length", "us"),
                Col("class", "class", "class", doc="the class with most time in the slice"),
                Col("state", "state", "state", doc="the state with most time in the slice"),
                Col("gemm_pct", "GEMM", "pct", "of the slice"),
                Col("busy_pct", "busy", "pct", "of the slice"),
            ),
            f"{_A}.timeline:timeline",
            "bin",
            descending=False,
        ),
        Table(
            "idle",
            "Why does the device wait?",
            (
                Col("cause", "cause"),
                Col("gaps", "gaps", "count"),
                Col("time_us", "time", "us"),
                Col("pct", "% of span", "pct", "of the device's span, first start to last end"),
                Col("longest_us", "longest", "us"),
            ),
            f"{_A}.idle:idle",
            "time_us",
        ),
        Table(
            "communication",
            "How long do devices talk, and how much of it is hidden behind other work?",
            (
                Col("device", "device"),
                Col("name", "kernel", "name"),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("exposed_us", "exposed", "us", doc="no other kernel of the device ran meanwhile"),
                Col("overlapped_us", "overlapped", "us"),
                Col("exposed_pct", "exposed", "pct", "of this kernel's own time"),
            ),
            f"{_A}.communication:communication",
            "time_us",
        ),
        Table(
            "ranks",
            "Which rank or device do the others wait for?",
            (
                Col("device", "device"),
                Col("slowest", "slowest"),
                Col("step_us", "step", "us", doc="mean wall time of a step; work, exposed and idle add up to it"),
                Col("work_us", "work", "us", doc="of a step: anything but communication ran"),
                Col("behind_us", "behind", "us", doc="work beyond that of the rank with least"),
                Col("exposed_us", "exposed", "us", doc="of a step: communication that no other work hides"),
                Col("idle_us", "idle", "us", doc="of a step"),
                Col("exposed_pct", "exposed", "pct", "of the step"),
                Col("communication_us", "communication", "us", doc="of a step, hidden or not", wide=True),
                Col("steps", "steps", "count", wide=True),
            ),
            f"{_A}.ranks:ranks",
            one_unit=True,
        ),
        Table(
            "whatif",
            "What would a change buy?",
            (
                Col("case", "case"),
                Col("gemm", "GEMM", "ratio"),
                Col("nongemm", "others", "ratio"),
                Col("window", "window", "count"),
                Col("device_speedup", "device", "ratio", doc="kernel time before over after"),
                Col(
                    "wall_speedup", "wall", "ratio", doc="step time before over after; idle and copies are not sped up"
                ),
            ),
            f"{_A}.whatif:whatif",
            "",
        ),
        Table(
            "fusion",
            "What do compiled kernels fuse, and whose time is theirs?",
            (
                Col("kernel", "kernel", "name"),
                Col("device", "device", wide=True),
                Col("calls", "calls", "count"),
                Col("time_us", "time", "us"),
                Col("pct", "% kernel time", "pct", _KERNEL_TIME),
                Col("operators", "operators", "count", doc="operators inside, by the compiler's own provenance"),
                Col(
                    "inside", "inside", doc="what share of the kernel's time each operator inside is estimated to take"
                ),
                Col("class_any_gemm", "class", "class", doc="any GEMM inside makes it GEMM (1,000-kernels study)"),
                Col("gemm_us", "GEMM part", "us", doc="its time divided by what the operators inside would take alone"),
                Col("attention_us", "attention part", "us", wide=True),
                Col("nongemm_us", "non-GEMM part", "us"),
                Col("communication_us", "communication part", "us", wide=True),
                Col("unclassified_us", "unclassified part", "us", wide=True),
                Col("quantizes", "Q/DQ inside", "flag", doc="something inside quantizes or dequantizes"),
                Col("split", "split by", wide=True),
            ),
            f"{_A}.fusion:fusion",
            "time_us",
        ),
        Table(
            "fusion_rate",
            "How many of the non-GEMM operators were fused, and with what?",
            (
                Col("how", "how"),
                Col("operators", "operators", "count"),
                Col("pct", "% of them", "pct", "of the non-GEMM operators called"),
            ),
            f"{_A}.fusion:rates",
            "",
        ),
        Table(
            "advice",
            "What to do next, and what would it buy?",
            (
                Col("finding", "finding"),
                Col("device_speedup", "device", "ratio", doc="kernel time before over after this change alone"),
                Col("wall_speedup", "wall", "ratio", doc="wall time before over after this change alone"),
                Col("evidence", "evidence", doc="the tables and figures that it rests on"),
                Col("do", "what to do"),
                Col("of", "of", doc="what the two speed-ups are of"),
            ),
            f"{_A}.advise:advice",
            "",
        ),
        Table(
            "bound",
            "How fast could a step be at most, on any device, and would it fit?",
            (
                Col("device", "device"),
                Col("dtype", "type", doc="the type that most operations are in"),
                Col(
                    "bound_ms",
                    "least ms",
                    "number",
                    doc="a step, every operator at the roofline: computed, not measured",
                ),
                Col(
                    "compute_ms", "compute ms", "number", doc="all operations at the peaks of their types, nothing else"
                ),
                Col("memory_ms", "memory ms", "number", doc="all bytes at the memory bandwidth, nothing else"),
                Col("limit", "limit", doc="what most of the least time is bound by"),
                Col("memory_gb", "memory GB", "number", doc="of the device"),
                Col("fits", "fits", doc="whether a step's memory, where it was estimated, fits in it"),
            ),
            f"{_A}.bound:bound",
            "bound_ms",
            descending=False,
        ),
        Table(
            "notes",
            "What was dropped, repaired, not attributed or assumed?",
            (Col("code", "code"), Col("count", "count", "count"), Col("text", "what")),
            f"{_A}.summary:notes",
            "",
        ),
    )
}
