"""What is known of a run, and whether the processes that it names are really still there.

A process is recognised by its id **and** its start time **and** the machine's boot (with its pid namespace): an id
alone may by now belong to somebody else.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

import msgspec

LIVE = frozenset({"queued", "starting", "warming", "timing", "profiling", "reading"})
ENDED = frozenset({"finished", "failed", "died", "stopped"})

HEARTBEAT_S = 10.0
"""A supervisor rewrites the status of its runs at least this often."""

SILENT_S = 90.0
"""A run on a machine whose processes we cannot see counts as dead after this long without a heartbeat."""

NEVER_STARTED_S = 60.0
"""A queued run that no supervisor has claimed counts as dead after this long."""


_IN_WORDS = {"finished": "it has finished", "failed": "it has failed", "stopped": "it was stopped", "died": "it died"}


def in_words(state: str) -> str:
    """A run's state as the end of a sentence about the run."""
    return _IN_WORDS.get(state, f"it is {state}")


class Status(msgspec.Struct, kw_only=True):
    """``status.json``. Times of day in seconds since the epoch; step times in milliseconds.

    ``step_ms`` is the median of ``steps_timed`` unprofiled steps, ``step_ms_spread`` half their interquartile range.
    ``window_step_ms`` and ``between_step_ms`` are medians of profiled steps and of the unprofiled ones between windows.
    ``windows_done`` counts windows that are in the folder; ``windows_recorded`` those the worker has recorded.
    ``boot_id`` names the boot and the pid namespace in which the two process ids mean something.
    """

    state: str = "queued"
    phase: str = ""
    windows_done: int = 0
    windows_recorded: int = 0
    windows_total: int = 0
    eta_s: float | None = None
    step_ms: float | None = None
    step_ms_spread: float | None = None
    steps_timed: int = 0
    window_step_ms: float | None = None
    between_step_ms: float | None = None
    parameters: int | None = None
    items: int = 1
    item_name: str = "samples"
    peak_memory_bytes: int | None = None
    device_name: str = ""
    worker_pid: int | None = None
    worker_start: float | None = None
    supervisor_pid: int | None = None
    supervisor_start: float | None = None
    boot_id: str = ""
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    updated: float | None = None
    exit_code: int | None = None
    cause: str = ""
    cause_kind: str = ""
    notes: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """Whether the run is still to go on, by its own word."""
        return self.state in LIVE


def process_start(pid: int) -> float | None:
    """When a process began, in the system's own unit (clock ticks since boot on Linux); None: no such process.

    A zombie counts as gone: it will do nothing more.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _process_start_elsewhere(pid)
    # The command's name may hold spaces and brackets: fields are counted from its last closing bracket.
    fields = stat[stat.rfind(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else float(fields[19])


def _process_start_elsewhere(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


@functools.cache
def boot_id() -> str:
    """This boot of this machine, with the pid namespace that we see; '' where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def alive(pid: int | None, start: float | None) -> bool:
    """Whether that very process still runs here."""
    return pid is not None and start is not None and process_start(pid) == start


def presumed_dead(status: Status, now: float | None = None) -> str | None:
    """Why a run that claims to be live is not, or None while it may be."""
    now = time.time() if now is None else now
    if status.supervisor_pid is None:
        if now - (status.created or 0) > NEVER_STARTED_S:
            return "its supervisor never started"
        return None
    if status.boot_id == boot_id():
        if alive(status.supervisor_pid, status.supervisor_start):
            return None
        return "its supervisor is gone (killed, or the session was ended by the system)"
    # Another boot, another machine on a shared disk, or another container: only the heartbeat can tell.
    if now - (status.updated or status.created or 0) <= SILENT_S:
        return None
    same_boot = status.boot_id.split(" ")[0] == boot_id().split(" ")[0]
    if same_boot:
        return "no sign of life from the container that ran it"
    return "the machine was rebooted, or it ran on another machine that has been silent since"


def own_identity() -> tuple[int, float | None, str]:
    """This process: id, start time, boot."""
    return os.getpid(), process_start(os.getpid()), boot_id()
