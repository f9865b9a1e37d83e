"""The second pass of a run: its workload once more, counted by ncu, by CUPTI or by sampling, and the counters laid onto its
windows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profilers.collectors import counters, files, protocol
from profilers.collectors.spec import Spec
from profilers.runs.folder import RunFolder

if TYPE_CHECKING:
    from profilers.tables import Recording

PAGE = "counters.csv"
"""ncu's raw page, kept in the run folder: it opens like any other recording."""
CUPTI_TRACE = "counters-cupti.json"
"""torch.profiler's trace, where that collected them."""
PM_TRACE, PM_SAMPLES = "counters-pm-trace.json", "counters-pm-samples.json"
"""The step that was sampled: torch.profiler's trace of it, and the GPU's samples."""
LOG = "counters.log"
GRACE_S = 4.0
_POLL_S = 0.1

_STALE = frozenset({"utilization_estimated", "utilization_unknown"})


class Counting(threading.Thread):
    """Runs the second pass and joins what it measured. ``phase`` and ``eta_s`` say how far it is; ``notes`` what came of it.

    Whatever goes wrong is a note: the run's windows are whole without counters.
    """

    def __init__(self, run: RunFolder, spec: Spec, environment: Mapping[str, str]) -> None:
        super().__init__(name=f"counters-{run.id}", daemon=True)
        self._run = run
        self._spec = spec
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self.phase = (
            f"counters: starting {'Nsight Compute' if spec.counters in counters.SETS else 'the workload again'}"
        )
        self.eta_s: float | None = None
        self.notes: tuple[str, ...] = ()

    def stop(self) -> None:
        """End the second pass."""
        self._stopped.set()
        self._signal(signal.SIGTERM)

    def run(self) -> None:
        try:
            self._measure()
        except Exception as error:
            traceback.print_exception(error, file=sys.stderr)
            self._note(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        finally:
            self._signal(signal.SIGKILL)

    # --- measuring ----------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        if self._spec.counters == counters.CUPTI:
            self._measure_with_cupti()
            return
        if self._spec.counters == counters.PM:
            self._measure_with_samples()
            return
        ncu = counters.find_ncu()
        if ncu is None:
            self._note(counters.NOT_HERE)
            return
        metrics = counters.SETS[self._spec.counters]
        total = self._expected()
        said = self._pass(ncu, metrics, total)
        lacking = [name for name in said.unknown if name in metrics]
        if lacking and not self._stopped.is_set():
            # This GPU lacks some of them: the others are still worth having.
            self.notes = (*self.notes, f"counters: this GPU has no {', '.join(lacking)}")
            said = self._pass(ncu, tuple(name for name in metrics if name not in lacking), total)
        if self._stopped.is_set():
            return
        page = self._run.path / PAGE
        if not page.is_file() or not page.stat().st_size or (said.problem and not said.profiled):
            self._note(said.problem or self._last_words())
            return
        from profilers.readers import ncu as reader

        self._join(reader.read(page), said.problem)

    def _measure_with_cupti(self) -> None:
        """torch.profiler collects in the workload's own process: no ncu, and no progress before it is over."""
        trace = self._run.path / CUPTI_TRACE
        trace.unlink(missing_ok=True)
        self.phase = "counters: one step with CUPTI"
        said = self._follow(counters.worker(self._run.path, os.getpid(), str(trace)), None)
        if self._stopped.is_set():
            return
        if not trace.is_file():
            self._note(said.problem or self._last_words())
            return
        from profilers.readers import cupti

        self._join(cupti.read(trace), said.problem)

    def _measure_with_samples(self) -> None:
        """The GPU is sampled while torch.profiler records one step that is not replayed."""
        trace, output = self._run.path / PM_TRACE, self._run.path / PM_SAMPLES
        for path in (trace, output):
            path.unlink(missing_ok=True)
        self.phase = "counters: one step, sampled by CUPTI"
        said = self._follow(counters.worker(self._run.path, os.getpid(), str(trace), str(output)), None)
        if self._stopped.is_set():
            return
        if not output.is_file():
            self._note(said.problem or self._last_words())
            return
        from profilers.analysis import pm_counters
        from profilers.analysis.pm_align import CannotAlignError
        from profilers.readers import kineto, pm_samples
        from profilers.readers.errors import ReadError

        self.phase = "counters: placing samples on kernels"
        try:
            measured, coverage = pm_counters.measured(kineto.read(trace), pm_samples.read(output))
        except (CannotAlignError, ReadError) as error:
            self._note(str(error))
            return
        how, reached = coverage.lines()
        self._join(measured, said.problem, how)
        lost = (f"counters: {note.count:,} {note.text}" for note in measured.notes if note.code == pm_samples.DROPPED)
        cut = (f"counters: {note.text}" for note in measured.notes if note.code == pm_samples.FULL)
        self.notes = (*self.notes, f"counters: {reached}", *lost, *cut)

    def _pass(self, ncu: str, metrics: tuple[str, ...], total: int | None) -> counters.Progress:
        page = self._run.path / PAGE
        page.unlink(missing_ok=True)
        target = counters.worker(self._run.path, os.getpid())
        return self._follow(counters.command(ncu, metrics, self._spec.counters_every, page, target), total, page)

    def _follow(self, command: list[str], total: int | None, page: Path | None = None) -> counters.Progress:
        """Run a command to its end, taking in what it says: on its output, or (as ncu does) in its log file."""
        said = counters.Progress()
        began: float | None = None
        log = self._run.path / LOG
        with log.open("w", encoding="utf-8") as output:
            output.write(" ".join(command) + "\n")
            output.flush()
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._spec.cwd or None,
                env=self._environment,
                start_new_session=True,
            )
        heard = [files.Growing(path) for path in (log, page) if path is not None]
        while True:
            # Asked first: what it wrote before it ended is read after that.
            over = process.poll() is not None
            for source in heard:
                for line in source.news().decode("utf-8", "replace").splitlines():
                    said.hear(line)
            if said.profiled and not over:
                began = time.monotonic() if began is None else began
                self._tell(said.profiled, total, time.monotonic() - began)
            if over:
                return said
            if self._stopped.is_set():
                self._leave()
            time.sleep(_POLL_S)

    def _tell(self, profiled: int, total: int | None, spent_s: float) -> None:
        of = f" of about {total:,}" if total else ""
        self.phase = f"counters: kernel {profiled:,}{of} (Nsight Compute replays each)"
        self.eta_s = counters.eta_s(profiled, total, spent_s)

    def _leave(self) -> None:
        """End what runs: asked first, made to after a while."""
        assert self._process is not None
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            try:
                os.killpg(self._process.pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def _expected(self) -> int | None:
        """Kernels that ncu will measure: those of one step of the first window, or every n-th of them."""
        numbers = self._run.window_ids()
        if not numbers:
            return None
        recording = self._run.read_window(numbers[0])
        kernels = int((recording.kernels["kind"] == "kernel").sum())
        return max(1, kernels // max(1, len(recording.steps)) // self._spec.counters_every)

    # --- joining ------------------------------------------------------------------------------------------------------

    def _join(self, measured: Recording, problem: str, how: str = "") -> None:
        """Lay what was measured onto every window. ``how``: one line on a pass that was no replay."""
        from profilers.runs.reading import on_device

        self.phase, self.eta_s = "counters: joining them to the windows", None
        measured = on_device(measured, self._spec.device)
        matched = without = 0
        for number in self._run.window_ids():
            joined, hit, missed = with_counters(self._run.read_window(number), measured)
            matched, without = matched + hit, without + missed
            self._run.write_window(number, joined)
        every = self._spec.counters_every
        which = "every kernel" if every == 1 else f"every {every}th invocation of each kernel"
        how = how or f"{which} of one step: {len(measured.kernels):,} measured"
        text = f"counters ({self._spec.counters}) of {how}"
        self.notes = (
            *self.notes,
            f"{text}; {matched:,} kernels in the windows have them, {without:,} have not",
            *((f"counters: {problem}",) if problem else ()),
        )
        counted = {"measured": len(measured.kernels), "matched": matched, "unmatched": without}
        # Whoever holds windows from before reads them again.
        files.write_atomic(self._run.path / protocol.COUNTED, msgspec.json.encode(counted))
        self._run.append_event("counters", **counted)

    def _last_words(self) -> str:
        last = next((line for line in reversed(files.tail(self._run.path / LOG, 20)) if line.strip()), "")
        return f"the second pass measured nothing; {LOG} ends: {last.strip()[:160]}"

    def _note(self, text: str) -> None:
        self.notes = (*self.notes, f"no counters: {text}")


def with_counters(recording: Recording, measured: Recording) -> tuple[Recording, int, int]:
    """A window with measured counters, how many of its kernels have them, and how many keep an estimate."""
    from profilers.analysis.pm_counters import FLOOR
    from profilers.analysis.prepare import prepare
    from profilers.readers.ncu import join_counters

    # What was said of the estimates is said anew of those that stay.
    fresh = recording.replace(notes=tuple(note for note in recording.notes if note.code not in _STALE))
    joined, matched, unmatched = join_counters(fresh, measured)
    floors = [replace(note, count=matched) for note in measured.notes if note.code == FLOOR and matched]
    return prepare(joined.with_notes(*floors)), matched, unmatched
