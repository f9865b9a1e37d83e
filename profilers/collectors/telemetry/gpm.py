"""What a GPU's units do, from the driver's GPU performance monitor (GPM): Hopper and newer, no privileges.

Every value is an average between two samples. A rolling pair is kept per device, so a tick takes one sample. GPM does
not use the profiler's counters, so it may go on beside CUPTI and Nsight. Ids and units: NVIDIA's ``nvml.h``, group
"GPM Metric Identifiers".
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profilers.collectors.telemetry.nvml import Gpu, Nvml

SOURCE = "gpm"

METRICS = (
    (2, "sm_pct", "%"),
    (3, "occupancy_pct", "%"),
    (5, "tensor_pct", "%"),
    (7, "hmma_pct", "%"),
    (9, "imma_pct", "%"),
    (8, "dmma_pct", "%"),
    (6, "dfma_pct", "%"),
    (13, "fp16_pct", "%"),
    (12, "fp32_pct", "%"),
    (11, "fp64_pct", "%"),
    (4, "integer_pct", "%"),
    (10, "dram_pct", "%"),
    (20, "pcie_tx_mib_s", "MiB/s"),
    (21, "pcie_rx_mib_s", "MiB/s"),
    (61, "nvlink_tx_mib_s", "MiB/s"),
    (60, "nvlink_rx_mib_s", "MiB/s"),
)
"""(id, metric, unit): SM utilization and occupancy; tensor pipes, any and by type; other pipes; DRAM; links."""

LINKS = frozenset(metric for _, metric, unit in METRICS if unit == "MiB/s")

SHORTEST_S = 0.1
"""NVIDIA asks for at least 100 ms between the two samples."""

OLDEST_S = 30.0
"""A pair further apart says nothing of now: the newer sample then only begins the next pair."""

BEFORE_HOPPER = "needs a Hopper or newer GPU"
_NOT_SUPPORTED = 3
_BEGINNING = "no value yet: it takes two samples"

Reading = tuple[str, float | None, str, str]
"""(metric, value, unit, reason)"""


class Gpm:
    """Rolling pairs of samples, by GPU. ``module`` is pynvml."""

    def __init__(self, nvml: Nvml, module: Any) -> None:
        self._nvml = nvml
        self._module = module
        self._pairs: dict[str, _Pair] = {}

    def read(self, gpu: Gpu) -> list[Reading]:
        """The averages since the previous call; reasons at the first. [] when called again within 100 ms."""
        why = self.unsupported(gpu)
        if why:
            return _none(why)
        instance: int | None = None
        if gpu.kind == "mig":
            instance, why = self._nvml.ask(gpu, "nvmlDeviceGetGpuInstanceId")
            if instance is None:
                return _none(why)
        pair = self._pairs.get(gpu.uuid)
        if pair is None:
            pair = self._pairs[gpu.uuid] = _Pair()
        now = time.monotonic()
        if pair.older is not None and now - pair.older_at < SHORTEST_S:
            return []
        if pair.instance != instance:
            # The instance was made anew: samples of two instances make no pair.
            self._drop(pair)
            pair.instance = instance
        newer, why = self._take(gpu, pair, instance)
        if newer is None:
            return _none(why)
        age, older = now - pair.older_at, pair.older
        pair.older, pair.spare, pair.older_at = newer, older, now
        if older is None or age > OLDEST_S:
            return _none(_BEGINNING)
        return list(self._averages(pair, older, newer))

    def close(self) -> None:
        """Free the samples."""
        for pair in self._pairs.values():
            self._drop(pair)
        self._pairs.clear()

    def unsupported(self, gpu: Gpu) -> str:
        """Why this GPU has no GPM; '' when it has. Asked once."""
        known = gpu.refused.get("gpm")
        if known is None:
            # An instance answers for itself in newer drivers only; its GPU always does.
            handle = gpu.parent if gpu.parent is not None else gpu.handle
            support, why = self._nvml.ask(gpu, "nvmlGpmQueryDeviceSupport", handle=handle)
            if support is None:
                if not gpu.refused.get("nvmlGpmQueryDeviceSupport"):
                    return why
                known = f"the driver has no GPM ({why})" if why == "not in this driver" else BEFORE_HOPPER
            else:
                known = "" if support.isSupportedDevice else BEFORE_HOPPER
            gpu.refused["gpm"] = known
        return known

    def _take(self, gpu: Gpu, pair: _Pair, instance: int | None) -> tuple[Any, str]:
        try:
            sample = pair.spare if pair.spare is not None else self._module.nvmlGpmSampleAlloc()
        except self._module.NVMLError as error:
            return None, f"no sample could be made: {error}"
        pair.spare = sample
        if instance is None:
            return self._nvml.ask(gpu, "nvmlGpmSampleGet", sample)
        return self._nvml.ask(gpu, "nvmlGpmMigSampleGet", instance, sample, handle=gpu.parent)

    def _averages(self, pair: _Pair, older: Any, newer: Any) -> Iterator[Reading]:
        wanted = [entry for entry in METRICS if entry[0] not in pair.refused]
        request = self._module.c_nvmlGpmMetricsGet_t()
        request.version = self._module.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(wanted)
        request.sample1, request.sample2 = older, newer
        for place, (number, _, _) in enumerate(wanted):
            request.metrics[place].metricId = number
        try:
            self._module.nvmlGpmMetricsGet(request)
        except self._module.NVMLError as error:
            yield from _none(f"the driver gives no averages: {error}")
            return
        for place, (number, metric, unit) in enumerate(wanted):
            found = request.metrics[place]
            value = float(found.value)
            if found.nvmlReturn == _NOT_SUPPORTED:
                pair.refused.add(number)
                yield metric, None, unit, "not supported by this device"
            elif found.nvmlReturn:
                yield metric, None, unit, f"no value (NVML code {found.nvmlReturn})"
            elif not math.isfinite(value):
                yield metric, None, unit, "no value"
            else:
                yield metric, round(value, 3), unit, ""

    def _drop(self, pair: _Pair) -> None:
        for sample in (pair.older, pair.spare):
            if sample is not None:
                try:
                    self._module.nvmlGpmSampleFree(sample)
                except self._module.NVMLError:
                    pass
        pair.older = pair.spare = None


class _Pair:
    """The previous sample, one to fill, and what this device does not offer."""

    def __init__(self) -> None:
        self.older: Any = None
        self.spare: Any = None
        self.older_at = 0.0
        self.instance: int | None = None
        self.refused: set[int] = set()


def _none(why: str) -> list[Reading]:
    return [(metric, None, unit, why) for _, metric, unit in METRICS]
