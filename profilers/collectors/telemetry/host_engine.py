"""Profiling fields from DCGM's host engine (``nv-hostengine``), by one long-lived ``dcgmi dmon`` whose rows are read.

Why a child, when DCGM has Python bindings and a C library: the bindings lie in a folder of the DCGM package, which
would have to be put on our path and run in the supervisor; ``libdcgm`` by ctypes means structures that change with every
version, where a mistake or a crash takes the supervisor along. A child's crash stays in the child, and its rows have kept
their form since DCGM 2. Long-lived, because every new ``dcgmi`` takes a third of a second and a new watch.

The child dies with us, even when we are killed: the kernel sees to it. The host engine then drops the watch, as it does
for every connection that goes away, and with it the lock on the counters.

Never run on hardware: tested against a stand-in that prints what DCGM's source says.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from profilers.collectors.process import tied
from profilers.collectors.telemetry import dcgmi
from profilers.collectors.telemetry.base import now_ns

PROGRAM = "dcgmi"
INTERVAL_S = 1.0
ASK_S = 10.0
"""How long ``discovery`` and ``profile`` may take."""

SILENT_S = 30.0
"""A ``dmon`` that says nothing for this long is ended; it counts as failed."""

STALE_S = 5.0
"""A row older than this is no value of now."""

RETRIES_S = (2.0, 10.0, 60.0)
"""How long to wait after each failure in a row; after as many again it is given up until other GPUs are wanted."""

HEALTHY_S = 600.0
"""After this long with rows, a failure is the first again."""

STARTING = "no value yet: dcgmi is starting"
NO_INSTANCES = "DCGM has MIG instances under numbers of its own, and a GPU's values are not theirs: not shown"
_LONGEST_LINE = 4096
_MOST_TEXT = 200_000


@dataclass(frozen=True)
class Reading:
    """A GPU's row: nanoseconds since the epoch when it came, and a value or a reason by field."""

    t_ns: int
    values: dict[int, dcgmi.Value]


