"""Ask before what is hard to undo."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
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
            answers = "[@click=screen.answer(True)]y  $yes[/]     [@click=screen.answer(False)]n  leave it[/]"
            yield Static(Content.from_markup(answers, yes=self.yes), classes="hint")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
