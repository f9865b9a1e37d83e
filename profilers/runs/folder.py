"""The run folder: everything about one run, while it goes on and afterwards.

Several processes read a folder while its supervisor writes it. Files are replaced whole or appended to by the line;
readers skip a last line that is not complete. Tables are imported only when asked for, so listing runs stays quick.
"""

from __future__ import annotations

import difflib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import platformdirs

from profilers.collectors import files, protocol
from profilers.collectors.spec import Spec
from profilers.collectors.spec import decode as decode_spec
from profilers.collectors.spec import encode as encode_spec
from profilers.runs.status import Status, own_identity, presumed_dead

if TYPE_CHECKING:
    import pandas as pd

    from profilers.collectors.telemetry.base import Sample
    from profilers.tables import Recording

STATUS = "status.json"
EVENTS = "events.jsonl"
SAMPLES = "samples.jsonl"
SUMMARY = "summary.json"
MACHINE = "machine.json"

_STATUS = msgspec.json.Decoder(Status)
_ENCODER = msgspec.json.Encoder()
_ROW = msgspec.json.Decoder(tuple[int, str, str, float, str, str])


class RunsError(Exception):
    """Something is wrong with the runs folder or a run in it. The message is one line that says what to do."""


def runs_root() -> Path:
    """Where runs are kept: ``KERNELSCOPE_RUNS``, else the user's data directory. It need not exist yet."""
    chosen = os.environ.get("KERNELSCOPE_RUNS")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_data_dir("kernelscope")) / "runs"


def unwritable(root: Path, error: OSError) -> RunsError:
    """The one line for a runs folder that cannot be written."""
    reason = error.strerror or str(error)
    return RunsError(
        f"cannot write to the runs folder {root} ({reason}): choose another with --runs or KERNELSCOPE_RUNS"
    )


