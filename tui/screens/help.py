"""Help for what has the focus: its keys, what the tab shows, and the definitions everything rests on."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Markdown, Static

from profilers.rules.taxonomy import GROUPS
from tui.panes import Pane

DEFINITIONS = """
## The three shares
- **device**: kernel time by group, of the sum over kernels (the 1,000-kernels study).
- **operator**: host + device time of the operators directly below the step (NonGEMM Bench).
- **wall**: every instant of the step given to what ran then; idle is its own part; kernels side by side share the instant.

They are never mixed: each bar says what it is of.

## States
Three letters: threads launched, SM %, DRAM %, each **L**ow, **M**iddle or **H**igh (4,000 and 32,000 threads; 10 and 70 %).
With few threads: `L**`. An estimate (from shapes and the device's peaks, no counters) is marked as one.
"""


class HelpScreen(ModalScreen[None]):
    """Keys of the focused widget first, hidden ones included; then the tab; then definitions and letters."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,f1", "dismiss", "Back", id="help.back")]

    def __init__(self, below: Screen, pane: Pane) -> None:  # type: ignore[type-arg]
        super().__init__()
        self.pane = pane
        self.keys = keys_of(below)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="help") as box:
            box.border_title = f"Help · {self.pane.title}"
            box.border_subtitle = "[@click=screen.dismiss]escape back[/]"
            with VerticalScroll(id="help-body"):
                yield Markdown(self.pane.help.strip())
                yield Static(self._keys(), markup=False)
                yield Markdown(DEFINITIONS)
                yield Static(self._letters(), markup=False)

    def on_mount(self) -> None:
        self.query_one("#help-body").focus()

    def _keys(self) -> Text:
        palette = self.app.palette  # type: ignore[attr-defined]
        out = Text("Keys now\n", palette.style(palette.group("matmul"), bold=True))
        for key, what, enabled in self.keys:
            out.append(
                f"  {key:<10} ", palette.style(palette.group("matmul") if enabled else palette.muted, bold=enabled)
            )
            out.append(
                what + ("" if enabled else "  (not now)") + "\n",
                palette.style(palette.text if enabled else palette.muted),
            )
        return out

    def _letters(self) -> Text:
        palette = self.app.palette  # type: ignore[attr-defined]
        out = Text("Letters\n", palette.style(palette.group("matmul"), bold=True))
        for group in GROUPS.values():
            out.append(f"  {group.letter}  {group.name:<16}", palette.style(palette.group(group.name), bold=True))
            out.append(f"{group.doc}\n", palette.style(palette.muted))
        return out


def keys_of(below: Screen) -> list[tuple[str, str, bool]]:  # type: ignore[type-arg]
    """The bindings that are active now: (key, what it does, whether it does something now), one row an action."""
    out = []
    seen = set()
    applies = getattr(below, "applies", lambda action: True)
    for active in below.active_bindings.values():
        binding = active.binding
        if binding.id is None or binding.id in seen:
            continue
        seen.add(binding.id)
        keys = [
            below.app.get_key_display(other.binding)
            for other in below.active_bindings.values()
            if other.binding.id == binding.id
        ]
        out.append((" ".join(keys), binding.tooltip or binding.description, applies(binding.action)))
    return out
