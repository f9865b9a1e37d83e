"""Why a worker is gone: its own word if it left one, else what the operating system knows."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import msgspec

from profilers.collectors import files, protocol
from profilers.collectors.protocol import Failure

_FAILURE = msgspec.json.Decoder(Failure)

_SIGNALS = {
    signal.SIGKILL: "often the out-of-memory killer: see dmesg; or somebody's kill -9",
    signal.SIGSEGV: "a crash in native code; the end of the log shows where",
    signal.SIGBUS: "a memory access failed: a full /dev/shm, or a file cut short while in use",
    signal.SIGABRT: "native code gave up; the end of the log says why",
    signal.SIGFPE: "a crash in native code",
    signal.SIGILL: "an instruction that this processor does not have: was this torch built for it?",
    signal.SIGTERM: "somebody, or the system, asked it to end",
    signal.SIGINT: "somebody interrupted it",
    signal.SIGHUP: "its terminal hung up",
    signal.SIGXCPU: "a limit on processor time was reached",
}


_FOR_MEMORY = "the kernel's out-of-memory killer was at work; use a smaller batch or model"


@dataclass(frozen=True)
class End:
    """How a run ended: its state, what kind of cause (stable), and one line for people."""

    state: str
    kind: str = ""
    cause: str = ""


def kills_for_memory() -> int:
    """How many processes the kernel has killed for memory since boot; 0 where it does not count."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


def describe(folder: Path, code: int, memory_kills: int) -> End:
    """The end of a worker that left with ``code`` (negative: the signal that killed it).

    ``memory_kills``: what :func:`kills_for_memory` said before the worker began.
    """
    if code == 0:
        return End("finished")
    if code < 0:
        return End("died", *_by_signal(-code, kills_for_memory() - memory_kills))
    data = files.read_bytes(folder / protocol.FAILURE)
    if data:
        try:
            failure = _FAILURE.decode(data)
            if failure.kind == "signal" and "SIGKILL" in failure.cause and kills_for_memory() > memory_kills:
                # One of several ranks was killed: the others ended because of it.
                return End("failed", "memory", f"{failure.cause.partition(' (')[0]}: {_FOR_MEMORY}")
            return End("failed", failure.kind, failure.cause)
        except msgspec.MsgspecError:
            pass
    last = next((line.strip() for line in reversed(files.tail(folder / protocol.LOG, 20)) if line.strip()), "")
    said = f"; its log ends: {last[:200]}" if last else ""
    return End("failed", "exit", f"the worker ended with exit code {code}{said}")


def _by_signal(number: int, kills: int) -> tuple[str, str]:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL and kills > 0:
        return "memory", f"killed by SIGKILL: {_FOR_MEMORY}"
    why = _SIGNALS.get(number)  # type: ignore[call-overload]
    return "signal", f"killed by {name}" + (f" ({why})" if why else "")
