"""What ncu is asked for, and what is made of the lines that it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profilers.collectors import counters


def test_the_studys_sets():
    assert len(counters.SIX) == 6 and len(counters.FULL) == 17
    assert "gpu__time_duration.sum" in counters.SIX and "launch__thread_count" in counters.SIX
    # Time and threads are needed to place a kernel, whatever is compared.
    assert set(counters.SETS["full"]) == {*counters.FULL, "gpu__time_duration.sum", "launch__thread_count"}


def test_the_command_line():
    made = counters.command("/opt/ncu", counters.SIX, 1, Path("page.csv"), ["python", "x.py"])
    assert made[0] == "/opt/ncu" and made[-2:] == ["python", "x.py"]
    assert made[made.index("--profile-from-start") + 1] == "off"
    assert made[made.index("--metrics") + 1].split(",") == list(counters.SIX)
    assert made[made.index("--log-file") + 1] == "page.csv"
    assert "--csv" in made and "--kernel-id" not in made
    sampled = counters.command("ncu", counters.SIX, 20, Path("p"), ["t"])
    assert sampled[sampled.index("--kernel-id") + 1] == ":::.*[02468]0"


@pytest.mark.parametrize("every", [n for n in counters.EVERY if n > 1])
def test_patterns_pick_every_nth(every):
    pattern = re.compile(counters.EVERY[every])
    picked = [number for number in range(1, 1001) if pattern.fullmatch(str(number))]
    assert picked == list(range(every, 1001, every))


def hear(*lines: str) -> counters.Progress:
    said = counters.Progress()
    for line in lines:
        said.hear(line)
    return said


def test_progress_counts_kernels_not_the_programs_own_lines():
    said = hear(
        "==PROF== Connected to process 4242 (/usr/bin/python3.11)",
        '==PROF== Profiling "ampere_sgemm_128x64_tn" - 0: 0%....50%....100% - 8 passes',
        'the model prints: Profiling "x"',
        '==PROF== Profiling "vectorized_elementwise_kernel" - 1: 0%....50%....100% - 8 passes',
        '==PROF== Profiling "vectorized_elementwise_kernel" - 2 (3/4): Application replay pass 1',
        "==PROF== Disconnected from process 4242",
    )
    assert (said.profiled, said.problem, said.unknown) == (3, "", ())


def test_no_permission_says_what_an_administrator_sets():
    said = hear(
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
        "target device 0. For instructions on enabling permissions and to get more information see ...",
        "==ERROR== Failed to profile kernel",
    )
    assert said.problem == counters.NO_PERMISSION
    assert "NVreg_RestrictProfilingToAdminUsers=0" in said.problem and "\n" not in said.problem


def test_other_errors():
    assert hear("==WARNING== No kernels were profiled.").problem == "Nsight Compute saw no kernel in the measured step"
    assert hear("==ERROR== The application returned an error code (11).").problem.startswith("The application returned")
    said = hear("==ERROR== Failed to find metric regex:sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_elapsed")
    assert said.unknown == ("sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_elapsed",)


def test_time_left():
    assert counters.eta_s(0, 100, 5) is None and counters.eta_s(3, None, 5) is None
    assert counters.eta_s(25, 100, 5) == 15 and counters.eta_s(120, 100, 5) == 0
