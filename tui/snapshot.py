"""What the screen shows, as immutable values: built by the watcher's thread, drawn by the widgets, made by hand in tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tui.telemetry import Telemetry

if TYPE_CHECKING:
    import pandas as pd

    from profilers.runs.folder import Status
    from profilers.tables import Note


@dataclass(frozen=True)
class RunRow:
    """One run in the list at the left."""

    key: str
    title: str
    subtitle: str
    state: str
    kind: str = "run"  # run | recording | replay
    live: bool = False
    device: str = ""
    progress: float | None = None
    gemm_pct: float | None = None
    started: float | None = None


@dataclass(frozen=True)
class Query:
    """A table that the screen wants: a registry table by name, or a drill-down into one name of it."""

    table: str
    argument: str = ""


@dataclass(frozen=True)
class RunView:
    """Everything that is shown of the selected run. ``tables`` holds what was asked for and could be computed; ``problems``
    says in one line why a table could not be."""

    key: str
    title: str
    version: int
    status: Status
    facts: tuple[str, ...] = ()
    """mode, precision, batch, device: the words of the headline."""
    kind: str = "run"
    tables: Mapping[Query, pd.DataFrame] = field(default_factory=dict)
    problems: Mapping[Query, str] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)
    unavailable: tuple[tuple[str, str, str], ...] = ()
    """(device, metric, reason) of what telemetry could not give."""
    log: tuple[str, ...] = ()
    log_path: str = ""
    windows: int = 0
    attention_as_gemm: bool = True
    loading: str = ""
    """What is being waited for, where a wait is long enough to say so."""

    @property
    def samples(self) -> pd.DataFrame:
        """The telemetry as a table: made anew at every call, so for exports and not for painting."""
        return self.telemetry.frame()


@dataclass(frozen=True)
class Snapshot:
    """One tick of the screen."""

    runs: tuple[RunRow, ...] = ()
    view: RunView | None = None
    root: str = ""
    error: str = ""
    """Why the runs folder cannot be read."""
