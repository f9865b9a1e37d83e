"""One run under its supervisor: starting the worker, following it, stopping it, and saying how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from profilers.collectors import files, protocol
from profilers.collectors.protocol import Progress
from profilers.collectors.telemetry import machine
from profilers.runs import deaths
from profilers.runs.counting import Counting
from profilers.runs.deaths import End
from profilers.runs.folder import RunFolder
from profilers.runs.leases import lease_key
from profilers.runs.reading import OwnWindows, WindowReader, remove
from profilers.runs.status import HEARTBEAT_S, own_identity, process_start

GRACE_S = 5.0
"""How long a worker has between SIGTERM and SIGKILL."""

WORKER = "profilers.collectors.worker"
WORKERS = {"replay": "profilers.runs.replay"}
"""Which module runs a target; anything else is measured."""

RANKS = "profilers.collectors.ranks"
"""Which module starts a script several times."""

_PROGRESS = msgspec.json.Decoder(Progress)
_COPIED = tuple(name for name in Progress.__struct_fields__ if name not in ("state", "phase", "windows_done", "notes"))


class Job:
    """A run of this supervisor. :meth:`poll` is called a few times a second and never waits."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.spec = run.spec()
        self.keys = [lease_key(device, uuid) for device, uuid in self.spec.devices]
        self.key = self.keys[0]
        self.status = run.status()
        self.process: subprocess.Popen[bytes] | None = None
        self.reader: WindowReader | OwnWindows | None = None
        self.ended = False
        self.lost = ""
        """Why the driver says that the run's GPU is gone; '' while it is there."""
        self._seen = 0
        self._written = b""
        self._written_at = 0.0
        self._kill_at: float | None = None
        self._end: End | None = None
        self._wanted_end: End | None = None
        self._memory_kills = 0
        self._counting: Counting | None = None

    # --- beginning ----------------------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Say that this process looks after the run from now on."""
        pid, start, boot = own_identity()
        self.status.supervisor_pid, self.status.supervisor_start, self.status.boot_id = pid, start, boot
        self.status.windows_total = self.spec.windows
        self.save(force=True)

    def wait_for(self, phase: str) -> None:
        """Stay queued, saying on what."""
        self.status.phase = phase

    def start(self) -> None:
        """Start the worker. What goes wrong here ends the run as failed."""
        run, status = self.run, self.status
        status.state, status.phase, status.started = "starting", "starting the worker", time.time()
        self._memory_kills = deaths.kills_for_memory()
        try:
            with (run.path / protocol.LOG).open("ab") as log:
                self.process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        RANKS if self.spec.ranks > 1 else WORKERS.get(self.spec.target, WORKER),
                        str(run.path),
                        str(os.getpid()),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.spec.cwd or None,
                    env=worker_environment(
                        os.environ, self.spec.device, ",".join(uuid for _, uuid in self.spec.devices)
                    ),
                    start_new_session=True,
                )
        except OSError as error:
            self.finish(
                End("failed", "start", f"the worker could not be started: {error.strerror or error} ({error.filename})")
            )
            return
        status.worker_pid, status.worker_start = self.process.pid, process_start(self.process.pid)
        self.reader = OwnWindows(run) if self.spec.target in WORKERS else WindowReader(run, self.spec)
        self.reader.start()
        # The driver may take seconds to answer: not in the way of the queue.
        threading.Thread(target=self._describe_machine, name="machine", daemon=True).start()
        self.event("started", worker_pid=self.process.pid)
        self.save(force=True)

    def _describe_machine(self) -> None:
        try:
            self.run.write_machine(machine.describe())
        except OSError as error:
            complain(self.run.id, error)

    # --- going on -----------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take over what the worker says, see whether it is still there, and end the run when all is read."""
        if self.ended:
            return
        if self.process is None:
            if self.stop_asked():
                self.finish(End("stopped", "stopped", "stopped before it began"))
            else:
                self.save()
            return
        self._take_progress()
        assert self.reader is not None
        code = self.process.poll()
        if self._end is None:
            if code is None:
                self._see_to_stopping()
            else:
                self._left(code)
        elif not self.reader.is_alive() and self._counted(self._end):
            self.finish(self._conclusion(self._end))
            return
        self.save()

    def _counted(self, end: End) -> bool:
        """The second pass, where one was asked for and the first went well: begun, followed, and True once over."""
        if not self.spec.counters or end.state != "finished":
            return True
        if self._counting is None:
            environment = worker_environment(os.environ, self.spec.device, self.spec.device_uuid)
            self._counting = Counting(self.run, self.spec, environment)
            self._counting.start()
        counting = self._counting
        if not counting.is_alive():
            self.status.notes = (*self.status.notes, *counting.notes)
            return True
        self.status.state, self.status.phase, self.status.eta_s = "profiling", counting.phase, counting.eta_s
        wanted = End("stopped", "stopped", "stopped by request") if self.stop_asked() else self._wanted_end
        if wanted is not None:
            self._end = wanted
            counting.stop()
            counting.join(GRACE_S)
            return True
        return False

    def stop_asked(self) -> bool:
        """Whether somebody asked for this run to end."""
        return (self.run.path / protocol.STOP).exists()

    @property
    def paused(self) -> bool:
        """Whether somebody asked for this run to rest: a queued one then lets others go first."""
        return (self.run.path / protocol.PAUSE).exists()

    def end_with(self, end: End) -> None:
        """Stop the worker; the run then ends as ``end`` says."""
        if self._counting is not None:
            self._wanted_end = self._wanted_end or end
        elif self._wanted_end is None and self._end is None:
            self._wanted_end = end
            self.status.phase = "stopping"
            self._signal(signal.SIGTERM)
            self._kill_at = time.monotonic() + GRACE_S

    def _see_to_stopping(self) -> None:
        assert self.reader is not None
        if self.reader.fatal:
            self.end_with(End("failed", "disk", self.reader.fatal))
        elif self.stop_asked():
            self.end_with(End("stopped", "stopped", "stopped by request"))
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal(signal.SIGKILL)
            self._kill_at = time.monotonic() + GRACE_S

    def _left(self, code: int) -> None:
        """The worker is gone and has been waited for: no zombie is left, and children of its own go with it."""
        assert self.reader is not None
        self._signal(signal.SIGKILL)
        self.status.exit_code = code
        self._end = self._wanted_end or deaths.describe(self.run.path, code, self._memory_kills)
        if self.lost and self._end.state in ("failed", "died"):
            self._end = End(self._end.state, "lost", f"{self.lost}; the worker: {self._end.cause}")
        self.event("worker_left", exit_code=code, cause=self._end.cause)
        for half in (self.run.path / protocol.RAW).glob(".*"):
            remove(half)
        self.status.state, self.status.phase, self.status.eta_s = "reading", "reading the last windows", None
        self.reader.finish()

    def _conclusion(self, end: End) -> End:
        assert self.reader is not None
        if end.state != "finished":
            return end
        if self.reader.fatal:
            return End("failed", "disk", self.reader.fatal)
        if self.reader.failed and not self.reader.done:
            return End("failed", "windows", self.reader.failed[0])
        return end

    def finish(self, end: End) -> None:
        """Write the last word."""
        status = self.status
        status.state, status.cause, status.cause_kind = end.state, end.cause, end.kind
        status.phase, status.eta_s, status.ended = "", None, time.time()
        self._take_windows()
        self.ended = True
        self.event("ended", state=end.state, cause=end.cause)
        self.save(force=True)

    def _signal(self, number: int) -> None:
        """Signal the worker's whole process group (it leads one): data loaders and compilers belong to it."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    # --- telling ------------------------------------------------------------------------------------------------------

    def _take_progress(self) -> None:
        path = self.run.path / protocol.PROGRESS
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            stamp = self._seen
        data = files.read_bytes(path) if stamp != self._seen else None
        if data:
            try:
                progress = _PROGRESS.decode(data)
            except msgspec.MsgspecError:
                progress = None
            if progress is not None:
                self._seen = stamp
                self._take(progress)
        self._take_windows()

    def _take(self, progress: Progress) -> None:
        status = self.status
        for name in _COPIED:
            setattr(status, name, getattr(progress, name))
        status.windows_recorded = progress.windows_done
        status.notes = progress.notes
        if self._end is None and self._wanted_end is None:
            done = progress.state == "done"
            before, status.state = status.state, "reading" if done else progress.state
            if status.state != before:
                self.event("state", state=status.state)
            status.phase = "reading the last windows" if done else progress.phase

    def _take_windows(self) -> None:
        if self.reader is not None:
            self.status.windows_done = self.reader.done
            fresh = [text for text in self.reader.failed if text not in self.status.notes]
            self.status.notes = (*self.status.notes, *fresh)

    def save(self, force: bool = False) -> None:
        """Write the status if it changed, or as a heartbeat. A full disk is tried again at the next turn."""
        status = self.status
        status.updated = None
        now = msgspec.json.encode(status)
        late = time.monotonic() - self._written_at >= HEARTBEAT_S
        if not (force or late or now != self._written):
            return
        try:
            self.run.write_status(status)
            self._written, self._written_at = now, time.monotonic()
        except OSError as error:
            complain(self.run.id, error)

    def event(self, kind: str, **data: object) -> None:
        """Note what happened; not being able to is no reason to fail."""
        try:
            self.run.append_event(kind, **data)
        except OSError as error:
            complain(self.run.id, error)


def worker_environment(environment: Mapping[str, str], device: str, uuid: str) -> dict[str, str]:
    """The worker's environment: it sees its own GPU and no other, by UUID, so that renumbering cannot mislead it.

    Without a UUID (no NVML) the visible list that we were given is cut down to the one entry.
    """
    result = dict(environment)
    kind, _, index = device.partition(":")
    if kind in ("cpu", "meta"):
        result["CUDA_VISIBLE_DEVICES"] = ""
    elif uuid:
        result["CUDA_VISIBLE_DEVICES"] = uuid
    elif index.isdigit():
        given = [part.strip() for part in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
        number = int(index)
        result["CUDA_VISIBLE_DEVICES"] = given[number] if number < len(given) else index
    # Numbers then mean the same to CUDA as to NVML.
    result.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    return result


def complain(run_id: str, error: BaseException) -> None:
    """A line in the supervisor's own log."""
    print(f"{time.strftime('%H:%M:%S')} {run_id}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def order_file(root: Path, launch: str) -> Path:
    """Where a new order of a launch's queue is written; its supervisor follows it."""
    return root / ".launches" / f"{launch}.order"


def launch_file(root: Path, launch: str) -> Path:
    """Where a launch's list of runs lies while its supervisor needs it."""
    return root / ".launches" / f"{launch}.json"
