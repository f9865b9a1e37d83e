"""Which waiting runs were put before those of other launches, for every supervisor to follow.

A launch keeps its devices until its last run has ended. Between two of its runs it gives way to a run that its own user
has put first: it lets go of the device, and the other launch's supervisor takes it. The order is one list a user, not one
a device, so that two runs over several devices can never wait for each other. Runs of other users are not asked to give
way, and one of theirs that waits for the device may take it in between.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from profilers.collectors import files, protocol
from profilers.runs.folder import RunFolder, RunsError
from profilers.runs.leases import FOLDER, lease_key, shared_folder


def first_file(root: Path) -> Path:
    """Where this user's runs that go first are listed."""
    return root / FOLDER / f"first-{os.getuid()}.json"


def put_first(run: RunFolder) -> None:
    """Let a waiting run go before those of this user's other launches on its devices. Raises OSError."""
    root = run.path.parent
    shared_folder(root / FOLDER)
    others = [name for name in _listed(root) if name != run.id and _waits(RunFolder(root / name))]
    files.write_atomic(first_file(root), msgspec.json.encode([run.id, *others]))


def keys_of(run: RunFolder) -> list[str]:
    """What a run locks; [] where its spec cannot be read."""
    try:
        return [lease_key(device, uuid) for device, uuid in run.spec().devices]
    except RunsError:
        return []


class Precedence:
    """The list as a supervisor follows it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stamp = 0
        self._runs: list[tuple[RunFolder, list[str]]] = []

    def before(self, keys: Sequence[str], own: Collection[str]) -> RunFolder | None:
        """The run of another launch that goes before one that locks ``keys``; None: none waits for any of them, or one of
        our ``own`` does that was put first later."""
        self._read()
        self._runs = [(run, wanted) for run, wanted in self._runs if run.effective_status().state == "queued"]
        for run, wanted in self._runs:
            if set(wanted) & set(keys) and _waits(run):
                return None if run.id in own else run
        return None

    def _read(self) -> None:
        try:
            stamp = first_file(self._root).stat().st_mtime_ns
        except OSError:
            stamp, self._runs = 0, []
        if stamp and stamp != self._stamp:
            runs = [RunFolder(self._root / name) for name in _listed(self._root)]
            self._runs = [(run, keys_of(run)) for run in runs]
        self._stamp = stamp


def _listed(root: Path) -> list[str]:
    """Ids only: a name that is no folder of ours is not followed."""
    try:
        names = msgspec.json.decode(files.read_bytes(first_file(root)) or b"[]", type=list[str])
    except msgspec.MsgspecError:
        return []
    return [name for name in names if Path(name).name == name]


def _waits(run: RunFolder) -> bool:
    """Whether it still waits to begin. One that was paused lets others go first."""
    return run.effective_status().state == "queued" and not (run.path / protocol.PAUSE).exists()