class RunFolder:
    """One run. Cheap to make: nothing is read before it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def id(self) -> str:
        """The folder's name: UTC time to the millisecond, short name, four random letters. Sorts by time."""
        return self.path.name

    @classmethod
    def create(cls, root: Path, spec: Spec) -> RunFolder:
        """Make a new run's folder, in state ``queued``. Raises :class:`RunsError` when ``root`` cannot be written."""
        try:
            written = encode_spec(spec)
        except UnicodeEncodeError:
            raise RunsError(f"{spec.workload!a}: a name that is not UTF-8 cannot be kept; rename it") from None
        try:
            root.mkdir(parents=True, exist_ok=True)
            while True:
                path = root / new_id(spec.name)
                aside = root / f".new-{path.name}"
                aside.mkdir()
                pid, start, boot = own_identity()
                now = time.time()
                (aside / protocol.SPEC).write_bytes(written)
                (aside / STATUS).write_bytes(
                    _ENCODER.encode(Status(created=now, updated=now, boot_id=boot, windows_total=spec.windows))
                )
                (aside / protocol.RAW).mkdir()
                try:
                    aside.rename(path)
                except FileExistsError:
                    shutil.rmtree(aside)
                    continue
                run = cls(path)
                run.append_event("created", pid=pid, start=start)
                return run
        except OSError as error:
            raise unwritable(root, error) from None

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run. Raises :class:`RunsError` when there is none at ``path``."""
        if not (path / protocol.SPEC).is_file():
            raise RunsError(f"{path} is not a run folder (it has no {protocol.SPEC})")
        return cls(path)

    def spec(self) -> Spec:
        """What was asked. Raises :class:`RunsError` when ``spec.json`` is damaged."""
        try:
            return decode_spec((self.path / protocol.SPEC).read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise RunsError(f"run {self.id}: {protocol.SPEC} cannot be read: {error}") from None

    # --- status -------------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """``status.json`` as written. A damaged one (a machine lost power) reads as ``died`` with that as its cause."""
        data = files.read_bytes(self.path / STATUS)
        if data:
            try:
                return _STATUS.decode(data)
            except msgspec.MsgspecError:
                pass
        return Status(state="died", cause=f"{STATUS} is missing or damaged", cause_kind="damaged")

    def write_status(self, status: Status) -> None:
        """Replace the status. Only the run's supervisor (or whoever ends a run without one) may."""
        status.updated = time.time()
        files.write_atomic(self.path / STATUS, _ENCODER.encode(status))

    def effective_status(self) -> Status:
        """The status, with a run whose processes are gone turned into ``died``, its cause and its log's last line.

        Nothing is written: another machine may see it differently.
        """
        status = self.status()
        if not status.live:
            return status
        reason = presumed_dead(status)
        if reason is None:
            return status
        last = next((line for line in reversed(self.log_tail(20)) if line.strip()), "")
        phase = f" while {status.phase or status.state}" if status.state != "queued" else ""
        status.cause = f"died{phase}: {reason}" + (f"; its log ends: {last[:200]}" if last else "")
        status.cause_kind = "supervisor"
        status.state = "died"
        status.eta_s = None
        status.ended = status.updated
        return status

    # --- events, samples, log -----------------------------------------------------------------------------------------

    def append_event(self, kind: str, **data: Any) -> None:
        """Add a line to the log of what happened: ``t`` (seconds since the epoch), ``kind`` and ``data``."""
        self._append(EVENTS, _ENCODER.encode({"t": round(time.time(), 3), "kind": kind, **data}) + b"\n")

    def events(self) -> list[dict[str, Any]]:
        """Every event, oldest first. Lines that are not whole are left out."""
        found = []
        for line in self._lines(EVENTS):
            try:
                event = msgspec.json.decode(line)
            except msgspec.MsgspecError:
                continue
            if isinstance(event, dict):
                found.append(event)
        return found

    def append_samples(self, samples: Iterable[Sample]) -> None:
        """Add a line a sample: ``[t_ns, device, metric, value, unit, source]``; unavailable values are not kept."""
        rows = [
            _ENCODER.encode((sample.t_ns, sample.device, sample.metric, sample.value, sample.unit, sample.source))
            for sample in samples
            if sample.value is not None
        ]
        if rows:
            self._append(SAMPLES, b"\n".join(rows) + b"\n")

    def samples(self) -> pd.DataFrame:
        """All telemetry (:data:`profilers.tables.SAMPLES`)."""
        return SampleTail(self).read()

    def log_tail(self, lines: int = 20) -> list[str]:
        """The last lines that the worker or the user's code printed."""
        return files.tail(self.path / protocol.LOG, lines)

    def _append(self, name: str, data: bytes) -> None:
        # One write call on a file opened for appending: lines of several writers do not mix. A line that a crash left
        # open is closed first, so that it spoils only itself.
        with (self.path / name).open("ab+", buffering=0) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    data = b"\n" + data
            file.write(data)

    def _lines(self, name: str) -> Iterator[bytes]:
        data = files.read_bytes(self.path / name) or b""
        whole, _, _ = data.rpartition(b"\n")
        return (line for line in whole.split(b"\n") if line)

    # --- machine, summary ---------------------------------------------------------------------------------------------

    def machine(self) -> dict[str, Any]:
        """``machine.json``: versions, driver, devices; {} where it was not written (yet)."""
        return self._json(MACHINE)

    def write_machine(self, machine: dict[str, Any]) -> None:
        """Keep what machine this ran on."""
        files.write_atomic(self.path / MACHINE, msgspec.json.format(_ENCODER.encode(machine), indent=2))

    def summary(self) -> dict[str, Any]:
        """The run in a few numbers, over the windows read so far, so that a list needs no Parquet; {} before the first.

        ``gemm_pct attention_pct nongemm_pct communication_pct unclassified_pct`` (of kernel time), ``kernel_time_us``,
        ``busy_us``, ``span_us``, ``busy_pct`` (of the windows' spans), ``kernels``, ``steps``, ``windows``,
        ``prepared_with`` (the version of rules and code that classified the windows).
        """
        return self._json(SUMMARY)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replace the numbers that lists show."""
        files.write_atomic(self.path / SUMMARY, _ENCODER.encode(summary))

    def _json(self, name: str) -> dict[str, Any]:
        data = files.read_bytes(self.path / name)
        if not data:
            return {}
        try:
            found = msgspec.json.decode(data)
        except msgspec.MsgspecError:
            return {}
        return found if isinstance(found, dict) else {}

    # --- windows ------------------------------------------------------------------------------------------------------

    def window_ids(self) -> list[int]:
        """Numbers of the windows that are in the folder, in order."""
        from profilers.runs import windows

        return windows.window_ids(self.path)

    def write_window(self, number: int, recording: Recording) -> None:
        """Add a window (prepared). Raises OSError; on a full disk nothing half-written stays."""
        from profilers.runs import windows

        windows.write(self.path, number, recording)

    def read_window(self, number: int) -> Recording:
        """One window. Raises :class:`RunsError` when it is damaged or not there."""
        from profilers.runs import windows

        try:
            return windows.read(self.path, number)
        except windows.WindowError as error:
            raise RunsError(str(error)) from None

    def recording(self, numbers: Sequence[int] | None = None) -> Recording:
        """The windows (all by default) as one recording: :func:`profilers.runs.windows.join` says how.

        A damaged window is left out and counted in a note. Raises :class:`RunsError` when all asked for are damaged.
        """
        from profilers.runs import windows
        from profilers.tables import Note, Origin

        wanted = self.window_ids() if numbers is None else list(numbers)
        parts, damaged = [], []
        for number in wanted:
            try:
                parts.append(windows.read(self.path, number))
            except windows.WindowError as error:
                damaged.append(str(error))
        if damaged and not parts:
            raise RunsError(damaged[0])
        joined = windows.join(parts)
        if not parts:
            joined = joined.replace(origin=Origin("run", self.id))
        return joined.with_notes(*(Note("window_damaged", text) for text in damaged))

    def delete(self) -> None:
        """Remove the run for good. Raises :class:`RunsError` while it goes on, or when it cannot be removed."""
        if self.effective_status().live:
            raise RunsError(f"run {self.id} still goes on: stop it first (kernelscope stop {self.id})")
        try:
            self.discard()
        except OSError as error:
            raise RunsError(f"cannot delete run {self.id}: {error.strerror or error}") from None

    def discard(self) -> None:
        """Remove the folder, whatever its state: it leaves every list at once, then its files go. Raises OSError."""
        gone = self.path.with_name(f".deleted-{self.path.name}")
        self.path.rename(gone)
        shutil.rmtree(gone)


class SampleTail:
    """Reads a run's telemetry as it grows: every call gives the rows since the last one."""

    def __init__(self, run: RunFolder) -> None:
        self._file = files.Growing(run.path / SAMPLES)

    def rows(self) -> list[tuple[int, str, str, float, str, str]]:
        """New rows as tuples ``t_ns device metric value unit source``; a line still being written is left for the next call."""
        rows = []
        for line in self._file.news().split(b"\n"):
            try:
                rows.append(_ROW.decode(line))
            except msgspec.MsgspecError:
                continue
        return rows

    def read(self) -> pd.DataFrame:
        """New rows as a table (:data:`profilers.tables.SAMPLES`)."""
        import pandas as pd

        from profilers.tables import SAMPLES as schema

        rows = self.rows()
        names = ["t_ns", "device", "metric", "value", "unit", "source"]
        return schema.conform(pd.DataFrame(rows, columns=names)) if rows else schema.empty()


