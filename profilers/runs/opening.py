"""From what a person types to a recording ready for every table: a run, or any file that a reader can read.

A file is read once: what came of it is kept as a finished run folder (``target`` of its spec: ``import``) and found
again by the file's path, size and time of change, and by the version of the rules and of the code that prepared it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profilers.collectors import files, protocol
from profilers.collectors.spec import Spec
from profilers.runs.folder import RunFolder, RunsError, find_run, runs_root

if TYPE_CHECKING:
    from profilers.tables import Recording

Progress = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1. It may raise to give up."""

_INDEX = ".imports"
_READING = 0.75
_PREPARING = 0.9


@dataclass(frozen=True, eq=False)
class Opened:
    """A recording that can be shown. ``run`` is its folder; None where a file could not be kept."""

    recording: Recording
    title: str
    run: RunFolder | None


class _Kept(msgspec.Struct):
    """Which run folder holds what was read of a file, and of which state of the file."""

    run: str
    size: int
    changed_ns: int
    version: str


_KEPT = msgspec.json.Decoder(_Kept)


def open_recording(text: str, root: Path | None = None, progress: Progress | None = None) -> Opened:
    """The recording that ``text`` names: a run (id, beginning of it, name, ``last``), a run folder, or a file.

    Raises :class:`RunsError` when it is none of these, :class:`profilers.readers.errors.ReadError` for a file that
    cannot be read. A run that goes on is opened as far as it is.
    """
    root = runs_root() if root is None else root
    path = Path(text).expanduser()
    run = None if text == "last" and path.exists() else _exact(root, text)
    if run is None and path.exists():
        if (path / protocol.SPEC).is_file():
            run = RunFolder.open(path)
        else:
            return _open_file(path, root, progress)
    if run is None:
        try:
            run = find_run(root, text)
        except RunsError as error:
            if "/" in text or path.suffix:
                raise RunsError(f"there is no file {text}, and {error}") from None
            raise
    recording = run.recording()
    if run.summary().get("prepared_with") not in (None, version()):
        recording = _prepared(recording)
    if progress is not None:
        progress(1.0)
    return Opened(recording, run.spec().name, run)


def import_recording(path: Path | str, root: Path | None = None, progress: Progress | None = None) -> RunFolder:
    """Read a file into a finished run folder, or find the one that already holds it.

    Raises ReadError for what cannot be read, :class:`RunsError` when the runs folder cannot be written.
    """
    path = Path(path).expanduser()
    root = runs_root() if root is None else root
    held = _kept(path, root)
    if held is not None:
        return held
    recording = read_file(path, progress)
    run = _keep(path, root, recording)
    if progress is not None:
        progress(1.0)
    return run


def printable_name(path: Path) -> str:
    """The name of a file as text: bytes of it that are no UTF-8 are written out (``\\xff``), since no JSON can hold them.
    A folder named by a way (``.``, ``..``) has the name of where the way leads."""
    name = path.name if path.name not in ("", "..") else path.resolve().name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _exact(root: Path, text: str) -> RunFolder | None:
    """The run whose whole id is ``text``: it wins over a file of that name."""
    path = root / text
    return RunFolder(path) if "/" not in text and text and (path / protocol.SPEC).is_file() else None


def _open_file(path: Path, root: Path, progress: Progress | None) -> Opened:
    held = _kept(path, root)
    if held is not None:
        try:
            recording = held.recording()
        except RunsError:
            held = None
    if held is None:
        recording = read_file(path, progress)
        try:
            held = _keep(path, root, recording)
        except RunsError:
            # Nowhere to keep it: it is shown all the same, and read again the next time.
            held = None
    if progress is not None:
        progress(1.0)
    return Opened(recording, printable_name(path), held)


def read_file(path: Path, progress: Progress | None = None) -> Recording:
    """A file as a prepared recording, never kept. Raises ReadError."""
    from profilers import readers

    def part(share: float) -> None:
        if progress is not None:
            progress(share * _READING)

    recording = readers.read(path, progress=part)
    recording = _prepared(recording.replace(origin=replace(recording.origin, path=printable_name(path))))
    if progress is not None:
        progress(_PREPARING)
    return recording


def _prepared(recording: Recording) -> Recording:
    from profilers.analysis.prepare import prepare

    return prepare(recording)


# --- keeping --------------------------------------------------------------------------------------------------------


def _index(path: Path, root: Path) -> Path:
    return root / _INDEX / (hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32] + ".json")


def _kept(path: Path, root: Path) -> RunFolder | None:
    """The folder that holds this very state of the file. One made by other rules or other code is removed."""
    index = _index(path, root)
    data = files.read_bytes(index)
    if data is None:
        return None
    try:
        kept = _KEPT.decode(data)
        stat = path.stat()
    except (OSError, msgspec.MsgspecError):
        return None
    run = root / kept.run
    if not (run / protocol.SPEC).is_file() or (kept.size, kept.changed_ns) != _state(path, stat):
        return None
    if kept.version != version():
        try:
            RunFolder(run).delete()
            index.unlink(missing_ok=True)
        except (OSError, RunsError):
            pass
        return None
    return RunFolder(run)


def _state(path: Path, stat: os.stat_result) -> tuple[int, int]:
    """Size and time of change; of a folder of recordings, over the files in it."""
    if not path.is_dir():
        return stat.st_size, stat.st_mtime_ns
    inside = [entry.stat() for entry in sorted(path.iterdir()) if entry.is_file()]
    return sum(entry.st_size for entry in inside), max((entry.st_mtime_ns for entry in inside), default=0)


def _keep(path: Path, root: Path, recording: Recording) -> RunFolder:
    from profilers.runs.reading import Totals

    stat = path.stat()
    devices = sorted({str(name) for name in recording.kernels["device"].unique()})
    spec = Spec(
        name=printable_name(path),
        workload=printable_name(path),
        target="import",
        device=", ".join(devices) or "cpu",
        windows=1,
        timed_steps=0,
        warmup=0,
    )
    run = RunFolder.create(root, spec)
    try:
        run.write_window(1, recording)
        totals = Totals()
        totals.add(recording)
        run.write_summary({**totals.numbers(), "prepared_with": version()})
        status = run.status()
        status.state, status.windows_done, status.windows_recorded = "finished", 1, 1
        status.started = status.ended = time.time()
        status.device_name = ", ".join(dict.fromkeys(device.name for device in recording.devices if device.name))
        run.write_status(status)
        size, changed = _state(path, stat)
        index = _index(path, root)
        index.parent.mkdir(exist_ok=True)
        files.write_atomic(index, msgspec.json.encode(_Kept(run.id, size, changed, version())))
    except OSError as error:
        run.discard()
        raise RunsError(f"cannot keep {path.name} in {root}: {error.strerror or error}") from None
    return run


def version() -> str:
    """What prepared windows depend on: the rules in force (the user's too) and the code that reads and classifies."""
    import profilers.analysis
    import profilers.readers
    import profilers.rules
    from profilers.rules.load import user_rules

    parts = [_package_version()]
    for package in (profilers.readers, profilers.rules, profilers.analysis):
        folder = Path(package.__path__[0])
        for path in sorted([*folder.glob("*.py"), *folder.glob("*.toml")]):
            stat = path.stat()
            parts.append(f"{path.name} {stat.st_size} {stat.st_mtime_ns}")
    own = user_rules()
    for path in (own, own.with_name("peaks.toml")):
        if path.is_file():
            parts.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _package_version() -> str:
    try:
        return metadata.version("kernelscope")
    except metadata.PackageNotFoundError:
        return ""
