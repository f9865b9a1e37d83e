"""How a reader tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float], None]
"""Called now and then with the share of the work that is done, 0 to 1. It may raise to stop the reader."""


class Counter:
    """Adds up rows as they are read and passes the share on. ``total`` is an estimate: the share never exceeds 1."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, max(total, 1), 0

    def __call__(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(min(1.0, self._done / self._total))

    def finish(self) -> None:
        """All is done."""
        if self._progress is not None:
            self._progress(1.0)
