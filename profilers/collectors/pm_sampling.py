"""One step, not replayed, while the GPU's performance monitors are sampled: CUPTI PM sampling through ``cupti-python``.

torch.profiler records the step's kernels, a :class:`cupti.pm_sampling.Collector` samples the chip meanwhile, and both are
written to files: a trace, and the samples (:mod:`profilers.readers.pm_samples`). Sampling is of the whole device and costs
the kernels nothing, but the driver may hold the clocks still while it goes on, so that the step's times are not those of
the run's windows: only percentages are taken from here.

Written against the documented interface of ``cupti-python`` 13.4 and tested against a stand-in for it; it has never run on
a GPU. What others report of hardware is allowed for: the first sample reaches back to the start or has no begin at all;
a hardware buffer that overflows gives nothing, and only a new collector recovers; CUPTI of CUDA 12.8 delivered no
activity records while sampling, which is told when the trace turns out to have no kernels.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from profilers.collectors import files
from profilers.collectors.counters import DENIED, PM_MISSING, CountersError
from profilers.readers.pm_samples import ROLES, PmFile

FINEST_NS = 10_000
"""The shortest interval that is asked for: cupti-python's own default."""
MOST_SAMPLES = 20_000
"""Samples in a step. One takes about 16 KB in the decoder and up to 10 KB in the hardware's buffer."""
COARSER = 4
TRIES = 3
"""A buffer that overflowed is tried again with intervals so many times longer, so often."""
MARGIN_S = 0.005
"""Idle time before and after the step: it ties the samples to the kernels."""

_LONGER = 2.0
"""How much longer than the step before a step may take."""
_BYTES_PER_SAMPLE = 16 * 1024
_BUFFER = (64 * 1024 * 1024, 512 * 1024 * 1024)
_SYSCLK_PER_NS = 1.5


class _OverflowError(Exception):
    """The hardware's buffer was full before the step was over."""


class Cupti(NamedTuple):
    """``cupti.pm_sampling`` and CUPTI's own exception."""

    pm: ModuleType
    error: type[Exception]


def load() -> Cupti:
    """CUPTI's Python package. Raises :class:`CountersError` where it is not installed, or too old to sample."""
    try:
        from cupti import pm_sampling
        from cupti.cupti import cuptiError
    except ImportError:
        raise CountersError(PM_MISSING) from None
    return Cupti(pm_sampling, cuptiError)


def sample_step(cupti: Cupti, torch: Any, step: Callable[[], Any], trace: Path, output: Path) -> None:
    """Take two steps under torch.profiler, of which the second is recorded and sampled; write its trace and its samples.

    Raises :class:`CountersError`, in one line, where the GPU cannot be sampled. What the step raises passes through.
    """
    interval_ns = 0
    for attempt in range(TRIES):
        session = _Session(cupti, COARSER**attempt)
        try:
            samples = session.sampled(torch, step, trace)
        except _OverflowError:
            interval_ns = session.interval_ns
            continue
        finally:
            session.close()
        files.write_atomic(output, msgspec.json.encode(samples))
        return
    raise CountersError(f"the GPU's sample buffer overflowed, with one sample every {interval_ns / 1000:,.0f} us too")