# --- the runs folder --------------------------------------------------------------------------------------------------


def list_runs(root: Path | None = None) -> list[RunFolder]:
    """Every run in the runs folder, newest first. A folder that does not exist (yet) holds none."""
    root = runs_root() if root is None else root
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunsError(f"cannot read the runs folder {root}: {error.strerror or error}") from None
    return [RunFolder(root / name) for name in sorted(names, reverse=True) if (root / name / protocol.SPEC).exists()]


def find_run(root: Path | None, text: str) -> RunFolder:
    """The run that ``text`` names: its id, a unique beginning of it, its last four letters, a name, or ``last``.

    Raises :class:`RunsError`, with the nearest names, when it names none or several.
    """
    root = runs_root() if root is None else root
    runs = list_runs(root)
    if not runs:
        raise RunsError(f"there are no runs in {root}: start one with 'kernelscope run MODEL'")
    if text == "last":
        return runs[0]
    for run in runs:
        if run.id == text:
            return run
    for matches in (
        [run for run in runs if text and run.id.rpartition("-")[2] == text],
        [run for run in runs if text and run.id.startswith(text)],
        [run for run in runs if _name(run) == text or _slug_of(run.id) == text],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            shown = ", ".join(run.id for run in matches[:5]) + (" ..." if len(matches) > 5 else "")
            raise RunsError(f"'{text}' names {len(matches)} runs: {shown}; give the whole id or its last four letters")
    known = {run.id for run in runs} | {_slug_of(run.id) for run in runs}
    near = difflib.get_close_matches(text, sorted(known), n=3, cutoff=0.4)
    hint = f"; the nearest are {', '.join(near)}" if near else f"; the newest is {runs[0].id}"
    raise RunsError(f"no run is called '{text}'{hint}")


def _name(run: RunFolder) -> str:
    try:
        return run.spec().name
    except RunsError:
        return ""


def _slug_of(run_id: str) -> str:
    parts = run_id.split("-")
    return "-".join(parts[3:-1])


_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_last_stamp = 0.0


def new_id(name: str) -> str:
    """A new folder name. Within a process ids grow strictly, so that runs of one launch keep their order."""
    global _last_stamp
    stamp = max(time.time(), _last_stamp + 0.001)
    _last_stamp = stamp
    when = datetime.fromtimestamp(stamp, UTC)
    slug = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:24].strip("-.") or "run"
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(4))
    return f"{when:%Y%m%d-%H%M%S}-{when.microsecond // 1000:03d}-{slug}-{suffix}"
