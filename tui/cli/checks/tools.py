"""Programs beside us, and whether hardware counters may be read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tui.cli.checks.check import Check

_TOOLS = {
    "nsys": "reports of Nsight Systems can be opened only as .sqlite (nsys export --type sqlite)",
    "ncu": "no --counters; and reports of Nsight Compute can be opened only as CSV (ncu --csv --page raw)",
    "nvidia-smi": "nothing here needs it; it helps to find out why a driver does not answer",
}
_PARAMETERS = Path("/proc/driver/nvidia/params")


def checks() -> Iterator[Check]:
    """Tools on PATH, and the driver's word on counters."""
    for name, loss in _TOOLS.items():
        path = shutil.which(name)
        yield Check("tools", name, path or "not on PATH", "ok" if path else "note", "" if path else loss)
    yield _counters()


def _counters() -> Check:
    name = "hardware counters"
    try:
        text = _PARAMETERS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Check(
            "tools", name, "no NVIDIA driver", "note", "SM and DRAM use of kernels is estimated, and marked so"
        )
    if re.search(r"^RmProfilingAdminOnly:\s*1", text, re.MULTILINE) and os.geteuid() != 0:
        loss = (
            "only root may read them (NVreg_RestrictProfilingToAdminUsers=0 allows all): SM and DRAM use is estimated"
        )
        return Check("tools", name, "restricted", "note", loss)
    return Check("tools", name, "allowed")
