"""NVIDIA's management library: opened once a process, each device kept apart from the others' faults.

Everything is asked through :meth:`Nvml.ask`, which gives a value or the reason why there is none, so that one call a
driver lacks, or one GPU that fell off the bus, costs nothing but its own numbers. No ``nvidia-smi``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOST = "the GPU is lost: it no longer answers on its bus (a reset or a reboot is needed)"

_REASONS = {
    "NVMLError_NotSupported": "not supported by this device",
    "NVMLError_FunctionNotFound": "not in this driver",
    "NVMLError_NoPermission": "not permitted for this user",
    "NVMLError_GpuIsLost": LOST,
    "NVMLError_GpuNotFound": LOST,
    "NVMLError_ResetRequired": "the GPU needs a reset",
    "NVMLError_NotFound": "no value yet",
    "NVMLError_NoData": "no value yet",
    "NVMLError_Timeout": "the driver did not answer in time",
    "NVMLError_InvalidArgument": "not offered for this kind of device",
    "NVMLError_ArgumentVersionMismatch": "not in this driver",
}
_FINAL = frozenset({"NVMLError_NotSupported", "NVMLError_FunctionNotFound", "NVMLError_ArgumentVersionMismatch"})
_GONE = frozenset({"NVMLError_GpuIsLost", "NVMLError_GpuNotFound"})
_REOPEN = frozenset({"NVMLError_Unknown", "NVMLError_Uninitialized"})
_RETRY_S = 15.0

_OPENING = {
    "NVMLError_LibraryNotFound": "no NVIDIA driver on this machine (libnvidia-ml.so.1 was not found)",
    "NVMLError_DriverNotLoaded": "the NVIDIA driver is installed but not loaded (see: lsmod | grep nvidia)",
    "NVMLError_NoPermission": "this user may not talk to the NVIDIA driver (/dev/nvidia* are not accessible)",
    "NVMLError_LibRmVersionMismatch": (
        "the NVIDIA driver and its library have different versions (after an update): reload the module or reboot"
    ),
}

_MODULE = Path("/proc/driver/nvidia/version")
_MAPS = Path("/proc/self/maps")

_CLOCK_REASONS = (
    (0x1, "idle"),
    (0x2, "application clocks"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal (software)"),
    (0x40, "thermal (hardware)"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
)


def _versions(module: Path = _MODULE, maps: Path = _MAPS) -> str:
    """The kernel module's version and that of the library loaded here, as far as the system tells them."""
    found = []
    for name, path, pattern in (
        ("module", module, r"Kernel Module(?: for \S+)?\s+(\d[\d.]+)"),
        ("library", maps, r"libnvidia-ml\.so\.(\d+\.[\d.]+)"),
    ):
        try:
            match = re.search(pattern, path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            match = None
        if match:
            found.append(f"{name} {match.group(1)}")
    return f" ({', '.join(found)})" if found else ""


def clock_reasons(mask: int) -> list[str]:
    """Why clocks are held back, from the driver's bit mask; ``idle`` and unknown bits included."""
    known = [name for bit, name in _CLOCK_REASONS if mask & bit]
    rest = mask & ~sum(bit for bit, _ in _CLOCK_REASONS)
    return [*known, f"reason {rest:#x}"] if rest else known


@dataclass
class Gpu:
    """One device as NVML sees it. ``mig``: unsupported | disabled | enabled; instances are devices of their own.

    ``denied``: this process may not use it (a job's or a container's limits). ``parent``: an instance's GPU's handle.
    """

    handle: Any
    index: int
    name: str
    uuid: str
    kind: str = "gpu"  # gpu | mig
    mig: str = "unsupported"
    lost: str = ""
    denied: bool = False
    parent: Any = None
    retry_at: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU. ``visible``: its id means something here (a host's does not in a container)."""

    pid: int
    memory_gb: float | None
    user: str
    visible: bool


class Nvml:
    """The library, opened. ``reason`` says why it is not ('' when it is). ``module`` stands in for pynvml in tests."""

    def __init__(self, module: Any = None) -> None:
        self.reason = ""
        self.driver = ""
        self.gpus: list[Gpu] = []
        self._module = module
        self._retry_at = 0.0
        self._open()

    def _open(self) -> None:
        if self._module is None:
            import pynvml

            self._module = pynvml
        try:
            self._module.nvmlInit()
        except self._module.NVMLError as error:
            self.reason = _OPENING.get(type(error).__name__, f"the NVIDIA driver does not answer: {error}")
            if type(error).__name__ == "NVMLError_LibRmVersionMismatch":
                self.reason += _versions()
            self._retry_at = time.monotonic() + _RETRY_S
            return
        self.reason = ""
        self.driver = self._plain(self._module.nvmlSystemGetDriverVersion)
        self.gpus = self._find()
        if not self.gpus:
            self.reason = "the NVIDIA driver is there, but it shows no device to this process"

    def close(self) -> None:
        """Close the library."""
        if not self.reason:
            try:
                self._module.nvmlShutdown()
            except self._module.NVMLError:
                pass

    def revive(self) -> bool:
        """Open again after the driver stopped answering (containers lose their devices after days), now and then.

        True when it answers again: :attr:`gpus` are then others, by the same UUIDs; handles of before mean nothing.
        """
        if not self.reason or not self._retry_at or time.monotonic() < self._retry_at:
            return False
        self._open()
        return not self.reason

    def _plain(self, call: Callable[..., Any], *arguments: Any) -> str:
        try:
            value = call(*arguments)
        except self._module.NVMLError:
            return ""
        return value.decode() if isinstance(value, bytes) else str(value)

    def _find(self) -> list[Gpu]:
        module, found = self._module, []
        try:
            count = module.nvmlDeviceGetCount()
        except module.NVMLError as error:
            self.reason = f"the NVIDIA driver does not list its devices: {error}"
            return []
        for index in range(count):
            try:
                handle = module.nvmlDeviceGetHandleByIndex(index)
            except module.NVMLError as error:
                # A lost GPU keeps its place: the numbers of the others must not move.
                kind = type(error).__name__
                why = _REASONS.get(kind, str(error))
                denied = kind == "NVMLError_NoPermission"
                found.append(Gpu(None, index, f"GPU {index}", "", lost=why, denied=denied))
                continue
            name = self._plain(module.nvmlDeviceGetName, handle) or f"GPU {index}"
            gpu = Gpu(handle, index, name, self._plain(module.nvmlDeviceGetUUID, handle))
            gpu.mig = self._mig_state(handle)
            found.append(gpu)
            if gpu.mig == "enabled":
                found += self._instances(gpu)
        return found

    def _mig_state(self, handle: Any) -> str:
        try:
            current, _pending = self._module.nvmlDeviceGetMigMode(handle)
        except self._module.NVMLError:
            return "unsupported"
        return "enabled" if current else "disabled"

    def _instances(self, parent: Gpu) -> list[Gpu]:
        module, found = self._module, []
        try:
            most = module.nvmlDeviceGetMaxMigDeviceCount(parent.handle)
        except module.NVMLError:
            return []
        for index in range(most):
            try:
                handle = module.nvmlDeviceGetMigDeviceHandleByIndex(parent.handle, index)
            except module.NVMLError:
                continue
            name = self._plain(module.nvmlDeviceGetName, handle) or f"{parent.name} MIG {index}"
            uuid = self._plain(module.nvmlDeviceGetUUID, handle)
            found.append(Gpu(handle, parent.index, name, uuid, kind="mig", mig="enabled", parent=parent.handle))
        return found

    def ask(self, gpu: Gpu, function: str, *arguments: Any, handle: Any = None) -> tuple[Any, str]:
        """``(value, '')`` or ``(None, reason)``. A function that a device or driver lacks is not asked for again.

        ``handle`` goes in place of the device's own (some calls on an instance want its GPU's).
        """
        if self.reason:
            return None, self.reason
        if (gpu.lost and time.monotonic() < gpu.retry_at) or gpu.handle is None:
            return None, gpu.lost
        if function in gpu.refused:
            return None, gpu.refused[function]
        call = getattr(self._module, function, None)
        if call is None:
            gpu.refused[function] = "not in this nvidia-ml-py"
            return None, gpu.refused[function]
        try:
            value = call(gpu.handle if handle is None else handle, *arguments)
        except self._module.NVMLError as error:
            kind = type(error).__name__
            why = _REASONS.get(kind, str(error) or kind)
            if kind in _FINAL:
                gpu.refused[function] = why
            elif kind in _GONE:
                gpu.lost, gpu.retry_at = why, time.monotonic() + _RETRY_S
            elif kind in _REOPEN:
                self.reason = f"the NVIDIA driver stopped answering ({error}); trying again every {_RETRY_S:.0f} s"
                self._retry_at = time.monotonic() + _RETRY_S
            return None, why
        gpu.lost = ""
        return value, ""

    @property
    def module(self) -> Any:
        """pynvml, or what stands in for it."""
        return self._module

    def processes(self, gpu: Gpu) -> tuple[list[GpuProcess], str]:
        """Who computes on a device. A slow call. Ids that make no sense are left out (structs differ by driver)."""
        value, why = self.ask(gpu, "nvmlDeviceGetComputeRunningProcesses")
        if value is None:
            return [], why
        return [_process(entry) for entry in value if 0 < entry.pid <= 2**22], ""


def _process(entry: Any) -> GpuProcess:
    import psutil

    used = getattr(entry, "usedGpuMemory", None)
    memory = used / 1e9 if used is not None and used < 2**50 else None
    try:
        return GpuProcess(entry.pid, memory, psutil.Process(entry.pid).username(), True)
    except (psutil.Error, KeyError):
        return GpuProcess(entry.pid, memory, "", False)
