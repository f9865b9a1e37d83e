"""Does a workload fit its device? Asked in the worker right before anything is allocated. Imports torch."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from apps import fit
from apps.catalogue import Entry
from apps.workload import Request

_CGROUP = Path("/sys/fs/cgroup")


def refuse_what_does_not_fit(entry: Entry, request: Request, device: torch.device) -> str:
    """Raise :class:`apps.fit.DoesNotFit`, which names a batch that fits, when the device has too little free memory.

    Returns a line for people where the memory could not be estimated, else ''. Tiny sizes are not asked about.
    """
    if request.size == "tiny" or device.type == "meta":
        return ""
    try:
        fit.check(entry, request, free_bytes(device))
    except fit.DoesNotFit:
        raise
    except Exception as error:
        # An estimate that fails says nothing about the run itself.
        return f"whether it fits could not be estimated ({type(error).__name__})"
    return ""


def free_bytes(device: torch.device) -> int:
    """Bytes that can be had now: of the GPU, or of the host's memory and this process's share of it."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    limit = _cgroup_left()
    return free if limit is None else min(free, limit)


def _cgroup_left() -> int | None:
    """What the container's limit leaves; None where there is no limit."""
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        cached = 0
        for line in (_CGROUP / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "inactive_file":
                cached = int(value)
        return None if most == "max" else max(0, int(most) - used + cached)
    except (OSError, ValueError):
        return None
