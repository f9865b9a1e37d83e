"""Help for what has the focus: its keys, what the tab shows, and the definitions everything rests on."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Markdown

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

## Letters
"""


class HelpScreen(ModalScreen[None]):
    """Keys of the focused widget first, hidden ones included; then the tab; then definitions and letters."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,f1", "dismiss", "Back", id="help.back")]

    def __init__(self, below: Screen, pane: Pane) -> None:  # type: ignore[type-arg]
        super().__init__()
        self.text = help_text(below, pane)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="help") as box:
            box.border_title = "Help"
            box.border_subtitle = "escape back"
            with VerticalScroll(id="help-body"):
                yield Markdown(self.text)

    def on_mount(self) -> None:
        self.query_one("#help-body").focus()


def help_text(below: Screen, pane: Pane) -> str:  # type: ignore[type-arg]
    """The help as Markdown, made from the bindings that are active now."""
    from profilers.rules.taxonomy import GROUPS

    out = [f"# {pane.title}", pane.help.strip(), "", "## Keys now", "", "| key | does |", "|---|---|"]
    seen = set()
    for active in below.active_bindings.values():
        binding = active.binding
        if binding.id is None or binding.id in seen:
            continue
        seen.add(binding.id)
        key = below.app.get_key_display(binding)
        what = binding.tooltip or binding.description
        out.append(f"| `{key}` | {what}{'' if active.enabled else ' (not now)'} |")
    out.append(DEFINITIONS)
    out += ["| letter | group | class | what |", "|---|---|---|---|"]
    out += [f"| `{g.letter}` | {g.name} | {g.cls} | {g.doc} |" for g in GROUPS.values()]
    return "\n".join(out)
