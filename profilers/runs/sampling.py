"""Telemetry while runs go on: one thread of the supervisor samples every device in use and hands each run its own.

A run also gets a few values of the GPUs beside its own, every few seconds: what they do is part of what it measured.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.collectors.telemetry import dcgm
from profilers.collectors.telemetry.base import Sample, now_ns
from profilers.collectors.telemetry.cpu import CpuCollector
from profilers.collectors.telemetry.devices import visible
from profilers.collectors.telemetry.gpm import BEFORE_HOPPER
from profilers.collectors.telemetry.nvidia import BRIEF, NvmlCollector
from profilers.collectors.telemetry.nvml import Gpu, Nvml
from profilers.runs.folder import RunFolder, RunsError
from profilers.runs.leases import holders

if TYPE_CHECKING:
    from profilers.runs.jobs import Job

INTERVAL_S = 1.0
FLOOR_S = 0.5
"""Never sample faster while something is measured: every NVML call takes the driver's lock."""

BESIDE_S = 5.0
"""GPUs that no run of ours is on are sampled this often."""

_HOLDER = re.compile(r"run ([A-Za-z0-9][A-Za-z0-9._-]*) of ")
"""What a run writes into the lease of its device."""


class Sampler:
    """Samples once an interval while there is a run to sample for. The driver is opened when a run needs it."""

    def __init__(self, jobs: Callable[[], list[Job]], interval_s: float = INTERVAL_S) -> None:
        self._jobs = jobs
        self._interval = max(FLOOR_S, interval_s)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)
        self._cpu = CpuCollector()
        self._nvml: Nvml | None = None
        self._own: dict[str, NvmlCollector] = {}
        self._dcgm = dcgm.Dcgm()
        self._beside: NvmlCollector | None = None
        self._beside_of: frozenset[str] = frozenset()
        self._beside_at = -BESIDE_S
        self._told: set[tuple[str, str, str, str]] = set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and let go of the devices."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * self._interval)
        for collector in (*self._own.values(), *([self._beside] if self._beside else [])):
            collector.close()
        self._dcgm.close()
        self._cpu.close()
        if self._nvml is not None:
            self._nvml.close()

    def _loop(self) -> None:
        while not self._stop.wait(self._interval):
            self.turn()

    def turn(self) -> None:
        """Sample once for every run that goes on. What that took is a sample too: ``sampling_ms``, source ``self``."""
        jobs = [job for job in self._jobs() if job.process is not None and not job.ended]
        if not jobs:
            self._let_go(frozenset())
            self._dcgm.turn_over()
            return
        going = {job.run.id for job in jobs}
        self._told = {key for key in self._told if key[0] in going}
        began = time.perf_counter()
        host = self._cpu.sample(tuple(job.process.pid for job in jobs if job.process is not None))
        on_gpu = [job for job in jobs if job.spec.device.startswith("cuda")]
        self._let_go(frozenset(key for job in on_gpu for key, _, _ in _gpus(job)))
        # DCGM's profiling fields and the collecting of counters take the same lock, for the whole machine.
        counted = bool(self._dcgm.named and on_gpu) and counting(jobs)
        by_job = {id(job): self._of_gpu(job, counted) for job in on_gpu}
        self._dcgm.turn_over()
        beside = self._of_others(on_gpu) if on_gpu else None
        spent = round((time.perf_counter() - began) * 1e3, 3)
        for job in jobs:
            on_cpu = job.spec.device == "cpu"
            pid = job.process.pid if job.process is not None else 0
            samples = [sample for sample in host if on_cpu or "/" not in sample.device]
            samples = [sample for sample in samples if sample.pid in (0, pid)]
            samples += by_job.get(id(job), [])
            if beside is not None and id(job) in by_job:
                samples += beside
                for other in on_gpu:
                    if other is not job:
                        samples += [sample for sample in by_job[id(other)] if sample.metric in BRIEF]
            samples.append(Sample(now_ns(), job.spec.device, "sampling_ms", spent, "ms", "self"))
            self._hand(job, samples)

    def _of_gpu(self, job: Job, counted: bool) -> list[Sample]:
        """All values of a run's own GPUs: one, or one a rank."""
        found = [sample for gpu in _gpus(job) for sample in self._of_one(*gpu, counted)]
        mine = [gpu for key, _, _ in _gpus(job) for _, gpu in self._own[key].devices]
        job.lost = next((gpu.lost for gpu in mine if gpu.lost), "")
        return found

    def _of_one(self, key: str, device: str, uuid: str, counted: bool) -> list[Sample]:
        nvml = self._opened()
        if key not in self._own:
            gpus = [gpu for gpu in nvml.gpus if gpu.uuid == uuid] if uuid else []
            self._own[key] = NvmlCollector(nvml, [(device, gpu) for gpu in gpus])
        samples = self._own[key].sample()
        gpus = [gpu for _, gpu in self._own[key].devices]
        if self._dcgm.named and gpus and gpus[0].refused.get("gpm") == BEFORE_HOPPER:
            known, metrics = dcgm.paused(device) if counted else self._dcgm.sample(device, uuid, gpus[0].name)
            samples = [sample for sample in samples if sample.metric not in metrics] + known
        return samples

    def _of_others(self, jobs: list[Job]) -> list[Sample] | None:
        """A few values of the other GPUs that this process may see; None until it is time again."""
        if time.monotonic() - self._beside_at < BESIDE_S:
            return None
        self._beside_at = time.monotonic()
        nvml, ours = self._opened(), frozenset(uuid for job in jobs for _, _, uuid in _gpus(job))
        if self._beside is None or self._beside_of != ours:
            if self._beside is not None:
                self._beside.close()
            others: list[tuple[str, Gpu]] = [(name, gpu) for name, gpu in visible(nvml.gpus) if gpu.uuid not in ours]
            self._beside, self._beside_of = NvmlCollector(nvml, others, brief=True), ours
        return self._beside.sample()

    def _opened(self) -> Nvml:
        if self._nvml is None:
            self._nvml = Nvml()
        return self._nvml

    def _let_go(self, keys: frozenset[str]) -> None:
        """Close what belongs to devices that no run is on any more: a long queue must not pile up samples and threads."""
        for key in [key for key in self._own if key not in keys]:
            self._own.pop(key).close()

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


def counting(jobs: Sequence[Job]) -> bool:
    """Whether counters are collected, or will be, by one of these runs or by another of the same runs folder."""
    if any(job.spec.counters for job in jobs):
        return True
    ours = {job.run.id for job in jobs}
    for root in {job.run.path.parent for job in jobs}:
        for said in holders(root).values():
            match = _HOLDER.match(said)
            if match and match.group(1) not in ours and _counts(root, match.group(1)):
                return True
    return False


def _counts(root: Path, run_id: str) -> bool:
    try:
        return bool(RunFolder.open(root / run_id).spec().counters)
    except (RunsError, OSError):
        return False


def _gpus(job: Job) -> list[tuple[str, str, str]]:
    """(key, name, UUID) of a run's GPUs. Two ranks on one GPU are one entry."""
    found = {uuid or device: (uuid or device, device, uuid) for device, uuid in job.spec.devices}
    return [entry for entry in found.values() if entry[1].startswith("cuda")]
