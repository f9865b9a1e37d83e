"""The host's processors and memory, from the operating system (psutil). Only memory bandwidth takes privileges."""

from __future__ import annotations

import functools
import platform
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

from profilers.collectors.telemetry.base import Sample, now_ns
from profilers.collectors.telemetry.uncore import Uncore

SOURCE = "psutil"

MOST_CORES = 64
"""Loads of single cores are sampled up to this many; a machine with more gets the total and the number of busy ones."""

BUSY_PCT = 50.0

_Add = Callable[..., None]


@functools.cache
def cpu_name() -> str:
    """The processor's model as the system names it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine() or "cpu"
    for key in ("model name", "Model", "cpu model", "Hardware"):
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key and value.strip():
                return " ".join(value.split())
    return f"{platform.machine()} processor"


class CpuCollector:
    """Loads, frequency and memory of the host, and what each named process of a run takes.

    ``cores``: sample every core, for runs on the CPU itself. Loads are averages since the previous sample (at
    first, since this was made; in another thread there is none at first).
    """

    def __init__(self, cores: bool = True) -> None:
        self._cores = cores and (psutil.cpu_count() or 1) <= MOST_CORES
        psutil.cpu_percent(percpu=True)
        self._thread = threading.get_ident()
        self._processes: dict[int, psutil.Process] = {}
        self._uncore = Uncore()

    def sample(self, pids: tuple[int, ...] = ()) -> list[Sample]:
        """The values of now; ``pids`` are processes whose memory and load are wanted (gone ones say so)."""
        t = now_ns()
        loads = psutil.cpu_percent(percpu=True)
        found: list[Sample] = []

        def add(device: str, metric: str, value: float | None, unit: str, reason: str = "", pid: int = 0) -> None:
            found.append(Sample(t, device, metric, value, unit, SOURCE, reason, pid))

        # psutil counts since the last call of the same thread: the first in another one says 0.
        if self._thread == threading.get_ident():
            add("cpu", "util_pct", round(sum(loads) / len(loads), 2), "%")
            add("cpu", "busy_cores", float(sum(load > BUSY_PCT for load in loads)), "")
            for core, load in enumerate(loads if self._cores else ()):
                add(f"cpu/{core}", "util_pct", round(load, 1), "%")
        self._thread = threading.get_ident()
        memory = psutil.virtual_memory()
        add("cpu", "memory_used_gb", round((memory.total - memory.available) / 1e9, 3), "GB")
        add("cpu", "memory_total_gb", round(memory.total / 1e9, 3), "GB")
        self._frequency(add)
        for metric, value, why in self._uncore.read():
            number = None if value is None else round(value, 3)
            found.append(Sample(t, "cpu", metric, number, "GB/s", "perf", why))
        for pid in pids:
            self._process(pid, add)
        self._processes = {pid: process for pid, process in self._processes.items() if pid in pids}
        return found

    def close(self) -> None:
        """Close the memory controllers' counters."""
        self._uncore.close()

    def _frequency(self, add: _Add) -> None:
        try:
            frequency = psutil.cpu_freq()
        except (OSError, RuntimeError, NotImplementedError):
            frequency = None
        if frequency is None or not frequency.current:
            add("cpu", "clock_mhz", None, "MHz", "the system does not tell")
        else:
            add("cpu", "clock_mhz", round(frequency.current, 1), "MHz")

    def _process(self, pid: int, add: _Add) -> None:
        try:
            process = self._processes.get(pid)
            if process is None:
                process = self._processes[pid] = psutil.Process(pid)
                process.cpu_percent()
                load: float | None = None
            else:
                load = process.cpu_percent()
            resident = process.memory_info().rss
            if not resident:  # a zombie: it has ended, and its parent has not looked yet
                raise psutil.NoSuchProcess(pid)
            add("cpu", "worker_rss_gb", round(resident / 1e9, 3), "GB", pid=pid)
            if load is not None:
                add("cpu", "worker_cpu_pct", round(load, 1), "% of a core", pid=pid)
        except psutil.Error:
            add("cpu", "worker_rss_gb", None, "GB", "the process is gone", pid)
