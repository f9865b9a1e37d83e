"""Telemetry while runs go on: one thread of the supervisor samples every device in use and hands each run its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from profilers.collectors.telemetry.base import Sample
from profilers.collectors.telemetry.cpu import CpuCollector
from profilers.collectors.telemetry.nvml import Nvml, NvmlCollector

if TYPE_CHECKING:
    from profilers.runs.jobs import Job

INTERVAL_S = 1.0
FLOOR_S = 0.5
"""Never sample faster while something is measured: every NVML call takes the driver's lock."""


class Sampler:
    """Samples once an interval while there is a run to sample for. The driver is opened when a run needs it."""

    def __init__(self, jobs: Callable[[], list[Job]], interval_s: float = INTERVAL_S) -> None:
        self._jobs = jobs
        self._interval = max(FLOOR_S, interval_s)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)
        self._cpu = CpuCollector()
        self._nvml: Nvml | None = None
        self._gpus: dict[str, NvmlCollector] = {}
        self._told: set[tuple[str, str, str, str]] = set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and let go of the devices."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * self._interval)
        if self._nvml is not None:
            self._nvml.close()

    def _loop(self) -> None:
        while not self._stop.wait(self._interval):
            self.turn()

    def turn(self) -> None:
        """Sample once for every run that goes on."""
        jobs = [job for job in self._jobs() if job.process is not None and not job.ended]
        if not jobs:
            return
        host = self._cpu.sample(tuple(job.process.pid for job in jobs if job.process is not None))
        for job in jobs:
            on_cpu = job.spec.device == "cpu"
            samples = [sample for sample in host if on_cpu or "/" not in sample.device]
            pid = job.process.pid if job.process is not None else 0
            samples = [sample for sample in samples if sample.pid in (0, pid)]
            if job.spec.device.startswith("cuda"):
                samples += self._of_gpu(job.spec.device, job.spec.device_uuid)
            self._hand(job, samples)

    def _of_gpu(self, device: str, uuid: str) -> list[Sample]:
        if self._nvml is None:
            self._nvml = Nvml()
        key = uuid or device
        if key not in self._gpus:
            gpus = [gpu for gpu in self._nvml.gpus if gpu.uuid == uuid] if uuid else []
            self._gpus[key] = NvmlCollector(self._nvml, [(device, gpu) for gpu in gpus])
        return self._gpus[key].sample()

    def _hand(self, job: Job, samples: list[Sample]) -> None:
        """Write a run's samples; what is not available is said once, as an event with its reason."""
        try:
            job.run.append_samples(samples)
        except OSError:
            # A full disk ends the run by itself, with its cause; missing samples add nothing to that.
            return
        for sample in samples:
            key = (job.run.id, sample.device, sample.metric, sample.reason)
            if sample.value is None and key not in self._told:
                self._told.add(key)
                job.event("unavailable", device=sample.device, metric=sample.metric, reason=sample.reason)