class HostEngine:
    """The newest row of each wanted GPU. Nothing here waits for ``dcgmi``: a thread of its own does.

    GPUs of one model only: DCGM watches no group of several.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval = interval_s
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="dcgmi", daemon=True)
        self._wanted: frozenset[str] = frozenset()
        self._order = 0
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._why = STARTING
        self._ids: dict[str, int] = {}
        self._fields: tuple[int, ...] = ()
        self._rows: dict[int, Reading] = {}
        self._read: dict[int, Reading] = {}
        self._heard = 0.0
        self._first_row: float | None = None
        self._silent = False
        self.others: Counter[str] = Counter()
        """Rows of this child that were not of our GPUs, by what they were of (``GPU-I``, ``GPU``, ...)."""

    # --- for the sampler ----------------------------------------------------------------------------------------------

    def want(self, uuids: Iterable[str]) -> None:
        """Watch these GPUs from now on. None: the child is ended, and the counters' lock is free soon after."""
        wanted = frozenset(uuids)
        with self._lock:
            if wanted != self._wanted:
                self._wanted, self._order = wanted, self._order + 1
                self._forget(STARTING)
                self._kill()
                self._lock.notify_all()
            elif self._process is not None and time.monotonic() - self._heard > SILENT_S:
                self._silent = True
                self._kill()
        if wanted and self._thread.ident is None:
            self._thread.start()

    def read(self, uuid: str) -> tuple[Reading | None, str]:
        """A row that was not read before, or (None, why there is none); (None, '') where the next is still to come."""
        if uuid.startswith("MIG-"):
            return None, NO_INSTANCES
        with self._lock:
            number = self._ids.get(uuid)
            if number is None:
                return None, self._why or "the DCGM host engine does not list this GPU"
            row = self._rows.get(number)
            if row is None:
                return None, self._why or self._nothing_of_it()
            age = (now_ns() - row.t_ns) / 1e9
            if age > max(STALE_S, 3 * self._interval):
                return None, f"dcgmi has said nothing of this GPU for over {STALE_S:.0f} s"
            if self._read.get(number) is row:
                return None, ""
            self._read[number] = row
            return row, ""

    def lacking(self) -> list[int]:
        """Fields that DCGM does not have of this model."""
        with self._lock:
            return [field for field in dcgmi.FIELDS if field not in self._fields] if self._fields else []

    def close(self) -> None:
        """End the child and the thread."""
        with self._lock:
            self._closed = True
            self._kill()
            self._lock.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _nothing_of_it(self) -> str:
        if not self.others:
            return STARTING
        seen = ", ".join(f"{kind} ({count})" for kind, count in sorted(self.others.items()))
        return f"dcgmi shows no row of this GPU, only of {seen}"

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        failures = 0
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._closed or bool(self._wanted))
                wanted, order = self._wanted, self._order
                if self._closed:
                    return
                self._forget(self._why if failures else STARTING)
            try:
                why = self._watch(wanted, order)
            except _Ended as ended:
                why = str(ended)
            except OSError as error:
                why = f"{PROGRAM} cannot be started: {error.strerror or error}"
            with self._lock:
                if self._closed:
                    return
                if self._order != order:
                    # Ended on purpose. What was given up is tried once more then, not anew from the first time.
                    continue
                healthy = self._first_row is not None and time.monotonic() - self._first_row > HEALTHY_S
                failures = 1 if healthy else failures + 1
                if failures <= len(RETRIES_S):
                    wait: float | None = RETRIES_S[failures - 1]
                    self._forget(f"{why}; trying again after {wait:.0f} s")
                else:
                    wait, failures = None, len(RETRIES_S)
                    self._forget(f"{why}; not tried again")
                self._lock.wait_for(lambda: self._closed or self._order != order, wait)  # noqa: B023

    def _watch(self, wanted: frozenset[str], order: int) -> str:
        """From nothing to rows, until the child ends; why it did. Raises :class:`_Ended`, OSError."""
        program = shutil.which(PROGRAM)
        if program is None:
            return dcgmi.NOT_HERE
        said = self._ask(order, program, "discovery", "-l")
        ids = {uuid: number for uuid, number in dcgmi.gpus(said).items() if uuid in wanted}
        if not ids:
            return dcgmi.trouble(said) or "the DCGM host engine does not list this GPU"
        said = self._ask(order, program, "profile", "--list", "-i", str(min(ids.values())))
        fields = dcgmi.offered(said)
        if not fields:
            return dcgmi.trouble(said) or dcgmi.UNSUPPORTED
        numbers = sorted(ids.values())
        process = self._start(
            order,
            program,
            "dmon",
            *("-e", ",".join(map(str, fields))),
            *("-i", ",".join(map(str, numbers))),
            *("-d", str(round(self._interval * 1000))),
        )
        with self._lock:
            self._ids, self._fields, self._why = ids, fields, ""
        return self._follow(process, fields, frozenset(numbers))

    def _follow(self, process: subprocess.Popen[bytes], fields: tuple[int, ...], numbers: frozenset[int]) -> str:
        assert process.stdout is not None
        last: deque[str] = deque(maxlen=8)
        with process.stdout as lines:
            while data := lines.readline(_LONGEST_LINE):
                line = data.decode("utf-8", "replace")
                row = dcgmi.row(line, fields)
                with self._lock:
                    self._heard = time.monotonic()
                    if row is None:
                        if not dcgmi.header(line):
                            last.append(line)
                    elif row.kind == "GPU" and row.number in numbers:
                        self._rows[row.number] = Reading(now_ns(), row.values)
                        self._first_row = self._first_row or self._heard
                    else:
                        self.others[row.kind] += 1
        code = process.wait()
        if self._silent:
            return f"dcgmi dmon said nothing for {SILENT_S:.0f} s"
        return dcgmi.trouble("\n".join(last)) or f"dcgmi dmon ended (code {code})"

    def _ask(self, order: int, *command: str) -> str:
        """What a short command says. Raises :class:`_Ended` where it takes too long or is no longer wanted."""
        process = self._start(order, *command)
        try:
            said, _ = process.communicate(timeout=ASK_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise _Ended(f"dcgmi {command[1]} did not answer within {ASK_S:.0f} s") from None
        return said[:_MOST_TEXT].decode("utf-8", "replace")

    def _start(self, order: int, *command: str) -> subprocess.Popen[bytes]:
        process = start(command)
        with self._lock:
            self._process, self._heard, self._silent = process, time.monotonic(), False
            if self._closed or self._order != order:
                self._kill()
        return process

    def _kill(self) -> None:
        """End the child, at once: ``dcgmi`` looks at signals only between two rounds. Reaped by who reads it."""
        if self._process is not None:
            self._process.kill()

    def _forget(self, why: str) -> None:
        self._why, self._ids, self._fields, self._first_row = why, {}, (), None
        self._rows, self._read = {}, {}
        self.others.clear()


class _Ended(Exception):
    """A child that gave nothing; the message says why."""


def start(command: Iterable[str]) -> subprocess.Popen[bytes]:
    """A child that ends with this process; what it says on either output is on ``stdout``."""
    return subprocess.Popen(
        tied(list(command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def probe(timeout_s: float = 3.0) -> tuple[int, str]:
    """How many GPUs the host engine here lists, or (0, why it lists none)."""
    program = shutil.which(PROGRAM)
    if program is None:
        return 0, dcgmi.NOT_HERE
    try:
        process = start([program, "discovery", "-l"])
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 0, f"the DCGM host engine did not answer within {timeout_s:.0f} s"
    except OSError as error:
        return 0, f"{PROGRAM} cannot be started: {error.strerror or error}"
    text = said.decode("utf-8", "replace")
    count = len(dcgmi.gpus(text))
    return count, "" if count else dcgmi.trouble(text) or "the DCGM host engine lists no GPU"
