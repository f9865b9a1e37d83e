"""Starting runs that outlive whoever starts them, and stopping them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from profilers.collectors import files, protocol
from profilers.collectors.telemetry.devices import visible
from profilers.collectors.telemetry.nvml import Nvml
from profilers.runs.folder import RunFolder, RunsError, new_id, runs_root, unwritable
from profilers.runs.jobs import launch_file, order_file
from profilers.runs.leases import holders, user_name
from profilers.runs.precedence import keys_of, put_first
from profilers.runs.spec import Spec
from profilers.runs.status import Status, alive, boot_id, in_words, presumed_dead

_START_S = 30.0


def launch(specs: Sequence[Spec], root: Path | None = None) -> list[RunFolder]:
    """Queue these runs and start one supervisor for them; returns at once, with a folder a spec, in order.

    The supervisor has a session of its own and no terminal: closing this one does not stop it. Raises
    :class:`RunsError` when the runs folder cannot be written or the supervisor does not start.
    """
    root = runs_root() if root is None else root
    root = root.absolute()
    if not specs:
        return []
    runs: list[RunFolder] = []
    cwd = str(Path.cwd())
    name = new_id("launch")
    for spec in with_uuids(specs):
        runs.append(RunFolder.create(root, msgspec.structs.replace(spec, cwd=spec.cwd or cwd, launch=name)))
    path = launch_file(root, name)
    log = path.with_suffix(".log")
    try:
        path.parent.mkdir(exist_ok=True)
        files.write_atomic(path, msgspec.json.encode([run.id for run in runs]))
        with log.open("ab") as errors:
            started = subprocess.run(
                [sys.executable, "-P", "-m", "profilers.runs.supervisor", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                timeout=_START_S,
                check=False,
            )
    except OSError as error:
        raise unwritable(root, error) from None
    except subprocess.TimeoutExpired:
        raise _not_started(runs, f"it did not start within {_START_S:.0f} s") from None
    if started.returncode != 0:
        last = next((line for line in reversed(files.tail(log, 20)) if line.strip()), f"exit code {started.returncode}")
        raise _not_started(runs, last)
    return runs


def with_uuids(specs: Sequence[Spec]) -> list[Spec]:
    """The specs with each GPU's UUID filled in. Raises :class:`RunsError` for a GPU that is not there.

    Where NVML does not answer, specs stay as they are and CUDA itself decides in the worker.
    """
    if all(spec.device_uuid or not spec.device.startswith("cuda") for spec in specs):
        return list(specs)
    nvml = Nvml()
    known = {name: gpu.uuid for name, gpu in visible(nvml.gpus)}
    nvml.close()
    if nvml.reason and not nvml.gpus:
        return list(specs)
    found = []
    for spec in specs:
        if spec.device.startswith("cuda") and not spec.device_uuid:
            device = spec.device if ":" in spec.device else "cuda:0"
            if device not in known:
                here = ", ".join(known) or "none is visible to this process"
                raise RunsError(f"there is no device {device} (GPUs here: {here})")
            spec = msgspec.structs.replace(spec, device=device, device_uuid=known[device])
        found.append(spec)
    return found


def _not_started(runs: list[RunFolder], why: str) -> RunsError:
    now = time.time()
    for run in runs:
        cause = f"the supervisor could not be started: {why}"
        run.write_status(Status(state="failed", cause=cause, cause_kind="start", created=now, ended=now))
    return RunsError(f"the supervisor could not be started: {why}")


def stop(run: RunFolder, wait_s: float = 0.0) -> Status:
    """Ask a run to stop: a queued one leaves the queue, a live one's worker is ended; its windows stay.

    Returns the status as it is after at most ``wait_s`` seconds (10 are ample). A run whose supervisor is gone is
    stopped here. Raises :class:`RunsError` when the run has ended already.
    """
    status = run.effective_status()
    if not status.live:
        raw = run.status()
        if raw.live and _end_orphan(run, raw):
            return run.status()
        raise RunsError(f"run {run.id} has already ended ({status.state})")
    try:
        (run.path / protocol.STOP).touch()
    except OSError as error:
        raise RunsError(f"cannot stop run {run.id}: {error.strerror or error}") from None
    deadline = time.monotonic() + wait_s
    while (status := run.effective_status()).live and time.monotonic() < deadline:
        time.sleep(0.05)
    return status


def pause(run: RunFolder) -> None:
    """Let a run rest: a queued one is passed over, a live one's worker waits between two steps (never inside a window).

    Its device stays reserved and its memory stays taken. Raises :class:`RunsError` when the run has ended already.
    """
    status = run.effective_status()
    if not status.live:
        raise RunsError(f"run {run.id} has already ended ({status.state})")
    try:
        (run.path / protocol.PAUSE).touch()
    except OSError as error:
        raise RunsError(f"cannot pause run {run.id}: {error.strerror or error}") from None


def is_paused(run: RunFolder) -> bool:
    """Whether somebody asked for this run to rest (it may still be on its way to the next step)."""
    return (run.path / protocol.PAUSE).exists()


def resume(run: RunFolder) -> bool:
    """Let a paused run go on; says whether it was paused. Raises :class:`RunsError` when the run has ended already."""
    status = run.effective_status()
    if not status.live:
        raise RunsError(f"run {run.id} has already ended ({status.state})")
    paused = is_paused(run)
    try:
        (run.path / protocol.PAUSE).unlink(missing_ok=True)
    except OSError as error:
        raise RunsError(f"cannot resume run {run.id}: {error.strerror or error}") from None
    return paused


def queue(root: Path, launch: str) -> list[RunFolder]:
    """The runs of a launch that have not begun, in the order in which they will."""
    names = _names(launch_file(root, launch))
    place = {name: number for number, name in enumerate(_names(order_file(root, launch)))}
    waiting = []
    for name in sorted(names, key=lambda name: place.get(name, len(names))):
        run = RunFolder(root / name)
        if run.effective_status().state == "queued":
            waiting.append(run)
    return waiting


def first_in_queue(run: RunFolder) -> str:
    """Put a queued run before all others of this user on its devices, of its own launch and of others: they give way as
    soon as what goes on there has ended. Returns what that means, in words that follow the run's name.

    Raises :class:`RunsError` when it is not queued.
    """
    spec, state, root = run.spec(), run.effective_status().state, run.path.parent
    if state != "queued":
        raise RunsError(f"run {run.id} does not wait in a queue: {in_words(state)}")
    reorder(root, spec.launch, [run, *(other for other in queue(root, spec.launch) if other != run)])
    try:
        put_first(run)
    except OSError as error:
        raise unwritable(root, error) from None
    devices = ", ".join(device for device, _ in spec.devices)
    others = [
        holder
        for key, holder in holders(root).items()
        if key in keys_of(run) and f" of {user_name()} (" not in holder and holder != "another run"
    ]
    if is_paused(run):
        return f"is next on {devices} once it is resumed"
    if others:
        return f"is next of yours on {devices}; others' runs do not give way: {', '.join(others)} has it"
    return f"is next on {devices}"


def reorder(root: Path, launch: str, runs: Sequence[RunFolder]) -> None:
    """Give a launch's queue a new order; runs that are not named stay behind those. Its supervisor follows within a second.

    Raises :class:`RunsError` when the launch has ended, or the order cannot be written.
    """
    if not launch or not launch_file(root, launch).exists():
        raise RunsError("these runs have no queue: their launch has ended")
    try:
        files.write_atomic(order_file(root, launch), msgspec.json.encode([run.id for run in runs]))
    except OSError as error:
        raise unwritable(root, error) from None


def _names(path: Path) -> list[str]:
    data = files.read_bytes(path)
    try:
        return msgspec.json.decode(data, type=list[str]) if data else []
    except msgspec.MsgspecError:
        return []


def _end_orphan(run: RunFolder, status: Status) -> bool:
    """End a worker that lost its supervisor (it should have gone with it). True when there was one."""
    if status.boot_id != boot_id() or not alive(status.worker_pid, status.worker_start):
        return False
    assert status.worker_pid is not None
    os.killpg(status.worker_pid, signal.SIGKILL)
    status.state, status.cause, status.cause_kind = "stopped", "stopped; " + (presumed_dead(status) or ""), "stopped"
    status.ended, status.eta_s, status.phase = time.time(), None, ""
    run.write_status(status)
    return True
