"""Ask before what is hard to undo."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static


class ConfirmScreen(ModalScreen[bool]):
    """A question with one dangerous answer; every other key means no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes", id="confirm.yes"),
        Binding("n,escape,q", "answer(False)", "No", id="confirm.no"),
    ]

    def __init__(self, question: str, yes: str) -> None:
        super().__init__()
        self.question, self.yes = question, yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Sure?"
            yield Static(self.question, markup=False)
            yield Static("")
            yield Static(f"y  {self.yes}     n  leave it", classes="hint", markup=False)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
