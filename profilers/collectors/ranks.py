"""Starting a script several times, as torchrun does on one machine: ``... -m profilers.collectors.ranks RUNFOLDER PID``.

Every rank is a worker of its own (:mod:`profilers.collectors.worker`) in ``ranks/N`` of the run folder, with the
variables that ``torch.distributed`` reads. A window of the run is made when every rank has recorded the one of its
number: ``raw/NNNN.json`` is then a folder with a trace a rank. What a rank prints is in the run's log with its number
before every line. When one rank fails the others are ended, and the run ends with the exit code of the one that failed
first. When none takes a step for long, the progress says where each of them is. Never imports torch.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from profilers.collectors import files, process, protocol, whereabouts
from profilers.collectors.protocol import Failure
from profilers.collectors.rankoutput import Output
from profilers.collectors.rankpause import CommonRest, progress_of
from profilers.collectors.spec import Spec, decode, encode

RANKS = "ranks"
GRACE_S = 4.0
"""How long the other ranks have to end by themselves once one has failed."""

SILENT_S = 60.0
"""A window that some rank has not recorded for so long after another is given up."""

STILL_S = 60.0
"""When no rank has taken a step for so long, the progress says where each is."""

_IN_VAIN = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
_POLL_S = 0.05
_LOOK_S = 1.0
_OUTPUT_S = 0.5
_ENCODER = msgspec.json.Encoder()
_FAILURE = msgspec.json.Decoder(Failure)


def rank_name(rank: int) -> str:
    """The file name of one rank's trace in a window; the readers take the rank from it."""
    return f"rank{rank}.json"


