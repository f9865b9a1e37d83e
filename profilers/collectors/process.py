"""How a worker lives beside its supervisor: it dies with it, and it is the first to go when memory runs out."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
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


def go_first_when_memory_runs_out() -> None:
    """Ask the kernel to take this process before others: a shell and the supervisor should outlive a big model."""
    try:
        Path("/proc/self/oom_score_adj").write_text("500")
    except OSError:
        pass
