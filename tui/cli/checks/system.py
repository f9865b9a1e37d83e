"""Processor, memory, and whether runs outlive the login that started them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from tui.cli.checks.check import Check

_LOGIND = (
    "/etc/systemd/logind.conf",
    "/etc/systemd/logind.conf.d",
    "/run/systemd/logind.conf.d",
    "/usr/lib/systemd/logind.conf.d",
)


def checks() -> Iterator[Check]:
    """The machine itself."""
    import psutil

    yield Check("machine", "system", f"{platform.system()} {platform.release()} {platform.machine()}")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Check("machine", "processors", f"{usable} usable of {os.cpu_count()}")
    memory = psutil.virtual_memory()
    yield Check("machine", "memory", f"{memory.available / 1e9:.1f} GB free of {memory.total / 1e9:.1f} GB")
    yield _after_logout()


def _after_logout() -> Check:
    name = "runs after logout"
    if job := os.environ.get("SLURM_JOB_ID"):
        return Check(
            "machine", name, f"end with Slurm job {job}", "note", "the scheduler ends every process of the job"
        )
    if _kills_user_processes():
        loss = "the system ends them: loginctl enable-linger, or start with systemd-run --user --scope kernelscope ..."
        return Check("machine", name, "are ended", "note", loss)
    return Check("machine", name, "go on")


def _kills_user_processes() -> bool:
    answer = False
    for place in map(Path, _LOGIND):
        files = sorted(place.glob("*.conf")) if place.is_dir() else [place]
        for file in files:
            try:
                text = file.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            for value in re.findall(r"^\s*KillUserProcesses\s*=\s*(\S+)", text, re.MULTILINE):
                answer = value.lower() in ("yes", "true", "1", "on")
    return answer
