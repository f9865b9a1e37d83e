"""Waiting for runs without a screen: progress on stderr, one rewritten line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from profilers.collectors.files import Growing, newest
from profilers.collectors.protocol import LOG
from profilers.rules.names import visible
from tui.cli.output import plain, talk
from tui.format import duration, significant

if TYPE_CHECKING:
    from profilers.runs.folder import RunFolder
    from profilers.runs.status import Status

POLL_S = 0.25
QUIET_S = 10.0
"""Without a terminal a run that only ticks on says so no more often than this."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C a second time: waiting is over, the runs go on."""


@contextlib.contextmanager
def holding_ctrl_c() -> Iterator[list[int]]:
    """Inside, Ctrl-C is kept in the list that this yields: runs that are being started are then never left unsaid."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # signals come to the main thread alone
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def wait(runs: Sequence[RunFolder], *, output: bool = False, interrupted: bool = False) -> list[RunFolder]:
    """Return the runs once all have ended. Ctrl-C says that they go on; once more raises :class:`Interrupted`.

    ``output``: what the (only) run prints is passed on to stderr as it comes. ``interrupted``: Ctrl-C was pressed once
    already, while they were started.
    """
    lines = _Lines(runs)
    printed = _Output(runs[0]) if output else None
    warned = False
    while True:
        try:
            # The status first: what was printed before the run ended is then sure to be seen.
            statuses = [run.effective_status() for run in runs]
            if printed is not None and (news := printed.news(last=not any(status.live for status in statuses))):
                lines.close()
                for text in news:
                    talk(text)
            lines.show(statuses)
            if not any(status.live for status in statuses):
                lines.close()
                return list(runs)
            if interrupted:
                interrupted = False
                raise KeyboardInterrupt
            time.sleep(POLL_S)
        except KeyboardInterrupt:
            lines.close()
            live = [run for run in runs if run.effective_status().live]
            if warned or not live:
                raise Interrupted from None
            warned = True
            for run in live:
                letters = run.id.rpartition("-")[2]
                talk(
                    f"{label(run)} goes on: 'kernelscope attach {letters}' comes back, 'kernelscope stop {letters}' ends it"
                )
            talk("Ctrl-C once more stops waiting")


class _Output:
    """The log of a run as it grows."""

    def __init__(self, run: RunFolder) -> None:
        self._file = Growing(run.path / LOG)

    def news(self, last: bool = False) -> list[str]:
        """Lines that have been finished since the last call; with ``last`` also one that never was. Of a line that was
        rewritten (a progress bar) the newest state, of each rank."""
        try:
            lines = self._file.news(last=last).decode("utf-8", "replace").split("\n")
        except OSError:
            return []
        return [state for text in (lines if lines[-1] else lines[:-1]) for state in newest(text)]


class _Lines:
    """What has been said already, so that only news is."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self.runs = runs
        self.terminal = sys.stderr.isatty()
        self.said: dict[int, tuple[object, ...]] = {}
        self.states: dict[int, str] = {}
        self.when: dict[int, float] = {}
        self.text = ""

    def show(self, statuses: Sequence[Status]) -> None:
        """Rewrite the terminal's line; say in a line of its own what must stay: a new state, or a step further."""
        if self.terminal:
            self._rewrite(statuses)
        now = time.monotonic()
        for place, status in enumerate(statuses):
            told = (status.state, status.phase, status.windows_done)
            turned = self.states.get(place) != status.state
            moved = self.said.get(place) != told and now - self.when.get(place, 0.0) >= QUIET_S
            if self.terminal:
                speak = turned and not status.live
            else:
                speak = turned or (moved and status.live)
            self.states[place] = status.state
            if speak:
                self.said[place], self.when[place] = told, now
                self.close()
                talk(line(label(self.runs[place]), status))

    def _rewrite(self, statuses: Sequence[Status]) -> None:
        live = [(run, status) for run, status in zip(self.runs, statuses, strict=True) if status.live]
        if not live:
            return
        run, status = next(((r, s) for r, s in live if s.state != "queued"), live[0])
        text = line(label(run), status) + (f" · {len(live) - 1} more" if len(live) > 1 else "")
        text = plain(visible(text))[: shutil.get_terminal_size().columns - 1]
        if text != self.text:
            self.text = text
            sys.stderr.write("\r\x1b[K" + text)
            sys.stderr.flush()

    def close(self) -> None:
        """Leave the rewritten line, so that the next output begins on its own."""
        if self.text:
            self.text = ""
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def label(run: RunFolder) -> str:
    """A run's name with the last four letters of its id, by which every command finds it."""
    name, _, letters = run.id.rpartition("-")
    return f"{'-'.join(name.split('-')[3:])} {letters}"


def line(name: str, status: Status) -> str:
    """A run in one line: state, step time, windows, what is left, or why it ended."""
    parts = [name, status.state if not status.phase or not status.live else f"{status.state}: {status.phase}"]
    if status.step_ms is not None:
        spread = f" ± {significant(status.step_ms_spread)}" if status.step_ms_spread is not None else ""
        parts.append(f"step {significant(status.step_ms)}{spread} ms")
    if status.windows_total or status.windows_done:
        parts.append(f"window {status.windows_done}/{status.windows_total or '?'}")
    if status.live and status.eta_s is not None:
        parts.append(f"{duration(status.eta_s)} left")
    if status.cause:
        parts.append(status.cause)
    return " · ".join(parts)
