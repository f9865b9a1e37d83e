"""Open a recording: type a path, or walk the folders; recent ones first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from profilers.rules.names import visible
from tui.messages import Opened
from tui.widgets.pick_list import Item, PickList

if TYPE_CHECKING:
    from tui.app import KernelscopeApp

LOOKS_LIKE = (".json", ".gz", ".sqlite", ".csv", ".nsys-rep", ".ncu-rep")
MOST = 500
BACK = "[@click=screen.back]escape goes back[/]"


class OpenScreen(ModalScreen[None]):
    """A path and the folder around it. Reading happens in the background and can be given up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back", id="open.back")]
    app: KernelscopeApp  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self._reading = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Open a recording"
            yield Static("path of a recording, or of a folder with one file a rank", classes="label")
            yield Input(str(Path.cwd()) + os.sep, id="path", select_on_focus=False)
            yield PickList(several=False, id="files")
            yield Static("", classes="error", id="open-error", markup=False)
            yield Static(f"enter opens · down goes to the list · {BACK}", classes="hint", id="open-hint")

    def on_mount(self) -> None:
        self.query_one("#path", Input).focus()
        self._list()

    @on(Input.Changed)
    def _list(self) -> None:
        text = self.query_one("#path", Input).value
        path = Path(text).expanduser()
        folder, start = (path, "") if text.endswith(os.sep) or not text else (path.parent, path.name)
        self.query_one("#files", PickList).set_items([*self._recent(), *listing(folder, start)])

    def _recent(self) -> list[Item]:
        rows = [row for row in self.app.main.snapshot.runs if row.kind == "recording"][:5]
        items = [Item(f"run:{row.key}", visible(row.title), "opened before") for row in rows]
        return [Item("", "recent"), *items] if items else []

    @on(PickList.Entered)
    def _entered(self, message: PickList.Entered) -> None:
        key = message.key
        if key.startswith("run:"):
            self.app.post_message(Opened(key[4:]))
            self.dismiss()
            return
        path = Path(key)
        box = self.query_one("#path", Input)
        if path.is_dir():
            box.value = str(path) + os.sep
            box.focus()
            box.cursor_position = len(box.value)
        else:
            box.value = str(path)
            self._open(path)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        path = Path(event.value).expanduser()
        if not path.exists():
            self._say(f"There is no {path}.")
        else:
            self._open(path)

    def key_down(self) -> None:
        if isinstance(self.focused, Input):
            self.query_one("#files", PickList).focus()

    def _open(self, path: Path) -> None:
        if self._reading:
            return
        self._reading = True
        self._say("")
        self._hint("reading $name …  [@click=screen.back]escape gives up[/]", name=visible(path.name))
        self.read(path)

    @work(thread=True, group="open", description="reading a recording", exit_on_error=False)
    def read(self, path: Path) -> None:
        from profilers.readers.errors import ReadError
        from profilers.runs.folder import RunsError
        from profilers.runs.opening import import_recording

        worker = get_current_worker()
        last = -1

        def progress(share: float) -> None:
            nonlocal last
            if worker.is_cancelled:
                raise KeyboardInterrupt
            if int(share * 20) != last:
                last = int(share * 20)
                self.app.call_from_thread(self._hint, f"reading {path.name}: {share * 100:.0f} %  escape gives up")

        try:
            run = import_recording(path, self.app.root, progress=progress)
        except KeyboardInterrupt:
            return
        except (ReadError, RunsError, OSError) as problem:
            self.app.call_from_thread(self._failed, str(problem))
            return
        self.app.call_from_thread(self._done, run.id)

    def _failed(self, text: str) -> None:
        self._reading = False
        self._say(text)
        self._hint(f"enter opens · {BACK}")

    def _done(self, key: str) -> None:
        self.app.post_message(Opened(key))
        self.dismiss()

    def _say(self, text: str) -> None:
        if self.is_mounted:
            self.query_one("#open-error", Static).update(text)

    def _hint(self, markup: str, **foreign: str) -> None:
        """Words below the list; ``foreign`` ones are put in as they are, brackets too."""
        if self.is_mounted:
            self.query_one("#open-hint", Static).update(Content.from_markup(markup, **foreign))

    def action_back(self) -> None:
        self.workers.cancel_group(self, "open")
        self.dismiss()


def listing(folder: Path, start: str) -> list[Item]:
    """Folders and what looks like a recording, whose names begin with ``start``; hidden ones only when asked for."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(
                (
                    e
                    for e in entries
                    if e.name.startswith(start) and (start.startswith(".") or not e.name.startswith("."))
                ),
                key=lambda e: e.name,
            )
    except OSError as problem:
        return [Item("", f"cannot list {folder}: {problem.strerror}")]
    items = [Item("", str(folder))]
    if folder.parent != folder:
        items.append(Item(str(folder.parent), "..", "up"))
    for entry in found[:MOST]:
        try:
            if entry.is_dir():
                items.append(Item(entry.path, visible(entry.name) + os.sep))
            elif entry.name.lower().endswith(LOOKS_LIKE):
                items.append(Item(entry.path, visible(entry.name), size_text(entry.stat().st_size)))
        except OSError:
            continue
    if len(found) > MOST:
        items.append(Item("", f"{len(found) - MOST} more: type the beginning of a name"))
    return items


def size_text(size: int) -> str:
    """1.2 MB."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""
