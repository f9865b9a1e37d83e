"""From a worker's raw traces to windows in the run folder, outside the worker, in a thread of the supervisor."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from profilers.collectors import files, protocol
from profilers.collectors.files import NO_SPACE
from profilers.collectors.spec import Spec
from profilers.collectors.telemetry.cpu import cpu_name
from profilers.runs.folder import RunFolder

if TYPE_CHECKING:
    from profilers.tables import Recording

TRACES = "traces"
"""Where raw traces go that are kept (``keep_traces``), and those that could not be read."""

NICE = 5
_POLL_S = 0.05
_ROOM_BYTES = 16 * 1024 * 1024

SHARES = ("gemm", "attention", "nongemm", "communication", "unclassified")


class WindowReader(threading.Thread):
    """Reads windows as they appear. ``finish()`` asks it to end once no raw trace is left."""

    def __init__(
        self, run: RunFolder, spec: Spec, read: Callable[[Path, RunFolder, Spec], Recording] | None = None
    ) -> None:
        super().__init__(name=f"reader-{run.id}", daemon=True)
        self.run_folder = run
        self.spec = spec
        self.done = 0
        self.failed: list[str] = []
        self.fatal = ""
        self._read = read or read_raw
        self._last = threading.Event()
        self._abandon = threading.Event()
        self._totals = Totals()
        self._version = ""
        self._loaded: tuple[object, ...] = ()

    def finish(self) -> None:
        """The worker is gone: what lies there is all there will be."""
        self._last.set()

    def abandon(self) -> None:
        """End after the window being read, whatever lies there."""
        self._abandon.set()

    def run(self) -> None:
        _be_nice()
        try:
            self._prepare()
            self._loop()
        except Exception as error:
            # The worker waits for its windows to be read: it must not wait for a reader that is gone.
            traceback.print_exception(error, file=sys.stderr)
            self.fatal = f"windows can no longer be kept: {' '.join(str(error).split())[:200]}"

    def _prepare(self) -> None:
        """Load what the first window will need, while the worker is still building its model."""
        from profilers.analysis import prepare, summary
        from profilers.readers import kineto
        from profilers.rules.load import load_rules
        from profilers.runs import windows
        from profilers.runs.opening import version

        load_rules()
        self._loaded = (prepare, summary, kineto, windows)
        self._version = version()

    def _loop(self) -> None:
        while not self._abandon.is_set() and not self.fatal:
            # The flag is read first: a trace that appears between the two is seen in the next turn.
            last = self._last.is_set()
            found = protocol.raw_windows(self.run_folder.path)
            if found:
                self._one(*found[0])
            elif last:
                return
            else:
                time.sleep(_POLL_S)

    def _one(self, number: int, raw: Path) -> None:
        began = time.perf_counter()
        try:
            recording = self._read(raw, self.run_folder, self.spec)
            self.run_folder.write_window(number, recording)
            self._totals.add(recording)
            self.run_folder.write_summary({**self._totals.numbers(), "prepared_with": self._version})
        except Exception as error:
            self._problem(number, raw, error)
            return
        self.done += 1
        seconds, size = round(time.perf_counter() - began, 3), raw.stat().st_size
        self._event("window", number=number, seconds=seconds, bytes=size, kernels=len(recording.kernels))
        self._put_away(raw, keep=self.spec.keep_traces)

    def _problem(self, number: int, raw: Path, error: Exception) -> None:
        full = isinstance(error, OSError) and error.errno in NO_SPACE
        room = shutil.disk_usage(self.run_folder.path).free
        if full or room < _ROOM_BYTES:
            self.fatal = f"the disk is full: {room / 1e6:,.0f} MB are left in {self.run_folder.path.parent}"
            remove(raw)
            return
        if isinstance(error, OSError):
            # Not this window's fault: the next would fare no better.
            raise error
        from profilers.readers.errors import ReadError

        line = " ".join(str(error).split())[:300] or type(error).__name__
        if not isinstance(error, ReadError):
            traceback.print_exception(error, file=sys.stderr)
            line = f"{type(error).__name__}: {line}"
        self.failed.append(f"window {number} could not be read: {line}")
        self._event("window_failed", number=number, cause=line)
        self._put_away(raw, keep=True)

    def _event(self, kind: str, **data: object) -> None:
        try:
            self.run_folder.append_event(kind, **data)
        except OSError as error:
            print(f"{self.run_folder.id}: {error}", file=sys.stderr, flush=True)

    def _put_away(self, raw: Path, keep: bool) -> None:
        if not keep:
            remove(raw)
            return
        folder = self.run_folder.path / TRACES
        folder.mkdir(exist_ok=True)
        raw.replace(folder / raw.name)


def remove(raw: Path) -> None:
    """Remove a raw window: a trace, or a folder with one a rank."""
    if raw.is_dir():
        shutil.rmtree(raw, ignore_errors=True)
    else:
        raw.unlink(missing_ok=True)


class OwnWindows:
    """Stands in for the reader where the worker adds its windows itself: it only counts them."""

    fatal = ""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self.failed: list[str] = []

    @property
    def done(self) -> int:
        return len(self._run.window_ids())

    def start(self) -> None:
        """Nothing runs beside the worker."""

    def finish(self) -> None:
        """What is in the folder is all there will be."""

    def is_alive(self) -> bool:
        return False


def read_raw(path: Path, run: RunFolder, spec: Spec) -> Recording:
    """A raw trace as a prepared recording of ``run``, its device under the name that the run was asked for."""
    from dataclasses import replace

    from profilers.analysis.computed import META, computed
    from profilers.analysis.fusion import FUSION
    from profilers.analysis.prepare import prepare
    from profilers.collectors.backends.names import own_profile
    from profilers.readers import kineto, ort, trt
    from profilers.tables import Device

    if path.is_dir():
        from profilers.readers import ranks

        return ranks.merge([(part, read_raw(part, run, spec)) for part in sorted(path.iterdir())], run.id)
    reader = {"onnxruntime": ort.read, "tensorrt": trt.read}.get(own_profile(spec.backend, spec.device), kineto.read)
    recording = reader(path)
    origin = replace(recording.origin, kind="run", path=run.id)
    if fused := files.read_bytes(run.path / protocol.FUSION):
        origin = replace(origin, extra={**origin.extra, FUSION: fused.decode("utf-8", "replace")})
    if spec.device == META:
        return computed(recording.replace(origin=replace(origin, extra={**origin.extra, **_estimated(run)})))
    recording = on_device(recording.replace(origin=origin), *(device for device, _ in spec.devices))
    if spec.device == "cpu" and not any(device.name for device in recording.devices):
        recording = recording.replace(devices=(Device("cpu", cpu_name(), "cpu"),))
    return prepare(recording)


def _estimated(run: RunFolder) -> dict[str, str]:
    """What the worker found out besides the operators, for ``Origin.extra``: bytes at the worst moment of a step."""
    from profilers.analysis.bound import MEMORY

    try:
        progress = msgspec.json.decode(files.read_bytes(run.path / protocol.PROGRESS) or b"", type=protocol.Progress)
    except msgspec.MsgspecError:
        return {}
    return {MEMORY: str(progress.peak_memory_bytes)} if progress.peak_memory_bytes else {}


def on_device(recording: Recording, *devices: str) -> Recording:
    """The recording with its GPUs under the names of ``devices``: a worker is shown those alone, as numbers 0, 1 ..."""
    names = {f"cuda:{number}": name for number, name in enumerate(devices) if name.startswith("cuda:")}
    if all(old == new for old, new in names.items()):
        return recording
    import dataclasses

    column = recording.kernels["device"]
    held = [str(category) for category in column.cat.categories]
    kernels = recording.kernels.assign(device=column.cat.rename_categories([names.get(name, name) for name in held]))
    known = tuple(dataclasses.replace(device, id=names.get(device.id, device.id)) for device in recording.devices)
    return recording.replace(kernels=kernels, devices=known)


class Totals:
    """The summary table of every window so far, added up over windows and devices."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._windows = 0

    def add(self, recording: Recording) -> None:
        """Count one more window."""
        from profilers.analysis.registry import TABLES

        table = TABLES["summary"].compute(recording)
        self._windows += 1
        for row in table.to_dict("records"):
            weight = float(row["kernel_time_us"])
            for share in SHARES:
                self._add(f"{share}_us", weight * float(row[f"{share}_pct"]) / 100)
            for name in ("kernel_time_us", "busy_us", "span_us", "kernels"):
                self._add(name, float(row[name]))
        self._add("steps", float(len(recording.steps)))

    def _add(self, name: str, value: float) -> None:
        if value == value:
            self._sums[name] = self._sums.get(name, 0.0) + value

    def numbers(self) -> dict[str, Any]:
        """What :meth:`RunFolder.summary` gives back."""
        sums = self._sums
        total, span = sums.get("kernel_time_us", 0.0), sums.get("span_us", 0.0)
        shares = {f"{share}_pct": 100 * sums.get(f"{share}_us", 0.0) / total if total else None for share in SHARES}
        return {
            "windows": self._windows,
            "steps": int(sums.get("steps", 0)),
            "kernels": int(sums.get("kernels", 0)),
            **shares,
            "kernel_time_us": total,
            "busy_us": sums.get("busy_us", 0.0),
            "span_us": span,
            "busy_pct": 100 * sums.get("busy_us", 0.0) / span if span else None,
        }


def _be_nice() -> None:
    """Lower the priority of this thread alone (Linux counts it by thread), so that workers keep theirs."""
    if sys.platform == "linux":
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        except OSError:
            pass
