"""One run's recording so far, and its tables, computed once for each version of it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from profilers.analysis.options import Options
from profilers.analysis.registry import TABLES
from profilers.collectors import protocol
from profilers.rules.names import visible
from profilers.runs.folder import EVENTS, SAMPLES, RunFolder, RunsError, SampleTail
from tui.drill import DRILLS
from tui.snapshot import Query, RunView
from tui.telemetry import Telemetry

if TYPE_CHECKING:
    import pandas as pd

    from profilers.runs.status import Status
    from profilers.tables import Note, Recording

LOG_LINES = 400
SMALL_BYTES, SMALL_FILES = 4_000_000, 100


class Analyst:
    """Reads the windows of one run folder as they arrive and answers queries on what it has."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder.open(path)
        self._tail = SampleTail(self.folder)
        self._joined: Recording | None = None
        self._damaged: list[Note] = []
        self.key = self.folder.id
        self.spec = self.folder.spec()
        self._windows: tuple[int, ...] = ()
        self._recording: Recording | None = None
        self._tables: dict[Query, pd.DataFrame | str] = {}
        self._options = Options()
        self._stamps: tuple[Any, ...] = ()
        self._telemetry = Telemetry()
        self._unavailable: tuple[tuple[str, str, str], ...] = ()
        self._events_size = -1
        self._counted = _size(self.folder.path / protocol.COUNTED)
        self.version = 0

    def small(self) -> bool:
        """Whether reading it will not be noticed: each file has its price, however small."""
        try:
            sizes = [f.stat().st_size for f in (self.folder.path / "windows").glob("*/*.parquet")]
        except OSError:
            return True
        return sum(sizes) < SMALL_BYTES and len(sizes) < SMALL_FILES

    def placeholder(self) -> RunView:
        """What is shown while a large recording is being read."""
        return RunView(
            self.key,
            self._title(),
            self.version,
            self.folder.effective_status(),
            self._facts(),
            self._kind(),
            loading="reading the recording",
        )

    def view(
        self, queries: tuple[Query, ...], options: Options, last: RunView | None, *, fresh: bool = True
    ) -> RunView:
        """The run as it is now; ``last`` itself when nothing that is asked for has changed.

        ``fresh`` False leaves windows that arrived meanwhile for a later look: only status, telemetry and log are new.
        """
        status = self.folder.effective_status()
        windows = tuple(self.folder.window_ids()) if fresh or not self._windows else self._windows
        if fresh and (counted := _size(self.folder.path / protocol.COUNTED)) != self._counted:
            # The windows were written anew, with counters.
            self._counted, self._windows = counted, ()
        if windows != self._windows:
            self._read(windows)
        tables, problems = self._answer(queries, options)
        stamps = (
            _comparable(status),
            self.version,
            options,
            queries,
            _size(self.folder.path / protocol.LOG),
            _size(self.folder.path / SAMPLES),
        )
        if stamps == self._stamps and last is not None and last.key == self.key and not last.loading:
            return last
        self._telemetry = self._telemetry.plus(self._tail.rows())
        self._stamps = stamps
        notes = self._recording.notes if self._recording is not None else ()
        return RunView(
            key=self.key,
            title=self._title(),
            version=self.version,
            status=status,
            facts=self._facts(),
            kind=self._kind(),
            tables=tables,
            problems=problems,
            notes=notes,
            telemetry=self._telemetry,
            unavailable=self._newer_reasons(),
            log=tuple(self.folder.log_tail(LOG_LINES)),
            log_path=str(self.folder.path / protocol.LOG),
            windows=len(windows),
            attention_as_gemm=options.attention_as_gemm,
        )

    def _newer_reasons(self) -> tuple[tuple[str, str, str], ...]:
        """What telemetry could not give and why: the newest reason of each, from the log of events when that has grown."""
        size = _size(self.folder.path / EVENTS)
        if size != self._events_size:
            self._events_size = size
            found = {
                (str(event.get("device", "")), str(event.get("metric", ""))): visible(str(event.get("reason", "")))
                for event in self.folder.events()
                if event.get("kind") == "unavailable"
            }
            self._unavailable = tuple((device, metric, reason) for (device, metric), reason in found.items())
        return self._unavailable

    def _read(self, windows: tuple[int, ...]) -> None:
        """Read the windows that are new and lay them behind those held: a long run is not read again and again."""
        from profilers.runs.windows import join
        from profilers.tables import Note

        grown = bool(self._windows) and windows[: len(self._windows)] == self._windows
        if not grown:
            self._joined, self._damaged = None, []
        parts = [self._joined] if self._joined is not None else []
        for number in windows[len(self._windows) :] if grown else windows:
            try:
                parts.append(self.folder.read_window(number))
            except RunsError as problem:
                self._damaged.append(Note("window_damaged", str(problem)))
        if len(parts) > 1:
            self._joined = join(parts)
        elif parts:
            self._joined = parts[0]
        self._recording = self._joined.with_notes(*self._damaged) if self._joined is not None else None
        self._windows = windows
        self._tables.clear()
        self.version += 1

    def _answer(self, queries: tuple[Query, ...], options: Options) -> tuple[Mapping[Query, Any], Mapping[Query, str]]:
        tables: dict[Query, Any] = {}
        problems: dict[Query, str] = {}
        if options != self._options:
            self._options = options
            self._tables.clear()
        if self._recording is None:
            return tables, problems
        for query in queries:
            if query not in self._tables:
                self._tables[query] = compute(self._recording, query, options)
            answer = self._tables[query]
            if isinstance(answer, str):
                problems[query] = answer
            else:
                tables[query] = answer
        return tables, problems

    def _title(self) -> str:
        return visible(self.spec.name or self.spec.workload)

    def _kind(self) -> str:
        return {"import": "recording", "replay": "replay"}.get(self.spec.target, "run")

    def _facts(self) -> tuple[str, ...]:
        spec = self.spec
        if spec.target == "import":
            return ("recording",)
        if spec.target == "replay":
            return ("replay of a recording",)
        words = list(spec.facts())
        if spec.seq:
            words.append(f"s{spec.seq}")
        if spec.size != "full":
            words.append(spec.size)
        if spec.backend != "eager":
            words.append(spec.backend)
        if spec.quant:
            words.append(spec.quant)
        return tuple(visible(word) for word in (*words, spec.device))


def compute(recording: Recording, query: Query, options: Options) -> pd.DataFrame | str:
    """The answer to a query, or one line that says why there is none: one faulty analysis must not take the screen down."""
    try:
        drill = DRILLS.get(query.table)
        if drill is not None:
            module, _, function = drill.function.partition(":")
            frame = getattr(importlib.import_module(module), function)(recording, query.argument)
            return frame[[column.name for column in drill.columns]]
        return TABLES[query.table].compute(recording, options)
    except Exception as problem:
        return f"{query.table} could not be computed: {type(problem).__name__}: {problem}".splitlines()[0]


def _comparable(status: Status) -> Status:
    """The status without its heartbeat, which changes though nothing that is shown does."""
    return msgspec.structs.replace(status, updated=None)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
