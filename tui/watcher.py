"""The one thread that looks at the runs folder and computes what the screen asked for: a snapshot a tick, nothing else.

It never touches a widget. What it delivers is immutable, and it delivers only when something changed. While windows keep
arriving it paces itself by what the last computation cost, so that the screen stays within its share of a processor.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from profilers.analysis.options import Options
from profilers.runs.folder import RunsError
from tui.analyst import Analyst
from tui.rows import RowCache
from tui.snapshot import Query, RunRow, RunView, Snapshot

LIVE_S = 0.5
QUIET_S = 1.0
PACE = 10.0
"""Tables that cost c seconds are not computed again within PACE x c: at most a tenth of one core, however fast windows
come. Progress, telemetry and the log are not held back."""


class Watcher:
    """Watches ``root``. ``want`` says which run and which tables are on screen; ``run`` loops until ``stop``.

    ``deliver`` is called from the watcher's thread with each new :class:`Snapshot`.
    """

    def __init__(
        self, root: Path, deliver: Callable[[Snapshot], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.root = root
        self.deliver = deliver
        self.clock = clock
        self._wake = threading.Event()
        self._stopped = False
        self._lock = threading.Lock()
        self._key = ""
        self._queries: tuple[Query, ...] = ()
        self._options = Options()
        self._asked = True
        self._rows = RowCache(root)
        self._analyst: Analyst | None = None
        self._last = Snapshot()
        self._not_before = 0.0

    # -- asked by the screen -----------------------------------------------------------------------------------------

    def want(self, key: str, queries: Iterable[Query], options: Options | None = None) -> None:
        """Say what is on screen. Cheap; may be called from any thread, as often as the screen changes."""
        with self._lock:
            wanted = tuple(dict.fromkeys(queries))
            options = options or self._options
            if (key, wanted, options) == (self._key, self._queries, self._options):
                return
            self._key, self._queries, self._options = key, wanted, options
            self._asked = True
        self._wake.set()

    def nudge(self) -> None:
        """Look again at once (a run was just started or deleted)."""
        with self._lock:
            self._asked = True
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    # -- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Tick until stopped."""
        while not self._stopped:
            snapshot = self._safe_tick()
            if snapshot is not None and not self._stopped:
                self.deliver(snapshot)
            live = any(row.live for row in self._last.runs)
            self._wake.wait(LIVE_S if live else QUIET_S)
            self._wake.clear()

    def _safe_tick(self) -> Snapshot | None:
        """A tick that cannot end the watch: what went wrong is shown in the title, and the next tick tries again."""
        try:
            return self.tick()
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}".splitlines()[0]
            if error == self._last.error:
                return None
            self._last = dataclasses.replace(self._last, error=error)
            return self._last

    def tick(self) -> Snapshot | None:
        """Look once. The new snapshot, or None when nothing that is shown has changed."""
        with self._lock:
            key, queries, options, asked = self._key, self._queries, self._options, self._asked
            self._asked = False
        try:
            runs = self._rows.rows()
            error = ""
        except (RunsError, OSError) as problem:
            runs, error = self._last.runs, str(problem)
        if not key or all(row.key != key for row in runs):
            key = runs[0].key if runs else ""
        view = self._view(key, queries, options, asked, runs)
        snapshot = Snapshot(runs, view, str(self.root), error)
        if (
            self._last.root
            and snapshot.runs == self._last.runs
            and snapshot.error == self._last.error
            and view is self._last.view
        ):
            return None
        self._last = snapshot
        return snapshot

    def _view(
        self, key: str, queries: tuple[Query, ...], options: Options, asked: bool, runs: tuple[RunRow, ...]
    ) -> RunView | None:
        if not key:
            self._analyst = None
            return None
        if self._analyst is None or self._analyst.key != key:
            self._analyst = Analyst(self.root / key)
            self._not_before = 0.0
            if not self._analyst.small():
                self._announce(runs, self._analyst.placeholder())
        analyst = self._analyst
        fresh = asked or self.clock() >= self._not_before
        version = analyst.version
        before = time.perf_counter()
        view = analyst.view(queries, options, self._last.view, fresh=fresh)
        # The first look imports what it needs: its cost says nothing about the next one.
        if version and analyst.version != version:
            self._not_before = self.clock() + min(PACE * (time.perf_counter() - before), 30.0)
        return view

    def _announce(self, runs: tuple[RunRow, ...], view: RunView) -> None:
        """Say what is being waited for before a long load, among the runs that are known by now."""
        self._last = dataclasses.replace(self._last, runs=runs, view=view, root=str(self.root))
        self.deliver(self._last)
