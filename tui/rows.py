"""The list of runs, cheaply: a run whose files did not change is not read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profilers.rules.names import visible
from profilers.runs.folder import STATUS, SUMMARY, RunFolder, RunsError, list_runs
from tui.snapshot import RunRow

WATCHED = (STATUS, SUMMARY)


@dataclass
class _Held:
    stamp: tuple[int, ...]
    row: RunRow


class RowCache:
    """Rows of every run folder under ``root``: live ones first, then newest first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._held: dict[str, _Held] = {}

    def rows(self) -> tuple[RunRow, ...]:
        """The rows now. Raises OSError when the folder is there but cannot be read; a missing folder has no runs."""
        if not self.root.exists():
            return ()
        found: list[RunRow] = []
        seen = set()
        for folder in list_runs(self.root):
            seen.add(folder.id)
            stamp = tuple(_stamp(folder.path / name) for name in WATCHED)
            held = self._held.get(folder.id)
            if held is None or held.stamp != stamp or held.row.live:
                held = self._held[folder.id] = _Held(stamp, row_of(folder))
            found.append(held.row)
        for key in set(self._held) - seen:
            del self._held[key]
        return tuple(sorted(found, key=_rank))


def _rank(row: RunRow) -> tuple[int, float]:
    """Running first, then waiting, then the rest by time, newest first."""
    order = 0 if row.live and row.state != "queued" else 1 if row.live else 2
    return order, -(row.started or 0.0)


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def row_of(folder: RunFolder) -> RunRow:
    """The row of one run folder. A folder that cannot be read says so in its subtitle."""
    try:
        spec, status = folder.spec(), folder.effective_status()
    except (RunsError, OSError) as problem:
        return RunRow(folder.id, folder.id, f"unreadable: {problem}".splitlines()[0], "failed")
    summary = folder.summary()
    kind = {"import": "recording", "replay": "replay"}.get(spec.target, "run")
    total = status.windows_total or spec.windows
    progress = min(status.windows_done / total, 1.0) if status.live and total else None
    return RunRow(
        key=folder.id,
        title=visible(spec.name or spec.workload),
        subtitle=visible(subtitle(spec, status, kind)),
        state=status.state,
        kind=kind,
        live=status.live,
        device=spec.device,
        progress=progress if status.state != "queued" else None,
        gemm_pct=summary.get("gemm_pct") if summary else None,
        started=status.started or status.created,
    )


def subtitle(spec: Any, status: Any, kind: str) -> str:
    """The words under a run's title: what it is, or why it ended."""
    if status.state in ("failed", "died"):
        return status.cause or status.state
    if kind == "recording":
        return "recording"
    if status.state == "queued":
        return status.phase or f"waits for {spec.device}"
    words = [*spec.facts(), spec.device]
    if kind == "replay":
        words = ["replay"]
    if status.state == "stopped":
        words.insert(0, "stopped")
    return " · ".join(words)
