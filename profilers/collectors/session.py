"""The measurement itself, as a chain of step boundaries: warm-up, timed steps, windows.

Whoever drives the steps (the worker's own loop, or hooks inside a user's script) calls :meth:`Session.boundary` after
each. Steps are timed between boundaries, with the device synchronised at both ends, and never while the profiler is on
unless said so. Imports torch.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from profilers.collectors import files, protocol
from profilers.collectors.backends.base import RecorderMaker
from profilers.collectors.modules import ModuleRanges, compiled_frames
from profilers.collectors.protocol import Progress
from profilers.collectors.spec import Spec

SLOW_STEP_S = 2.0
"""Steps longer than this get no unprofiled step between windows: it would cost a third of the run."""

GOES_ON = "all is recorded, the script goes on"
UNRECORDED = "paused: it has no steps to rest between and goes on, unrecorded"

WARM_S = 0.02
MOST_PLAIN_STEPS = 10
"""Short steps are taken unprofiled for so long between two windows, but not more of them: writing a trace leaves the
caches cold, which makes the first step after it twice as long where a step takes a millisecond."""

_WAIT_POLL_S = 0.02
_PAUSE_LOOK_S = 0.1
_REPORT_S = 0.2
_ROOM_BYTES = 16 * 1024 * 1024


class Session:
    """One run's measurement. ``report`` is called with the progress when it changed (never inside a timed step)."""

    def __init__(
        self,
        spec: Spec,
        folder: Path,
        device: torch.device,
        report: Callable[[Progress], None],
        progress: Progress,
        ranges: ModuleRanges | None = None,
        recorder: RecorderMaker | None = None,
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.device = device
        self.progress = progress
        self.done = False
        self._report = report
        self._reported = 0.0
        self._ranges = ranges or ModuleRanges()
        self._recorder = recorder
        self._profiler: Any = None
        self._count = 0
        self._wait = 1
        self._windows = 0
        self._suspended = False
        self._slices = False
        self._unrecorded: float | None = None
        self._looked = 0.0
        self._rest_at: int | None = None
        self.steps_taken: Callable[[], int] = lambda: 0
        self._timed: list[float] = []
        self._between: list[float] = []
        self._profiled: list[float] = []
        self._cycles: list[float] = []
        self._windows_began = self._cycle_began = self._step_began = time.perf_counter()

    # --- driving ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Call once, right before the first step."""
        self._enter("warming" if self.spec.warmup > 0 else "timing")
        self._next_phase()
        self._start_step()

    def boundary(self) -> bool:
        """Call after each step. True while more steps are wanted."""
        if self.done:
            return False
        if self._suspended:
            self._say()
            return True
        state = self.progress.state
        if state == "profiling":
            self._profiled_boundary()
        else:
            self._synchronize()
            took = time.perf_counter() - self._step_began
            self._count += 1
            if state == "timing":
                self._timed.append(took)
            self._estimate(took)
            self._next_phase()
        if not self.done:
            self._rest_while_paused()
            self._say()
            self._start_step()
        return not self.done

    def close(self) -> None:
        """Let go of the profiler, also after an error in the middle of a window."""
        self._ranges.off()
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            # Stopped in the middle of a window it would hand out half of one as if it were whole.
            profiler.on_trace_ready = None
            profiler.stop()

    def suspend(self, why: str) -> None:
        """Step aside for a profiler that is not ours (only one can run): half a window is dropped, and steps that it
        sees are not timed."""
        if not self._suspended and not self.done:
            self._suspended = True
            self.close()
            self.progress.phase = why
            self._note(why)
            self._say(always=True)

    def resume(self) -> None:
        """Go on after :meth:`suspend`, with a window of its own."""
        if self._suspended:
            self._suspended = False
            if self.progress.state == "profiling":
                self._open_windows()
            self._start_step()

    def begin_slices(self, note: str) -> None:
        """Record windows of time slices: boundaries come from a clock, so that they say nothing of how long a step is."""
        self._slices = True
        self._note(note)
        self._enter("profiling")
        self._start_windows()

    def begin_steps(self) -> None:
        """After :meth:`begin_slices`: steps have been found after all. Windows so far stay."""
        self.close()
        self._slices = False
        self.begin()

    def give_up(self, why: str) -> None:
        """Record nothing more; what is recorded stays."""
        self.done = True
        self._note(why)
        self.close()

    def abandon(self) -> None:
        """Forget everything without a word to the profiler: this is a forked child, and the run is its parent's."""
        if self._profiler is not None:
            # What the child computes would pile up in a profile that nobody ever reads.
            torch.autograd._enable_record_function(False)
        self.done, self._profiler = True, None
        self._ranges.off()

    # --- phases -------------------------------------------------------------------------------------------------------

    def _next_phase(self) -> None:
        spec, progress = self.spec, self.progress
        if progress.state == "warming":
            if self._count < spec.warmup:
                progress.phase = f"warm-up step {self._count + 1} of {spec.warmup}"
                return
            self._enter("timing")
        if progress.state == "timing":
            if self._count < spec.timed_steps:
                progress.phase = f"unprofiled step {self._count + 1} of {spec.timed_steps}"
                return
            self._settle_times()
            if spec.windows <= 0:
                self._finish()
            else:
                self._enter("profiling")
                self._start_windows()

    def _enter(self, state: str) -> None:
        self._count = 0
        self.progress.state = state
        self._reported = 0.0

    def _settle_times(self) -> None:
        progress = self.progress
        if self._timed:
            progress.step_ms = statistics.median(self._timed) * 1e3
            progress.step_ms_spread = half_iqr(self._timed) * 1e3
            progress.steps_timed = len(self._timed)

    def _finish(self) -> None:
        self.close()
        self.done = True
        self.progress.eta_s = 0.0
        if self.spec.target == "script":
            self.progress.phase, self.progress.eta_s = GOES_ON, None
            self._say(always=True)

    # --- windows ------------------------------------------------------------------------------------------------------

    def _start_windows(self) -> None:
        if self._timed:
            self._wait = self._plain_steps(statistics.median(self._timed))
        if self._wait == 0:
            self._note("slow steps: no unprofiled step between windows")
        if compiled_frames():
            self._note("torch.compile is at work: kernels of compiled code do not know their module")
        self._windows_began = time.perf_counter()
        self._open_windows()

    def _plain_steps(self, step_s: float) -> int:
        """Unprofiled steps between two windows. A script has only so many steps: it gives one."""
        if step_s > SLOW_STEP_S:
            return 0
        if self.spec.target == "script":
            return 1
        return min(MOST_PLAIN_STEPS, max(1, math.ceil(WARM_S / max(step_s, 1e-9))))

    def _open_windows(self) -> None:
        self._count = 0
        self._cycle_began = time.perf_counter()
        if self._recorder is not None:
            self._profiler = self._recorder(self._wait, self.spec.steps, self._export)
            self._profiler.start()
            self._before_step()
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._profiler = torch.profiler.profile(
                activities=activities,
                schedule=torch.profiler.schedule(wait=self._wait, warmup=1, active=self.spec.steps, repeat=0),
                on_trace_ready=self._export,
                record_shapes=True,
                acc_events=False,
            )
            self._profiler.start()
        self._before_step()

    @property
    def _position(self) -> int:
        return self._count % (self._wait + 1 + self.spec.steps)

    def _profiled_boundary(self) -> None:
        position, active = self._position, self._position - self._wait - 1
        # Inside a window of several steps the device runs on, as it would in real use.
        if active < 0 or active == self.spec.steps - 1:
            self._synchronize()
        took = time.perf_counter() - self._step_began
        if self._slices:
            pass
        elif position < self._wait:
            self._between.append(took)
        elif active >= 0:
            self._profiled.append(took)
        self._ranges.off()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._profiler.step()
        self._count += 1
        if self._position == 0:
            self._after_window()
        if not self.done:
            self._before_step()

    def _export(self, profiler: Any) -> None:
        number = self._windows + 1
        aside = self.folder / protocol.RAW / f".{protocol.raw_name(number)}"
        try:
            profiler.export_chrome_trace(str(aside))
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        if shutil.disk_usage(aside.parent).free < _ROOM_BYTES:
            # A trace cut short by a full disk is not told apart from a whole one by the exporter.
            self._note("the disk is almost full")
        aside.rename(aside.parent / protocol.raw_name(number))
        self._windows = number

    def _after_window(self) -> None:
        now = time.perf_counter()
        self._cycles.append(now - self._cycle_began)
        self._cycle_began = now
        progress, spec = self.progress, self.spec
        progress.windows_done = self._windows
        if self._between:
            progress.between_step_ms = statistics.median(self._between) * 1e3
        if self._profiled:
            progress.window_step_ms = statistics.median(self._profiled) * 1e3
        left_s = statistics.median(self._cycles[-8:]) * (spec.windows - self._windows)
        spent = now - self._windows_began
        if spec.seconds is not None:
            left_s = min(left_s, max(0.0, spec.seconds - spent))
        progress.eta_s = left_s
        if self._windows >= spec.windows or (spec.seconds is not None and spent >= spec.seconds):
            self._finish()
            return
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        """Hold the next window while too many are unread.

        On a GPU two may wait: reading them costs the host only. On a CPU the reader would compete for the cores that
        the next window measures, so every window is read before the next begins.
        """
        limit = 2 if self.device.type == "cuda" else 0
        waited = False
        while len(protocol.raw_windows(self.folder)) > limit:
            if not waited:
                waited = True
                self.progress.phase = f"window {self._windows} of {self.spec.windows} is being read"
                self._say(always=True)
            time.sleep(_WAIT_POLL_S)
        if waited:
            self._reported = 0.0

    def _rest_while_paused(self) -> bool:
        """Wait while somebody has paused the run, and say whether that was so: between steps, never inside a window. The
        device stays ours. One of several ranks is told a step (:attr:`steps_taken`) that all of them have still to take,
        so that none waits for the others in the middle of the next.

        A stopped process (SIGSTOP) would stop the driver's threads as well, and with them others who use the device.
        Windows cut by a clock have no step to wait at: see :meth:`skips_slice`.
        """
        now = time.perf_counter()
        if self._slices:
            return False
        pause = self.folder / protocol.PAUSE
        if self._rest_at is None and now - self._looked >= _PAUSE_LOOK_S:
            self._looked = now
            self._rest_at = _number(files.read_bytes(pause))
        inside = self.progress.state == "profiling" and self._position != 0
        if self._rest_at is None or inside or self.steps_taken() < self._rest_at:
            return False
        self._rest_at = None
        if not pause.exists():
            return False
        phase, left = self.progress.phase, self.progress.eta_s
        self.progress.phase, self.progress.eta_s = "paused", None
        self._say(always=True)
        # Ranks that did not come to rest after one step are told a later one: this one then goes on to it.
        while (asked := _number(files.read_bytes(pause))) is not None and asked <= self.steps_taken():
            time.sleep(_PAUSE_LOOK_S)
        rested = time.perf_counter() - now
        self._windows_began += rested
        self._cycle_began += rested
        self.progress.phase, self.progress.eta_s = phase, left
        if not self.done:
            self._note("it was paused: clocks and caches had cooled down at the next step")
        self._reported = 0.0
        return True

    def rest(self) -> None:
        """After the last window: rest where the run is paused, as before it. Call after each step."""
        if self._rest_while_paused():
            self._say(always=True)

    def skips_slice(self) -> bool:
        """Whether the run is paused where windows are slices of time. A script without steps has no place to rest at: it
        goes on, and is not recorded meanwhile. A window that has begun is taken to its end."""
        now = time.perf_counter()
        if not self._slices or self.done or self._position != 0:
            return False
        if (self.folder / protocol.PAUSE).exists():
            if self._unrecorded is None:
                self._unrecorded = now
                self.progress.phase, self.progress.eta_s = UNRECORDED, None
                self._say(always=True)
            return True
        if self._unrecorded is not None:
            skipped, self._unrecorded = now - self._unrecorded, None
            self._windows_began += skipped
            self._cycle_began += skipped
            self._note("it was paused: it went on meanwhile, unrecorded")
            self._before_step()
            self._say(always=True)
        return False

    def _before_step(self) -> None:
        self.progress.phase = f"window {self._windows + 1} of {self.spec.windows}"
        if self._position > self._wait and not compiled_frames():
            self._ranges.on()

    # --- small things -------------------------------------------------------------------------------------------------

    def _start_step(self) -> None:
        self._step_began = time.perf_counter()

    def _synchronize(self) -> None:
        if self.device.type == "cuda" and torch.cuda.is_initialized():
            torch.cuda.synchronize(self.device)

    def _estimate(self, step_s: float) -> None:
        spec = self.spec
        left = spec.timed_steps - (self._count if self.progress.state == "timing" else 0)
        if self.progress.state == "warming":
            left += spec.warmup - self._count
        windows_s = spec.windows * (1 + spec.steps + self._plain_steps(step_s)) * step_s
        if spec.seconds is not None:
            windows_s = min(windows_s, spec.seconds)
        self.progress.eta_s = max(0, left) * step_s + windows_s

    def _note(self, text: str) -> None:
        if text not in self.progress.notes:
            self.progress.notes = (*self.progress.notes, text)

    def _say(self, always: bool = False) -> None:
        now = time.perf_counter()
        if always or now - self._reported >= _REPORT_S:
            self._reported = now
            self._report(self.progress)


def _number(data: bytes | None) -> int | None:
    """The step that a pause names; 0 where it names none; None where there is no pause."""
    if data is None:
        return None
    return int(data) if data.isdigit() else 0


def half_iqr(values: list[float]) -> float:
    """Half the distance between the first and the third quartile (inclusive method); 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / 2
