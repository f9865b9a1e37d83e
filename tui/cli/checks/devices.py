"""The driver, its library, and what each device says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tui.cli.checks.check import Check

if TYPE_CHECKING:
    from profilers.collectors.telemetry.nvml import Nvml


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
            yield _live_units(nvml)
        for row in list_devices(nvml):
            memory = "" if row.memory_total_gb is None else f", {row.memory_total_gb:.1f} GB"
            users = f", used by {row.users}" if row.users else ""
            state = "note" if row.note and row.kind != "cpu" else "ok"
            yield Check("devices", row.device, f"{row.name}{memory}{users}", state, row.note if state == "note" else "")
    finally:
        nvml.close()


def _live_units(nvml: Nvml) -> Check:
    """Whether SM, tensor and DRAM activity can be shown live, and from where."""
    from profilers.collectors.telemetry import dcgm, host_engine
    from profilers.collectors.telemetry.devices import visible
    from profilers.collectors.telemetry.gpm import Gpm

    gpm = Gpm(nvml, nvml.module)
    reasons = {name: gpm.unsupported(gpu) for name, gpu in visible(nvml.gpus)}
    without = {name: why for name, why in reasons.items() if why}
    if not without:
        return Check("devices", "live SM and DRAM", f"GPM on {len(reasons)} of {len(reasons)}")
    value = f"GPM on {len(reasons) - len(without)} of {len(reasons)}: {next(iter(without.values()))}"
    named = dcgm.configured()
    if named and named != dcgm.HOST_ENGINE:
        return Check("devices", "live SM and DRAM", f"{value}; dcgm-exporter at {named}")
    count, why = host_engine.probe()
    if named and count:
        return Check("devices", "live SM and DRAM", f"{value}; DCGM's host engine lists {count} GPUs")
    if named:
        return Check("devices", "live SM and DRAM", f"{value}; {why}", "note", "no live states there")
    if count:
        loss = f"no live states there; {dcgm.VARIABLE}={dcgm.HOST_ENGINE} reads them from the DCGM host engine that answers here"
    else:
        loss = f"no live states there; {dcgm.VARIABLE} can name a dcgm-exporter here, or {dcgm.HOST_ENGINE}; {why}"
    return Check("devices", "live SM and DRAM", value, "note", loss)


def _persistence(nvml: object) -> Iterator[Check]:
    off = [gpu.name for gpu in nvml.gpus if nvml.ask(gpu, "nvmlDeviceGetPersistenceMode")[0] == 0]  # type: ignore[attr-defined]
    if off:
        loss = "the first run after a pause waits seconds for the driver (nvidia-smi -pm 1, as root)"
        yield Check("devices", "persistence mode", f"off on {len(off)}", "note", loss)
