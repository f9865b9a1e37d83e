"""Samples of NVIDIA GPUs: what every driver tells (NVML), and what Hopper and newer tell of their units (GPM).

Cheap calls go every tick. The process list (milliseconds, and the driver's lock) goes at most twice a minute; link
throughput without GPM (a counter that the driver reads over 20 ms) goes in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from profilers.collectors.telemetry import gpm
from profilers.collectors.telemetry.base import Sample, now_ns
from profilers.collectors.telemetry.nvml import Gpu, Nvml

SOURCE = "nvml"
PROCESSES_S = 30.0
LINKS_S = 5.0

BRIEF = frozenset({"util_pct", "memory_used_gb", "memory_total_gb", "power_w", "sm_pct", "dram_pct", "tensor_pct"})
"""What is sampled of a GPU beside the one that is measured."""

_NVLINK_TX, _NVLINK_RX, _ALL_LINKS = 138, 139, 0xFFFFFFFF


class NvmlCollector:
    """Samples of chosen GPUs: ``devices`` are (name to sample under, GPU). ``brief``: only :data:`BRIEF`."""

    def __init__(self, nvml: Nvml, devices: Sequence[tuple[str, Gpu]], *, brief: bool = False) -> None:
        self._nvml = nvml
        self.devices = list(devices)
        self._brief = brief
        self._gpm = gpm.Gpm(nvml, nvml.module)
        self._processes_at: dict[str, float] = {}
        self._links: LinkLane | None = None

    def sample(self) -> list[Sample]:
        """The values of now."""
        if self._nvml.revive():
            again = {gpu.uuid: gpu for gpu in self._nvml.gpus}
            self.devices = [(name, again.get(gpu.uuid, gpu)) for name, gpu in self.devices]
            self._gpm.close()
        found: list[Sample] = []
        for name, gpu in self.devices:
            found += self._brief_one(name, gpu) if self._brief else self._one(name, gpu)
        return found + (self._links.take() if self._links is not None else [])

    def close(self) -> None:
        """Let go of samples and thread. The library is closed by who opened it."""
        if self._links is not None:
            self._links.close()
        self._gpm.close()

    def _brief_one(self, name: str, gpu: Gpu) -> list[Sample]:
        return [*self._load(name, gpu), *(s for s in self._units(name, gpu) if s.metric in BRIEF)]

    def _one(self, name: str, gpu: Gpu) -> list[Sample]:
        found, ask = self._load(name, gpu), self._nvml.ask
        found.append(_made(name, "energy_j", "J", *ask(gpu, "nvmlDeviceGetTotalEnergyConsumption"), 1e-3))
        found.append(_made(name, "clock_mhz", "MHz", *ask(gpu, "nvmlDeviceGetClockInfo", 1)))
        found.append(_made(name, "memory_clock_mhz", "MHz", *ask(gpu, "nvmlDeviceGetClockInfo", 2)))
        found.append(_made(name, "temperature_c", "C", *ask(gpu, "nvmlDeviceGetTemperature", 0)))
        value, why = ask(gpu, "nvmlDeviceGetCurrentClocksEventReasons")
        if value is None:
            value, why = ask(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons")
        found.append(_made(name, "clock_reasons", "bits", value, why))
        units = self._units(name, gpu)
        without_links = any(s.metric in gpm.LINKS and s.value is None for s in units)
        if without_links and gpu.refused.get("gpm"):
            # The lane's own samples say what there is to say of links.
            units = [s for s in units if s.metric not in gpm.LINKS]
            self._lane().watch(name, gpu)
        found += units
        if time.monotonic() - self._processes_at.get(name, -PROCESSES_S) >= PROCESSES_S:
            self._processes_at[name] = time.monotonic()
            who, why = self._nvml.processes(gpu)
            found.append(_made(name, "processes", "", None if why else len(who), why))
        return found

    def _load(self, name: str, gpu: Gpu) -> list[Sample]:
        # The utilization is "% of time any kernel was resident": not a measure of how well the device is used.
        rates, why = self._nvml.ask(gpu, "nvmlDeviceGetUtilizationRates")
        memory, no_memory = self._nvml.ask(gpu, "nvmlDeviceGetMemoryInfo")
        return [
            _made(name, "util_pct", "%", rates and rates.gpu, why),
            _made(name, "memory_used_gb", "GB", memory and memory.used, no_memory, 1e-9),
            _made(name, "memory_total_gb", "GB", memory and memory.total, no_memory, 1e-9),
            _made(name, "power_w", "W", *self._nvml.ask(gpu, "nvmlDeviceGetPowerUsage"), 1e-3),
        ]

    def _units(self, name: str, gpu: Gpu) -> list[Sample]:
        t = now_ns()
        return [
            Sample(t, name, metric, value, unit, gpm.SOURCE, why) for metric, value, unit, why in self._gpm.read(gpu)
        ]

    def _lane(self) -> LinkLane:
        if self._links is None:
            self._links = LinkLane(self._nvml)
        return self._links


class LinkLane:
    """PCIe and NVLink throughput of GPUs without GPM, asked every few seconds in a thread of its own."""

    def __init__(self, nvml: Nvml, interval_s: float = LINKS_S) -> None:
        self._nvml = nvml
        self._interval = interval_s
        self._devices: dict[str, Gpu] = {}
        self._ready: list[Sample] = []
        self._before: dict[tuple[str, int], tuple[float, float]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="links", daemon=True)

    def watch(self, name: str, gpu: Gpu) -> None:
        """Ask this GPU from now on."""
        with self._lock:
            self._devices[name] = gpu
        if self._thread.ident is None:
            self._thread.start()

    def take(self) -> list[Sample]:
        """What was sampled since the last call."""
        with self._lock:
            found, self._ready = self._ready, []
        return found

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _loop(self) -> None:
        while not self._stop.is_set():
            began = time.perf_counter()
            with self._lock:
                devices = list(self._devices.items())
            for name, gpu in devices:
                found = self._ask(name, gpu)
                spent = round((time.perf_counter() - began) * 1e3, 3)
                found.append(Sample(now_ns(), name, "links_sampling_ms", spent, "ms", "self"))
                with self._lock:
                    self._ready += found
            self._stop.wait(self._interval)

    def _ask(self, name: str, gpu: Gpu) -> list[Sample]:
        found = []
        for counter, metric in ((0, "pcie_tx_mb_s"), (1, "pcie_rx_mb_s")):
            found.append(
                _made(name, metric, "MB/s", *self._nvml.ask(gpu, "nvmlDeviceGetPcieThroughput", counter), 1e-3)
            )
        wanted = [(_NVLINK_TX, _ALL_LINKS), (_NVLINK_RX, _ALL_LINKS)]
        fields, why = self._nvml.ask(gpu, "nvmlDeviceGetFieldValues", wanted)
        for place, metric in enumerate(("nvlink_tx_mib_s", "nvlink_rx_mib_s")):
            if fields is None:
                found.append(_made(name, metric, "MiB/s", None, why))
            elif fields[place].nvmlReturn:
                found.append(_made(name, metric, "MiB/s", None, "no NVLink, or not told by this device"))
            else:
                found += self._rate(name, metric, place, float(fields[place].value.ullVal))
        return found

    def _rate(self, name: str, metric: str, place: int, kib: float) -> list[Sample]:
        """MiB/s from two readings of a counter of KiB; a counter that went back was set to zero and begins anew."""
        now = time.monotonic()
        before, then = self._before.get((name, place), (kib, now))
        self._before[name, place] = (kib, now)
        if now <= then or kib < before:
            return []
        return [_made(name, metric, "MiB/s", (kib - before) / 1024 / (now - then), "")]


def _made(device: str, metric: str, unit: str, value: Any, why: str, scale: float = 1.0) -> Sample:
    number = None if value is None else round(float(value) * scale, 4)
    return Sample(now_ns(), device, metric, number, unit, SOURCE, why)
