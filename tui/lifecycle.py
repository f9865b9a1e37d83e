"""The screen's life on a terminal that may go away: refused where it cannot work, gone within two seconds of a hang-up."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.app import App

GRACE_S = 1.2
"""How long an orderly exit may take after a hang-up before the process is ended."""


def refuse(environment: Mapping[str, str], terminal: bool) -> str:
    """Why the screen cannot be opened here, with what to do instead; '' when it can."""
    if not terminal:
        return "kernelscope: the screen needs a terminal. Without one use --no-tui, or: kernelscope show RUN TABLE"
    if environment.get("TERM", "") in ("", "dumb", "unknown"):
        return "kernelscope: this terminal (TERM=dumb) cannot show the screen. Use --no-tui, or: kernelscope show RUN TABLE"
    return ""


@contextlib.contextmanager
def guard(app: App) -> Iterator[None]:  # type: ignore[type-arg]
    """While inside: SIGHUP and SIGTERM leave in order, and a terminal that is gone ends the process for certain.

    A Textual program whose terminal hung up while SIGHUP is ignored (nohup) would spin on end-of-file for ever, so the
    terminal itself is watched as well.
    """
    done = threading.Event()

    def leave(*_: object) -> None:
        threading.Thread(target=_end, args=(app, done), daemon=True).start()

    # A handler that the parent set to "ignore" is replaced too: the screen has no business without its terminal.
    old = {number: signal.signal(number, leave) for number in (signal.SIGHUP, signal.SIGTERM)}
    watcher = threading.Thread(target=_watch_terminal, args=(app, done), daemon=True, name="terminal")
    watcher.start()
    try:
        yield
    finally:
        done.set()
        for number, handler in old.items():
            signal.signal(number, handler)


def _watch_terminal(app: App, done: threading.Event) -> None:  # type: ignore[type-arg]
    """Wake only when the terminal hangs up: poll() asks for no event, so it reports nothing but errors."""
    poll = select.poll()
    try:
        poll.register(0, 0)
    except OSError:
        return
    while not done.is_set():
        for _, event in poll.poll(1000):
            if event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                _end(app, done)
                return


def _end(app: App, done: threading.Event) -> None:  # type: ignore[type-arg]
    """Ask for an orderly exit, then end the process whatever happens."""
    with contextlib.suppress(Exception):
        app.call_from_thread(app.exit)
    if not done.wait(GRACE_S):
        os._exit(129)
