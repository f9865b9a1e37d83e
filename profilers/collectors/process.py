"""How a worker lives beside its supervisor: it dies with it, and it is the first to go when memory runs out.

Run as a program, ``process.py PARENT PROGRAM ARGUMENT...`` becomes PROGRAM after it has tied itself to PARENT: so do
programs that are not ours (see :func:`tied`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_POLL_S = 1.0


def die_with_parent(parent: int) -> None:
    """End this process as soon as ``parent`` (the process that started it) is gone, however that happened.

    Linux's parent-death signal does it at once, even inside native code. A thread that watches the parent's id stands
    in where the system has no such signal. The signal is SIGKILL: what is on disk is whole at every instant, and a
    handler might wait for a device for ever.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0:
            # The parent may have gone before the signal was asked for.
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def tied(command: Sequence[str]) -> list[str]:
    """``command`` as a child that ends with this process, whatever ends it; for programs that cannot see to it themselves.

    To be started from a thread that lives as long as the child: the kernel's signal comes when that thread ends. Where
    the system has no such signal (not Linux) the child is only what its starter makes of it.
    """
    # Isolated and without site: only the standard library, in a few milliseconds.
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def go_first_when_memory_runs_out() -> None:
    """Ask the kernel to take this process before others: a shell and the supervisor should outlive a big model."""
    try:
        Path("/proc/self/oom_score_adj").write_text("500")
    except OSError:
        pass


def _become(parent: int, command: list[str]) -> None:
    die_with_parent(parent)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        print(f"Error: {command[0]} cannot be run: {error.strerror or error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
