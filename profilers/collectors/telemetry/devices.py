"""Which devices there are, who uses them, and what each is called here; without torch.

A GPU's number is the one that CUDA gives it in this process: ``CUDA_VISIBLE_DEVICES`` is respected, and numbers in it
are taken in the order of the PCI bus (workers run with ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` and see one device, by UUID).
Without it, the limits of a Slurm job and of a container are respected where the driver shows more than they allow.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from profilers.collectors.telemetry.cpu import cpu_name
from profilers.collectors.telemetry.nvml import Gpu, Nvml
from profilers.collectors.telemetry.other_gpus import AMD_NOTE, amd_gpus

BUSY_PCT = 10.0
"""Utilization above which a GPU counts as used by somebody."""


@dataclass(frozen=True)
class DeviceRow:
    """One device. Decimal GB and percent; None where the device does not tell (``note`` says why).

    ``users``: who computes on it now, '' when nobody. ``kind``: cuda | mig | cpu, or amd: there, but no
    run can be started on it.
    """

    device: str
    name: str
    uuid: str
    kind: str
    memory_total_gb: float | None
    memory_used_gb: float | None
    utilization_pct: float | None
    users: str = ""
    note: str = ""
    lost: bool = False
    """It is there and does not answer: nothing can be started on it. ``note`` says why."""

    @property
    def busy(self) -> bool:
        """Whether somebody is at work on it: seen by name, or, where processes of others are hidden (in a container,
        say), by a GPU's utilization. A CPU is always shared."""
        return bool(self.users) or (self.kind != "cpu" and (self.utilization_pct or 0.0) > BUSY_PCT)

    @property
    def usage(self) -> str:
        """Who uses it, or how busy it is; '' where nobody does."""
        if self.users:
            return f"in use by {self.users}"
        return f"{self.utilization_pct:.0f} % busy" if self.busy else ""

    @property
    def free_gb(self) -> float:
        """Memory that is not taken; 0 where the device does not tell."""
        return (self.memory_total_gb or 0.0) - (self.memory_used_gb or 0.0)


def best_first(rows: Sequence[DeviceRow]) -> list[DeviceRow]:
    """The GPUs on which a run can be started: those that nobody uses first, then by free memory. Lost ones are left out."""
    usable = [row for row in rows if row.kind in ("cuda", "mig") and not row.lost]
    return sorted(usable, key=lambda row: (row.busy, -row.free_gb))


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str] | None = None) -> list[tuple[str, Gpu]]:
    """The GPUs that CUDA would show this process, as (``cuda:N``, GPU) in its order.

    CUDA's own rules: the list ends at the first entry that names nothing; UUIDs may be cut short; a GPU that is split
    by MIG is reached through its instances only.
    """
    environment = os.environ if environment is None else environment
    gpus = [gpu for gpu in gpus if not gpu.denied]
    whole = [gpu for gpu in gpus if gpu.kind == "gpu"]
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        gpus = _allowed(gpus, whole, environment)
        split = {gpu.index for gpu in gpus if gpu.kind == "mig"}
        chosen = [gpu for gpu in gpus if gpu.kind == "mig" or gpu.index not in split]
    else:
        chosen = []
        for entry in (part.strip() for part in given.split(",")):
            found = _named(entry, gpus, whole)
            if found is None or found in chosen:
                break
            chosen.append(found)
    return [(f"cuda:{number}", gpu) for number, gpu in enumerate(chosen)]


def _allowed(gpus: list[Gpu], whole: list[Gpu], environment: Mapping[str, str]) -> list[Gpu]:
    """The GPUs that a Slurm job or a container was given, where the driver shows this process more than those.

    Inside a container numbers are counted anew, so only UUIDs say which; Slurm's numbers hold only while all are seen.
    """
    uuids = [part.strip() for part in environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",")]
    uuids = [part.lower() for part in uuids if part.upper().startswith(("GPU-", "MIG-"))]
    given = [gpu for gpu in gpus if any(gpu.uuid.lower().startswith(part) for part in uuids)]
    if given:
        return given
    job = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    numbers = [int(part) for part in job.split(",") if part.strip().isdecimal()]
    if numbers and len(numbers) < len(whole) and max(numbers) < len(whole):
        return [gpu for gpu in gpus if gpu.index in numbers]
    return gpus


def _named(entry: str, gpus: Sequence[Gpu], whole: Sequence[Gpu]) -> Gpu | None:
    if entry.isdecimal():
        return whole[int(entry)] if int(entry) < len(whole) else None
    matches = [gpu for gpu in gpus if entry and gpu.uuid.lower().startswith(entry.lower())]
    return matches[0] if len(matches) == 1 else None


def list_devices(nvml: Nvml | None = None, *, processes: bool = True) -> list[DeviceRow]:
    """Every device here, GPUs first; the CPU is always there, and GPUs that no run can use come last.

    ``processes``: also ask who uses each GPU, which takes milliseconds a device.
    """
    opened = Nvml() if nvml is None else nvml
    rows = [_gpu_row(opened, name, gpu, processes) for name, gpu in visible(opened.gpus)]
    if nvml is None:
        opened.close()
    amd = [
        DeviceRow(f"amd:{number}", name, "", "amd", None, None, None, note=AMD_NOTE)
        for number, name in enumerate(amd_gpus())
    ]
    return [*rows, cpu_row(opened.reason if not rows else ""), *amd]


def _gpu_row(nvml: Nvml, device: str, gpu: Gpu, processes: bool) -> DeviceRow:
    notes = []
    memory, why = nvml.ask(gpu, "nvmlDeviceGetMemoryInfo")
    if memory is None:
        notes.append(f"memory: {why}")
    rates, why = nvml.ask(gpu, "nvmlDeviceGetUtilizationRates")
    if rates is None:
        notes.append(f"utilization: {why}")
    users = ""
    if processes:
        found, why = nvml.processes(gpu)
        users = _who(found)
        if why:
            notes.append(f"users: {why}")
    if gpu.lost:
        notes = [gpu.lost]
    return DeviceRow(
        device=device,
        name=gpu.name,
        uuid=gpu.uuid,
        kind="mig" if gpu.kind == "mig" else "cuda",
        memory_total_gb=None if memory is None else round(memory.total / 1e9, 2),
        memory_used_gb=None if memory is None else round(memory.used / 1e9, 2),
        utilization_pct=None if rates is None else float(rates.gpu),
        users=users,
        note="; ".join(notes),
        lost=bool(gpu.lost),
    )


def _who(processes: Sequence[object]) -> str:
    by_user: dict[str, int] = {}
    for process in processes:
        user = getattr(process, "user", "") or "somebody outside this container"
        by_user[user] = by_user.get(user, 0) + 1
    return ", ".join(user if count == 1 else f"{user} ({count} processes)" for user, count in sorted(by_user.items()))


def cpu_row(note: str = "") -> DeviceRow:
    """This machine's processors. ``note``: why there is no GPU beside them."""
    memory = psutil.virtual_memory()
    loads = os.getloadavg()[0] / (psutil.cpu_count() or 1) * 100
    return DeviceRow(
        device="cpu",
        name=cpu_name(),
        uuid="",
        kind="cpu",
        memory_total_gb=round(memory.total / 1e9, 2),
        memory_used_gb=round((memory.total - memory.available) / 1e9, 2),
        utilization_pct=round(min(100.0, loads), 1),
        note=note,
    )
