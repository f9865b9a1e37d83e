"""The machine that a run was measured on: ``machine.json``. No host name, no user, no path: a run may be mailed."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from profilers.collectors.telemetry.cpu import cpu_name
from profilers.collectors.telemetry.devices import list_devices
from profilers.collectors.telemetry.nvml import Nvml

PACKAGES = (
    "kernelscope", "torch", "transformers", "triton", "nvidia-ml-py", "numpy", "pandas", "pyarrow",
    "onnxruntime", "onnxruntime-gpu", "onnxscript", "tensorrt", "torchao", "bitsandbytes",
)  # fmt: skip


def describe(nvml: Nvml | None = None) -> dict[str, Any]:
    """Versions, driver and devices. Asks packages for their metadata only: torch is not imported."""
    opened = Nvml() if nvml is None else nvml
    devices = [
        {
            "device": row.device,
            "name": row.name,
            "uuid": row.uuid,
            "kind": row.kind,
            "memory_total_gb": row.memory_total_gb,
            "note": row.note,
        }
        for row in list_devices(opened, processes=False)
    ]
    found = {
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()).strip(),
        "architecture": platform.machine(),
        "cpu": cpu_name(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "usable_threads": usable_threads(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 2),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "driver": opened.driver,
        "nvml": opened.reason or "ok",
        "devices": devices,
    }
    if nvml is None:
        opened.close()
    return found


def usable_threads() -> int:
    """How many processors this process may run on (affinity; Slurm and containers limit it)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return psutil.cpu_count() or 1


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
