"""``cupti.pm_sampling`` of version 13.4 as documented, played from the file that STAND_IN_CUPTI names (JSON):

``fails``: call -> [exception, message], or {"after": n, ...}: only the first n calls fail. ``lacks``: metrics that the
chip does not know. ``pass``: how many metrics fit into one pass. ``time_trigger``: false on Turing and GA100. ``clock``:
unix | ticks | other. ``interval``: of the samples, where it is not the one asked for. Every call is written to ``calls``.
"""

import builtins
import enum
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from cupti.cupti import cuptiError


class TriggerMode(enum.IntEnum):
    GPU_SYSCLK_INTERVAL = 0
    GPU_TIME_INTERVAL = 1


class HardwareBufferAppendMode(enum.IntEnum):
    KEEP_OLDEST = 0
    KEEP_LATEST = 1


@dataclass(frozen=True)
class Sample:
    start_timestamp: int
    end_timestamp: int
    metric_values: list[float]


class CounterData:
    def __init__(self, metrics, samples):
        self.metrics = metrics
        self._samples = samples
        self.num_total_samples = self.num_populated_samples = self.num_completed_samples = len(samples)

    def __len__(self):
        return len(self._samples)

    def __getitem__(self, index):
        return self._samples[index]

    def __iter__(self):
        return iter(self._samples)


def _plan():
    return json.loads(Path(os.environ["STAND_IN_CUPTI"]).read_text())


class Collector:
    """One a device: a second one on top is refused, as on hardware."""

    enabled = 0
    failed: dict[str, int] = {}

    def __init__(self, device_index: int = 0) -> None:
        self._device_index = device_index
        self._object = None
        self._metrics = None
        self._began = self._ended = None

    def enable(self) -> None:
        self._call("enable", device_index=self._device_index)
        if Collector.enabled:
            raise RuntimeError("PM sampling is already enabled on this device.")
        Collector.enabled += 1
        self._object = 1

    def configure(
        self,
        *,
        metrics: list[str],
        hardware_buffer_size: int = 512 * 1024 * 1024,
        sampling_interval: int = 10000,
        trigger_mode: TriggerMode = TriggerMode.GPU_TIME_INTERVAL,
        hw_buffer_append_mode: HardwareBufferAppendMode = HardwareBufferAppendMode.KEEP_OLDEST,
        single_pass_metric_set_name: str | None = None,
    ) -> None:
        self._needs_object()
        plan = _plan()
        self._call("configure", metrics=metrics, interval=sampling_interval, trigger=trigger_mode.name)
        if hardware_buffer_size <= 0 or sampling_interval <= 0:
            raise ValueError("must be > 0")
        if set(metrics) & set(plan.get("lacks", [])):
            raise ValueError(f"one or more of {metrics} is invalid")
        too_many = len(metrics) > plan.get("pass", 9)
        no_timer = trigger_mode is TriggerMode.GPU_TIME_INTERVAL and not plan.get("time_trigger", True)
        if too_many or no_timer:
            raise ValueError("Requested PM sampling configuration is not supported.")
        self._metrics = list(metrics)
        self._interval = sampling_interval

    def start(self) -> None:
        self._needs_object()
        if self._metrics is None:
            raise RuntimeError("Collector is not configured. Call configure() first.")
        self._call("start")
        self._began = self._now()

    def stop(self) -> None:
        self._needs_object()
        self._call("stop")
        self._ended = self._now()

    def decode(self, max_samples: int = 10000) -> CounterData:
        self._needs_object()
        self._call("decode", max_samples=max_samples)
        interval = _plan().get("interval", self._interval)
        # The first has no begin, and the last no length.
        times = [(0, self._began)]
        times += [(at, at + interval) for at in range(self._began, self._ended - interval, interval)]
        times += [(self._began, self._began)]
        return CounterData(
            self._metrics,
            [Sample(a, b, [float(50 + n) for n in range(len(self._metrics))]) for a, b in times[:max_samples]],
        )

    def disable(self) -> None:
        if self._object is not None:
            self._call("disable")
            Collector.enabled -= 1
        self._object = None

    def _needs_object(self):
        if self._object is None:
            raise RuntimeError("Collector is not enabled. Call enable() first.")

    def _now(self):
        clock = _plan().get("clock", "unix")
        if clock == "unix":
            return time.time_ns()
        if clock == "ticks":
            import torch

            return torch._C._profiler._get_approximate_time()
        return 7_000_000_000_000 + time.monotonic_ns()

    def _call(self, name, **said):
        plan = _plan()
        with open(plan["calls"], "a") as file:
            file.write(json.dumps({"call": name, **said}) + "\n")
        fails = plan.get("fails", {}).get(name)
        if fails:
            times = Collector.failed[name] = Collector.failed.get(name, 0) + 1
            error, message, only = [*fails, None][:3]
            if only is None or times <= only:
                raise cuptiError(message) if error == "cuptiError" else getattr(builtins, error)(message)
