"""Compare the selected run with others: pick them, then see what explains the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from profilers.rules.names import visible
from tui.snapshot import RunRow
from tui.widgets.pick_list import Item, PickList

if TYPE_CHECKING:
    from tui.app import KernelscopeApp

MOST = 8
"""As many can be read side by side."""


class CompareScreen(ModalScreen[None]):
    """Which runs and recordings to compare with. ``key`` is the run that is selected: the base of the comparison."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", id="compare.back"),
        Binding("ctrl+s", "go", "Compare", id="compare.go"),
    ]
    app: KernelscopeApp  # type: ignore[assignment]

    def __init__(self, key: str, title: str, others: tuple[RunRow, ...]) -> None:
        super().__init__()
        self.key, self.base_title, self.others = key, title, others

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="compare") as box:
            box.border_title = "Compare"
            box.border_subtitle = (
                "space picks · [@click=screen.go]enter compares[/] · [@click=screen.dismiss]escape back[/]"
            )
            yield Static(f"a  {visible(self.base_title)}, with:", markup=False)
            yield PickList(id="compare-with")
            yield Static("", id="compare-error", classes="error", markup=False)

    def on_mount(self) -> None:
        self.query_one(PickList).set_items([_item(row) for row in self.others])
        self.query_one(PickList).focus()

    @on(PickList.Entered)
    def _entered(self) -> None:
        self.action_go()

    @on(PickList.Changed)
    def _picked(self) -> None:
        self._complain("")

    def action_go(self) -> None:
        """Compare with what is picked; where nothing is, with the entry under the cursor."""
        box = self.query_one(PickList)
        keys = list(box.picked)
        if not keys and box.current is not None:
            if box.current.disabled:
                self._complain(box.current.disabled)
                return
            keys = [box.current.key]
        if not keys:
            return
        if len(keys) >= MOST:
            self._complain(f"{len(keys) + 1} are picked: up to {MOST} can be read side by side.")
            return
        from tui.screens.comparison import ComparisonScreen

        self.app.switch_screen(ComparisonScreen((self.key, *keys)))

    def _complain(self, text: str) -> None:
        self.query_one("#compare-error", Static).update(text)


def _item(row: RunRow) -> Item:
    nothing = row.state == "queued" or (row.state in ("failed", "died") and row.gemm_pct is None)
    return Item(row.key, row.title, row.subtitle, "it has recorded nothing" if nothing else "", row.key)
