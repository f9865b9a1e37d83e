"""The driver, its library, and what each device says."""

from __future__ import annotations

from collections.abc import Iterator

from tui.cli.checks.check import Check


def checks() -> Iterator[Check]:
    """NVML's own state first: each way in which it can be missing means something else."""
    from profilers.collectors.telemetry.devices import list_devices
    from profilers.collectors.telemetry.nvml import Nvml

    nvml = Nvml()
    try:
        if nvml.reason:
            yield Check("devices", "NVML", nvml.reason, "note", "runs use the CPU; recordings open as everywhere")
        else:
            yield Check("devices", "NVML", f"driver {nvml.driver}")
            yield from _persistence(nvml)
        for row in list_devices(nvml):
            memory = "" if row.memory_total_gb is None else f", {row.memory_total_gb:.1f} GB"
            users = f", used by {row.users}" if row.users else ""
            state = "note" if row.note and row.kind != "cpu" else "ok"
            yield Check("devices", row.device, f"{row.name}{memory}{users}", state, row.note if state == "note" else "")
    finally:
        nvml.close()


def _persistence(nvml: object) -> Iterator[Check]:
    off = [gpu.name for gpu in nvml.gpus if nvml.ask(gpu, "nvmlDeviceGetPersistenceMode")[0] == 0]  # type: ignore[attr-defined]
    if off:
        loss = "the first run after a pause waits seconds for the driver (nvidia-smi -pm 1, as root)"
        yield Check("devices", "persistence mode", f"off on {len(off)}", "note", loss)
