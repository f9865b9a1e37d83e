"""Messages between the watcher's thread, the screens and the application. Frozen values; handlers own every change."""

from __future__ import annotations

from textual.message import Message

from tui.snapshot import Snapshot


class SnapshotArrived(Message):
    """The watcher saw something new."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Only the newest snapshot in the queue matters."""
        return isinstance(message, SnapshotArrived)


class Wanted(Message):
    """The screen shows other tables than before: tell the watcher."""


class RunsStarted(Message):
    """Runs were queued; the first one is to be shown."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.keys = keys


class Opened(Message):
    """A recording was read and kept as a run."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class Problem(Message):
    """Something could not be done: one line for the person."""

    def __init__(self, text: str, title: str = "") -> None:
        super().__init__()
        self.text, self.title = text, title
