"""Telemetry while runs go on: one thread of the supervisor samples every device in use and hands each run its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from profilers.collectors.telemetry.base import Sample
from profilers.collectors.telemetry.cpu import CpuCollector

if TYPE_CHECKING:
    from profilers.runs.jobs import Job

INTERVAL_S = 1.0
FLOOR_S = 0.5
"""Never sample faster while something is measured: every NVML call takes the driver's lock."""


class Sampler:
    """Samples once an interval while there is a run to sample for."""

    def __init__(self, jobs: Callable[[], list[Job]], interval_s: float = INTERVAL_S) -> None:
        self._jobs = jobs
        self._interval = max(FLOOR_S, interval_s)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)
        self._cpu = CpuCollector()
        self._gpu: object = None
        self._told: set[tuple[str, str, str]] = set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and let go of the devices."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * self._interval)

    def _loop(self) -> None:
        while not self._stop.wait(self._interval):
            self._turn()

    def _turn(self) -> None:
        jobs = [job for job in self._jobs() if job.process is not None and not job.ended]
        if not jobs:
            return
        began = time.perf_counter()
        pids = tuple(job.process.pid for job in jobs if job.process is not None)
        host = self._cpu.sample(pids)
        for job in jobs:
            self._hand(job, [sample for sample in host if job.spec.device == "cpu" or "/" not in sample.device])
        self.cost_s = time.perf_counter() - began

    def _hand(self, job: Job, samples: list[Sample]) -> None:
        job.run.append_samples(samples)