class Ranks:
    """The processes of one run, from start to end."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder = folder
        self.size = spec.ranks
        self.folders = [folder / RANKS / str(rank) for rank in range(self.size)]
        self.processes: list[subprocess.Popen[bytes]] = []
        self._spec = spec
        self._window = 0
        self._whole = 0
        self._dropped = 0
        self._lacking_since: float | None = None
        self._said = b""
        self._ended_at: dict[int, float] = {}
        self._outputs: list[Output] = []
        self._still_s = float(spec.extra.get("still_s", STILL_S))
        self._looked = 0.0
        self._steps: list[int] = []
        self.rest = CommonRest(folder, self.folders, float(spec.extra.get("beat_s", whereabouts.BEAT_S)))
        self._stepped = time.monotonic()
        self._where = ""

    def start(self) -> None:
        """Start every rank."""
        port = free_port()
        for rank, place in enumerate(self.folders):
            (place / protocol.RAW).mkdir(parents=True, exist_ok=True)
            (place / protocol.SPEC).write_bytes(encode(of_rank(self._spec, rank)))
            reading, writing = os.pipe()
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", "profilers.collectors.worker", str(place), str(os.getpid())],
                    env={**os.environ, **environment(rank, self.size, port)},
                    stdin=subprocess.DEVNULL,
                    stdout=writing,
                    stderr=writing,
                )
            )
            os.close(writing)
            self._outputs.append(Output(rank, reading))
            self._outputs[-1].start()
            threading.Thread(target=self._await, args=(rank,), name=f"rank-{rank}", daemon=True).start()

    def _await(self, rank: int) -> None:
        """Note when a rank's process ends: the main thread may look only after others have followed it."""
        self.processes[rank].wait()
        self._ended_at[rank] = time.time()

    def turn(self) -> int | None:
        """One look at everything; the run's exit code once all ranks have ended."""
        codes = [process.poll() for process in self.processes]
        self.rest.pass_on()
        self._gather()
        self._look_for_steps()
        self._tell()
        if any(codes):
            # One that has said why it failed may take longer to end than those that fail because of it.
            failed = [rank for rank, code in enumerate(codes) if code or self._gave_up(rank)]
            return self._fail(min(failed, key=self._failed_at))
        if all(code == 0 for code in codes):
            self._finish()
            return 0
        return None

    def _gave_up(self, rank: int) -> bool:
        return (self.folders[rank] / protocol.FAILURE).exists()

    def _failed_at(self, rank: int) -> tuple[bool, float]:
        """Sorts the rank that failed first before those that failed because of it: by when it said why, else by when it
        was gone. SIGKILL follows from no other rank's failure, so one that was killed comes before all."""
        ended = self._ended_at.get(rank, time.time())
        try:
            ended = min(ended, (self.folders[rank] / protocol.FAILURE).stat().st_mtime)
        except OSError:
            pass
        return self.processes[rank].poll() != -signal.SIGKILL, ended

    def _fail(self, rank: int) -> int:
        """End the other ranks: without this one they would wait for ever."""
        alive = [other for other, process in enumerate(self.processes) if process.poll() is None]
        places = {
            other: place for other in alive if other != rank and (place := whereabouts.told(self.folders[other]).place)
        }
        places |= {other: whereabouts.ENDED for other, process in enumerate(self.processes) if process.poll() == 0}
        for other in alive:
            if other != rank:
                self.processes[other].terminate()
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and any(self.processes[other].poll() is None for other in alive):
            time.sleep(_POLL_S)
        # The one that failed leaves with its own code, unless it hangs on the way out.
        code = self.processes[rank].poll()
        for other in alive:
            if self.processes[other].poll() is None:
                self.processes[other].kill()
            self.processes[other].wait()
        failure = _failure(self.folders[rank], rank, code or 1)
        if places and (whereabouts.ENDED in places.values() or _IN_VAIN.search(failure.cause)):
            # It waited in vain for another: the cause lies there.
            told = f"rank {rank} (meanwhile {whereabouts.together(places)})"
            failure = Failure(kind=failure.kind, cause=told + failure.cause.removeprefix(f"rank {rank}"))
        elif places and not self._where and not (self.folder / protocol.STOP).exists():
            self._where = f"when rank {rank} failed: {whereabouts.together(places)}"
        self._finish()
        files.write_atomic(self.folder / protocol.FAILURE, _ENCODER.encode(failure))
        return 1 if code is None else code if code > 0 else 128 - code

    # --- windows ------------------------------------------------------------------------------------------------------

    def _gather(self) -> bool:
        """Hand on the next window when every rank has it and the last one has been read. The ranks keep theirs until
        then, as a worker on its own does: that is what holds them back."""
        if protocol.raw_windows(self.folder):
            return False
        held = [dict(protocol.raw_windows(place)) for place in self.folders]
        for windows in held:
            for old in [number for number in windows if number <= self._window]:
                windows.pop(old).unlink(missing_ok=True)
        number = self._window + 1
        if not all(number in windows for windows in held):
            self._drop_what_cannot_be_whole(number, held)
            return False
        self._lacking_since = None
        aside = self.folder / protocol.RAW / f".{protocol.raw_name(number)}"
        aside.mkdir()
        for rank, windows in enumerate(held):
            os.link(windows[number], aside / rank_name(rank))
        aside.rename(self.folder / protocol.RAW / protocol.raw_name(number))
        self._window, self._whole = number, self._whole + 1
        return True

    def _drop_what_cannot_be_whole(self, number: int, held: list[dict[int, Path]]) -> None:
        """Give up a window that some ranks have and another will not record (it has ended, or has been silent for long):
        those that have it wait for it to be read."""
        if not any(windows and max(windows) >= number for windows in held):
            self._lacking_since = None
            return
        now = time.monotonic()
        self._lacking_since = self._lacking_since or now
        gone = any(
            number not in windows and process.poll() is not None
            for windows, process in zip(held, self.processes, strict=True)
        )
        if gone or now - self._lacking_since > SILENT_S:
            self._window, self._lacking_since = number, None
            self._dropped += 1

    def _finish(self) -> None:
        """The windows that all ranks still have, and the last that they printed. A process of a rank's own that lives on
        may hold its output open: that is not waited for."""
        deadline = time.monotonic() + _OUTPUT_S
        for output in self._outputs:
            output.join(max(0.0, deadline - time.monotonic()))
        while self._gather() or protocol.raw_windows(self.folder) or self._held():
            time.sleep(_POLL_S)
        self._tell(ended=True)

    def _held(self) -> bool:
        return any(number > self._window for place in self.folders for number, _ in protocol.raw_windows(place))

    # --- progress -----------------------------------------------------------------------------------------------------

    def _look_for_steps(self) -> None:
        """When no rank has taken a step for long, find out where each of them is."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        found = [whereabouts.told(place) for place in self.folders]
        steps = [rank.steps for rank in found]
        if steps != self._steps or self.rest.paused:
            self.rest.look(max(steps), now)
            self._steps, self._stepped, self._where = steps, now, ""
        elif any(steps) and min(steps) >= 0 and now - self._stepped >= self._still_s:
            ended = {rank for rank, process in enumerate(self.processes) if process.poll() is not None}
            places = {rank: whereabouts.ENDED if rank in ended else at.place for rank, at in enumerate(found)}
            self._where = f"no step for {self._still_s:g} s: {whereabouts.together(places)}"

    def _tell(self, ended: bool = False) -> None:
        """The first rank's progress as the run's, with the notes of all."""
        found = [progress_of(place) for place in self.folders]
        first = found[0]
        if first is None:
            return
        known = [progress for progress in found if progress is not None]
        first.windows_done = self._whole
        notes = list(first.notes)
        for rank, progress in enumerate(found):
            if rank and progress is not None:
                notes += [f"rank {rank}: {note}" for note in progress.notes if note not in first.notes]
        notes.append(f"{self.size} ranks; step times are of rank 0")
        if self._dropped:
            notes.append(f"{self._dropped} windows were left out: not every rank recorded them")
        if self._where:
            notes.append(self._where)
            first.phase, first.eta_s = self._where, None
        first.notes = tuple(notes)
        peaks = [progress.peak_memory_bytes for progress in known if progress.peak_memory_bytes is not None]
        first.peak_memory_bytes = max(peaks, default=None)
        if first.state == "done" and not ended:
            first.state, first.phase = "profiling", "waiting for the other ranks"
        data = _ENCODER.encode(first)
        if data != self._said:
            self._said = data
            files.write_atomic(self.folder / protocol.PROGRESS, data)


def of_rank(spec: Spec, rank: int) -> Spec:
    """What one rank's worker is asked: to run the script once, and to tell where it is."""
    return msgspec.structs.replace(spec, ranks=1, extra={**spec.extra, "rank": rank})


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank, on one machine. Like it, one thread a rank unless something else was asked for."""
    said = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "GROUP_RANK": 0,
        "ROLE_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": 1,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
    found = {name: str(value) for name, value in said.items()}
    if "OMP_NUM_THREADS" not in os.environ:
        found["OMP_NUM_THREADS"] = "1"
    return found


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _failure(place: Path, rank: int, code: int) -> Failure:
    """Why a rank ended: its own word, else its exit code or signal."""
    data = files.read_bytes(place / protocol.FAILURE)
    if data and code > 0:
        try:
            found = _FAILURE.decode(data)
            return Failure(kind=found.kind, cause=f"rank {rank}: {found.cause}")
        except msgspec.MsgspecError:
            pass
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        why = " (often the out-of-memory killer: see dmesg; or somebody's kill -9)" if code == -signal.SIGKILL else ""
        return Failure(kind="signal", cause=f"rank {rank} was killed by {name}{why}")
    return Failure(kind="exit", cause=f"rank {rank} ended with exit code {code}")


def main(arguments: list[str] | None = None) -> int:
    """Run every rank to its end. Returns the exit code: 0, or that of the rank that failed first."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 2:
        print("usage: python -m profilers.collectors.ranks RUNFOLDER SUPERVISOR-PID", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    process.die_with_parent(int(arguments[1]))
    # The ranks are of this process group and get the signal themselves; what they make of it is the run's end.
    signal.signal(signal.SIGTERM, lambda *_: None)
    ranks = Ranks(folder, decode((folder / protocol.SPEC).read_bytes()))
    shutil.rmtree(folder / RANKS, ignore_errors=True)
    ranks.start()
    while (code := ranks.turn()) is None:
        time.sleep(_POLL_S)
    return code


if __name__ == "__main__":
    sys.exit(main())
