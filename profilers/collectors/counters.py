"""Hardware counters: what Nsight Compute is asked for, and what it says while it works. Light: no torch, no pandas.

``ncu`` runs the workload once more, from scratch, and replays every kernel of one step several times, once for each set
of counters that fits into the hardware. That takes long, and needs the driver's permission. Two other ways run it once
more and replay less: torch.profiler's own counter mode (``cupti``) and sampling (``pm``,
:mod:`profilers.collectors.pm_sampling`).
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_TIME = "gpu__time_duration.sum"
_THREADS = "launch__thread_count"
_PCT = ".avg.pct_of_peak_sustained_elapsed"

SIX = (
    _TIME,
    _THREADS,
    f"sm__pipe_tensor_cycles_active{_PCT}",
    f"gpu__dram_throughput{_PCT}",
    f"sm__inst_executed_pipe_fp16{_PCT}",
    f"sm__throughput{_PCT}",
)
"""The 1,000-kernels study's minimal set, on which states and utilization rest."""

FULL = (
    f"sm__throughput{_PCT}",
    f"gpu__compute_memory_throughput{_PCT}",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    f"lts__throughput{_PCT}",
    f"gpu__dram_throughput{_PCT}",
    f"sm__issue_active{_PCT}",
    f"sm__inst_executed{_PCT}",
    f"sm__pipe_alu_cycles_active{_PCT}",
    f"sm__pipe_fma_cycles_active{_PCT}",
    f"sm__inst_executed_pipe_lsu{_PCT}",
    f"sm__inst_executed_pipe_adu{_PCT}",
    f"sm__mio2rf_writeback_active{_PCT}",
    f"sm__inst_executed_pipe_fp16{_PCT}",
    f"sm__inst_executed_pipe_xu{_PCT}",
    f"sm__pipe_fp64_cycles_active{_PCT}",
    f"sm__pipe_shared_cycles_active{_PCT}",
    f"sm__pipe_tensor_cycles_active{_PCT}",
)
"""The seventeen by which the study compares kernels; time and thread count are collected beside them."""

SETS = {"six": SIX, "full": tuple(dict.fromkeys((_TIME, _THREADS, *FULL)))}

CUPTI = "cupti"
CUPTI_METRICS = tuple(name for name in SIX if name != _THREADS)
"""What torch.profiler is asked for in its counter mode: thread counts are the launch's own there."""

PM = "pm"
"""The step is not replayed: the GPU's performance monitors are sampled while it runs."""

CHOICES = (*SETS, CUPTI, PM)

EVERY = {1: "", 2: ".*[02468]", 5: ".*[05]", 10: ".*0", 20: ".*[02468]0", 50: ".*[05]0", 100: ".*00"}
"""Every n-th invocation of each kernel -> ncu's pattern for invocation numbers."""

NOT_HERE = (
    "--counters needs Nsight Compute's ncu on PATH (it comes with the CUDA toolkit); without --counters utilization is "
    "estimated from shapes and peaks"
)
NO_PERMISSION = (
    "the driver lets only administrators read counters. An administrator puts 'options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0' into /etc/modprobe.d and reloads the driver (or reboots); a container also "
    "needs --cap-add SYS_ADMIN"
)

PM_MISSING = "--counters pm needs cupti-python 13.3 or newer: see Counters in the README, which says how to install it"

DENIED = "ERR_NVGPUCTRPERM"
"""NVIDIA's own word for what :data:`NO_PERMISSION` explains."""

_PROFILING = re.compile(r'^==PROF== Profiling "(?P<name>.*)"(?: - \d+)?(?: \([^)]*\))?:')
_ERROR = re.compile(r"^==ERROR==\s*(?P<text>.*)")
_UNKNOWN_METRIC = re.compile(r"[Ff]ailed to find metric[s]?:?\s+(?:regex:)?(?P<name>[\w.]+)")
_NOTHING = re.compile(r"No kernels were profiled")


class CountersError(Exception):
    """Why there are no counters, in one line. The worker of the second pass tells it as ncu tells its own."""

    def told(self) -> str:
        """The line for :meth:`Progress.hear`."""
        return f"==ERROR== {self}"


def find_sampling() -> bool:
    """Whether cupti-python is here in a version that samples. It is looked for and not imported."""
    spec = find_spec("cupti")
    return spec is not None and any(
        (Path(folder) / "pm_sampling.py").is_file() for folder in spec.submodule_search_locations or ()
    )


def find_ncu() -> str | None:
    """Nsight Compute's command, or None where it is not on PATH."""
    return shutil.which("ncu")


def command(ncu: str, metrics: tuple[str, ...], every: int, page: Path, target: list[str]) -> list[str]:
    """The command line: ``target`` under ncu, its counters as a raw CSV page in the file ``page``.

    Only what runs between ``cudaProfilerStart`` and ``cudaProfilerStop`` is measured, in the target and its children.
    """
    sampled = ["--kernel-id", f":::{EVERY[every]}"] if every > 1 else []
    return [
        ncu,
        "--profile-from-start",
        "off",
        "--target-processes",
        "all",
        "--metrics",
        ",".join(metrics),
        *sampled,
        "--csv",
        "--page",
        "raw",
        "--log-file",
        str(page),
        *target,
    ]


def worker(folder: Path, supervisor: int, *more: str) -> list[str]:
    """The target: the run's workload, one step of it in the profiler's range. ``more``: a file for the trace with
    counters, where torch.profiler itself collects them; or one for a plain trace and one for the samples beside it."""
    return [sys.executable, "-P", "-m", "profilers.collectors.counted", str(folder), str(supervisor), *more]


@dataclass
class Progress:
    """What ncu has said so far. ``profiled`` counts kernels; ``problem`` is one line on why there are no counters.

    ``unknown``: metrics that this GPU (or this ncu) does not have: without them it can be tried again.
    """

    profiled: int = 0
    problem: str = ""
    unknown: tuple[str, ...] = ()

    def hear(self, line: str) -> None:
        """Take in one line of ncu's output; lines of the workload itself say nothing here."""
        line = line.strip()
        if _PROFILING.match(line):
            self.profiled += 1
        elif found := _UNKNOWN_METRIC.search(line):
            self.unknown = tuple(dict.fromkeys((*self.unknown, found.group("name"))))
            self.problem = self.problem or f"this GPU has no metric {found.group('name')}"
        elif DENIED in line:
            self.problem = NO_PERMISSION
        elif _NOTHING.search(line):
            self.problem = self.problem or "Nsight Compute saw no kernel in the measured step"
        elif (error := _ERROR.match(line)) and not self.problem:
            self.problem = error.group("text")[:200]


def eta_s(profiled: int, total: int | None, spent_s: float) -> float | None:
    """Seconds left at the pace so far; None before anything is known."""
    if not profiled or not total:
        return None
    return max(0.0, spent_s / profiled * (total - profiled))
