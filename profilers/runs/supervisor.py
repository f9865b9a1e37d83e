"""The process that owns the queue of one launch: ``python -P -m profilers.runs.supervisor LAUNCHFILE``.

It runs in a session of its own, without a terminal, until every run of the launch has ended: one run a device at a
time, several devices side by side; a paused run in the queue lets others go first. It never imports torch. SIGHUP is
ignored; SIGTERM stops all of its runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from profilers.runs.jobs import Job

_POLL_S = 0.1


def main(arguments: list[str] | None = None) -> int:
    """Detach, then look after the launch's runs. Prints the supervisor's process id on standard output."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 1:
        print("usage: python -m profilers.runs.supervisor LAUNCHFILE", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    names = msgspec.json.decode(path.read_bytes(), type=list[str])
    # A second process: whoever launched us has waited for the first one, so none is left as their zombie.
    child = os.fork()
    if child:
        print(child, flush=True)
        return 0
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.dup2(2, 1)
    supervise(path, path.parent.parent, names)
    return 0


def supervise(path: Path, root: Path, names: list[str]) -> None:
    """Take the runs called ``names`` to their ends, then remove the launch file (and the log, if nothing was said)."""
    supervisor = Supervisor(root, names, path.with_suffix(".order"))
    signal.signal(signal.SIGTERM, supervisor.on_term)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        supervisor.loop()
    finally:
        supervisor.close()
        path.unlink(missing_ok=True)
        path.with_suffix(".order").unlink(missing_ok=True)
        log = path.with_suffix(".log")
        sys.stderr.flush()
        if log.exists() and log.stat().st_size == 0:
            log.unlink(missing_ok=True)


class Supervisor:
    """The queue of one launch. Workers are started from the main thread: they die with the thread that started them."""

    def __init__(self, root: Path, names: list[str], order: Path | None = None) -> None:
        # Imported after the fork and before anything is started; tables and readers follow when the first window comes.
        from profilers.runs.folder import RunFolder, RunsError
        from profilers.runs.jobs import Job, complain
        from profilers.runs.leases import Leases
        from profilers.runs.precedence import Precedence
        from profilers.runs.sampling import Sampler

        self._lease_type = Leases
        self._precedence = Precedence(root)
        self._complain = complain
        self.root = root
        self._order = order
        self._ordered_at = 0
        self.queue: list[Job] = []
        self.active: dict[str, Job] = {}
        self.leases: dict[str, Any] = {}
        self.term = False
        for name in names:
            try:
                job = Job(RunFolder.open(root / name))
            except RunsError as error:
                complain(name, error)
                continue
            job.claim()
            self.queue.append(job)
        self.sampler = Sampler(lambda: list(self.active.values()))

    def on_term(self, _number: int, _frame: object) -> None:
        self.term = True

    def loop(self) -> None:
        """Until every run has ended."""
        self.sampler.start()
        while self.queue or self.active:
            self.turn()
            time.sleep(_POLL_S)

    def turn(self) -> None:
        """One look at everything; never waits."""
        from profilers.runs.deaths import End

        if self.term:
            for job in self.queue:
                job.finish(End("stopped", "stopped", "its supervisor was told to end before it began"))
            for job in self.active.values():
                job.end_with(End("stopped", "stopped", "its supervisor was told to end"))
        self._reorder()
        before: dict[str, int] = {}
        for job in list(self.queue):
            ahead = before.get(job.key, 0) + (job.key in self.active)
            paused = job.paused
            if paused:
                job.wait_for("paused")
            elif ahead:
                job.wait_for(f"waiting for {job.spec.device}: {ahead} before it")
            elif self._gives_way(job):
                pass
            elif self._may_start(job):
                self.queue.remove(job)
                self.active[job.key] = job
                job.start()
                continue
            job.poll()
            if job.ended:
                self.queue.remove(job)
            elif not paused:
                before[job.key] = before.get(job.key, 0) + 1
        for key, job in list(self.active.items()):
            job.poll()
            if job.ended:
                del self.active[key]
        wanted = {job.key for job in self.queue if not job.paused} | set(self.active)
        for key in [key for key in self.leases if key not in wanted]:
            self.leases.pop(key).release()

    def _reorder(self) -> None:
        """Follow a new order of the queue, where somebody wrote one; runs that it does not name stay behind."""
        if self._order is None:
            return
        try:
            stamp = self._order.stat().st_mtime_ns
            if stamp == self._ordered_at:
                return
            self._ordered_at = stamp
            names = msgspec.json.decode(self._order.read_bytes(), type=list[str])
        except (OSError, msgspec.MsgspecError):
            return
        place = {name: number for number, name in enumerate(names)}
        self.queue.sort(key=lambda job: place.get(job.run.id, len(names)))

    def _gives_way(self, job: Job) -> bool:
        """Whether a run of another launch was put before this one: the device is then let go of, for that one to take."""
        first = self._precedence.before(job.keys, {other.run.id for other in self.queue})
        if first is None:
            return False
        if (lease := self.leases.pop(job.key, None)) is not None:
            lease.release()
        job.wait_for(f"waiting for {job.spec.device}: run {first.id} was put first")
        return True

    def _may_start(self, job: Job) -> bool:
        """Whether the device is ours. A lease is kept while this launch has more for the device: no one cuts in, save a
        run that the same user has put first."""
        lease = self.leases.get(job.key)
        if lease is None:
            lease = self._lease_type(self.root, job.keys)
            try:
                if not lease.acquire():
                    holder = lease.holder()
                    job.wait_for(f"waiting for {job.spec.device}: {holder or 'another run'} has it")
                    return False
            except OSError as error:
                self._complain(job.run.id, error)
                job.event("no_lease", cause=f"this file system keeps no locks: {error.strerror or error}")
            self.leases[job.key] = lease
        lease.say(job.run.id)
        return True

    def close(self) -> None:
        """Let go of everything."""
        self.sampler.close()
        for lease in self.leases.values():
            lease.release()


if __name__ == "__main__":
    sys.exit(main())
