"""From the keys of runs to everything that a comparison shows: computed in a thread, drawn by the Compare screen."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.analysis.options import Options
from profilers.rules.names import visible

if TYPE_CHECKING:
    import pandas as pd

VIEWS = ("kernel", "operator", "group")


@dataclass(frozen=True)
class Compared:
    """``rows`` by kernel, operator and group; ``letters`` and ``names`` in the order of the runs, the base first."""

    letters: tuple[str, ...]
    names: tuple[str, ...]
    facts: tuple[str, ...]
    summary: pd.DataFrame
    rows: Mapping[str, pd.DataFrame]
    per: str
    notes: tuple[str, ...] = ()
    sweep: pd.DataFrame | None = None
    """Where the runs differ in batch and sequence alone: one row a run, in order of size."""

    def label(self, index: int) -> str:
        """Letter, name and what kind of run it is."""
        words = [f"{self.letters[index]}  {self.names[index]}", self.facts[index]]
        return "  ".join(word for word in words if word)


def compared(root: Path, keys: Sequence[str], options: Options, say: Callable[[str], None]) -> Compared:
    """Read the runs and compare them; ``say`` is told what is being waited for. Raises the errors of reading, and
    :class:`profilers.analysis.compare.CompareError`."""
    from profilers.analysis.compare import CompareError, compare, summary_block
    from profilers.analysis.sweep import sweep
    from profilers.runs.beside import beside, names_of
    from profilers.runs.opening import open_recording
    from profilers.runs.sweeps import points_of

    opened = []
    for number, key in enumerate(keys):
        say(f"reading {string.ascii_lowercase[number]}: {key}")
        one = open_recording(key, root)
        if not len(one.recording.kernels):
            raise CompareError(f"{visible(one.title)} holds no kernel: there is nothing to compare with")
        opened.append(one)
    say("comparing")
    recordings, names = [one.recording for one in opened], names_of(opened)
    rows = {by: compare(recordings, names, options, by=by) for by in VIEWS}  # type: ignore[arg-type]
    summary = summary_block(recordings, names, options, [beside(one.run) for one in opened])
    points = points_of(opened)
    per = str(rows["kernel"].attrs["per"])
    notes = () if per == "step" else ("not every one has steps: times are of whole recordings",)
    return Compared(
        tuple(rows["kernel"].attrs["names"]),
        tuple(visible(name) for name in names),
        tuple(_facts(one.run) for one in opened),
        summary,
        rows,
        per,
        notes,
        sweep(points, options) if points else None,
    )


def _facts(run: object) -> str:
    from profilers.runs.folder import RunFolder
    from tui.rows import row_of

    return row_of(run).subtitle if isinstance(run, RunFolder) else ""