class _Session:
    """One collector, from enabling to disabling. ``coarser``: its interval is so many times what would do."""

    def __init__(self, cupti: Cupti, coarser: int) -> None:
        self.interval_ns = FINEST_NS
        self._pm = cupti.pm
        self._errors = (ValueError, RuntimeError, MemoryError, cupti.error)
        self._coarser = coarser
        self._buffer = _BUFFER[0]
        self._collector: Any = None

    def sampled(self, torch: Any, step: Callable[[], Any], trace: Path) -> PmFile:
        """The samples of one step; its trace is written."""
        profiler = _profiler(torch, trace)
        # Before the collector: CUPTI converts the samples' times by the callback that the profiler registers.
        profiler.start()
        try:
            # CUPTI may lose the first kernels of a session: those of this step are not kept.
            began = time.perf_counter()
            step()
            _synchronize(torch)
            self._plan(_LONGER * (time.perf_counter() - began) + 2 * MARGIN_S)
            by_time = self._open()
            profiler.step()
            samples = self._recorded(torch, step, by_time)
        except BaseException:
            profiler.on_trace_ready = None
            raise
        finally:
            profiler.stop()
        with self._told("evaluate its samples"):
            found = list(samples.data)
        return PmFile(
            metrics=[str(name) for name in samples.data.metrics],
            asked=self.interval_ns if by_time else self._cycles,
            unit="ns" if by_time else "sysclk",
            start=[int(sample.start_timestamp) for sample in found],
            end=[int(sample.end_timestamp) for sample in found],
            values=[[float(value) for value in sample.metric_values] for sample in found],
            anchors=samples.anchors,
            full=len(found) >= samples.room,
        )

    def close(self) -> None:
        """Let go of the device's monitors."""
        collector, self._collector = self._collector, None
        if collector is not None:
            # The process ends soon, and takes along whatever could not be let go of.
            with suppress(*self._errors):
                collector.disable()

    def _plan(self, span_s: float) -> None:
        """Interval and buffer for sampling so long."""
        self.interval_ns = self._coarser * max(FINEST_NS, int(span_s * 1e9 / MOST_SAMPLES))
        low, high = _BUFFER
        self._buffer = min(high, max(low, int(span_s * 1e9 / self.interval_ns + 1) * _BYTES_PER_SAMPLE))

    def _recorded(self, torch: Any, step: Callable[[], Any], by_time: bool) -> _Recorded:
        """Take the step while the monitors are read."""
        before = _anchor(torch)
        began = time.perf_counter()
        with self._told("start sampling"):
            self._collector.start()
        _idle(torch)
        step()
        _idle(torch)
        with self._told("stop sampling"):
            self._collector.stop()
        took_ns = int((time.perf_counter() - began) * 1e9)
        # SYS clock cycles are counted, not timed: twice as many samples may have come.
        room = (1 if by_time else 2) * took_ns // self.interval_ns * 5 // 4 + 256
        return _Recorded(self._decoded(room), room, [before, _anchor(torch)])

    @property
    def _cycles(self) -> int:
        return int(self.interval_ns * _SYSCLK_PER_NS)

    def _open(self) -> bool:
        """Enable the collector with as many quantities as fit into one pass. Whether the interval is one of time: Turing
        and GA100 count SYS clock cycles only."""
        collector = self._pm.Collector(device_index=0)
        with self._told("use the GPU's performance monitors"):
            collector.enable()
        self._collector = collector
        for by_time in (True, False):
            # Every interval of time is refused where the chip has no timer for it: one question tells.
            if any(self._configured(list(metrics), by_time) for metrics in ROLES["busy"]):
                for metrics in _choices():
                    if self._configured(metrics, by_time):
                        return by_time
        raise CountersError("this GPU's activity cannot be sampled (PM sampling is for Turing and newer)")

    def _configured(self, metrics: list[str], by_time: bool) -> bool:
        """Whether these metrics can be sampled together; then they will be."""
        mode = self._pm.TriggerMode
        try:
            self._collector.configure(
                metrics=metrics,
                hardware_buffer_size=self._buffer,
                sampling_interval=self.interval_ns if by_time else self._cycles,
                trigger_mode=mode.GPU_TIME_INTERVAL if by_time else mode.GPU_SYSCLK_INTERVAL,
            )
        except ValueError:
            return False
        except self._errors as error:
            raise CountersError(f"CUPTI cannot set up sampling: {_line(error)}") from None
        return True

    def _decoded(self, room: int) -> Any:
        try:
            return self._collector.decode(max_samples=room)
        except MemoryError:
            raise _OverflowError from None
        except self._errors as error:
            raise CountersError(f"CUPTI cannot decode its samples: {_line(error)}") from None

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except PermissionError:
            raise CountersError(DENIED) from None
        except self._errors as error:
            raise CountersError(f"CUPTI cannot {what}: {_line(error)}") from None


class _Recorded(NamedTuple):
    """What the decoder gave, how many samples it had room for, and the readings of both clocks."""

    data: Any
    room: int
    anchors: list[tuple[int, int | None]]


def _profiler(torch: Any, trace: Path) -> Any:
    """torch.profiler: one step to warm up, one that is recorded, its trace written at the end."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(trace)),
            acc_events=False,
        )


def _choices() -> list[list[str]]:
    """Sets of metrics to ask for, best first: those with the most quantities, and of these the preferred alternatives.
    How the GPU was busy is always among them."""
    ranks = [range(len(alternatives) + (role != "busy")) for role, alternatives in ROLES.items()]
    lengths = [len(alternatives) for alternatives in ROLES.values()]

    def worse(choice: tuple[int, ...]) -> tuple[int, int]:
        return sum(rank == length for rank, length in zip(choice, lengths, strict=True)), sum(choice)

    return [
        [
            metric
            for alternatives, rank in zip(ROLES.values(), choice, strict=True)
            for metric in (alternatives[rank] if rank < len(alternatives) else ())
        ]
        for choice in sorted(itertools.product(*ranks), key=worse)
    ]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:140] or type(error).__name__


def _anchor(torch: Any) -> tuple[int, int | None]:
    """Nanoseconds since the epoch and ticks of torch's approximate clock, read at one instant."""
    ticks = getattr(torch._C._profiler, "_get_approximate_time", None)
    if ticks is None:
        return time.time_ns(), None
    # Of a few readings the one that nothing came between.
    readings = []
    for _ in range(5):
        before, now, after = ticks(), time.time_ns(), ticks()
        readings.append((after - before, now, (before + after) // 2))
    _, now, middle = min(readings)
    return now, middle


def _idle(torch: Any) -> None:
    _synchronize(torch)
    time.sleep(MARGIN_S)


def _synchronize(torch: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
