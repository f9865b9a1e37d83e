"""Colours and letters of classes, groups and states: one visual language for every pane.

Hues follow the Okabe-Ito set, which people with the common colour-vision deficiencies can tell apart; lightness differs
between neighbours as well, and a letter stands with every colour, so that nothing is told by colour alone. Matrix multiply
has the one accent; other groups are calm; communication is neutral and bright; what is unclassified has the warning colour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from rich.color import Color
from rich.style import Style

from profilers.rules.taxonomy import GROUPS


@dataclass(frozen=True)
class Palette:
    """Colours for one theme. ``colour`` False: no colour codes at all (NO_COLOR); letters and marks carry everything."""

    name: str
    groups: dict[str, str]
    states: dict[str, str]
    text: str
    muted: str
    faint: str
    good: str
    bad: str
    warn: str
    ink: str
    """Text on a coloured bar."""
    cursor: str
    ascii: bool = False
    colour: bool = True
    _styles: dict[tuple[str, str, bool, bool], Style] = field(default_factory=dict, compare=False, repr=False)

    def style(self, fg: str = "", bg: str = "", *, bold: bool = False, reverse: bool = False) -> Style:
        """A cached style. Without colour, only bold and reverse remain."""
        key = (fg, bg, bold, reverse)
        style = self._styles.get(key)
        if style is None:
            if not self.colour:
                fg = bg = ""
            style = Style(
                color=Color.parse(fg) if fg else None,
                bgcolor=Color.parse(bg) if bg else None,
                bold=bold or None,
                reverse=reverse or None,
            )
            self._styles[key] = style
        return style

    def group(self, name: str) -> str:
        """The colour of a group; one that the taxonomy does not know has the warning colour."""
        return self.groups.get(name, self.warn)

    def state(self, name: str) -> str:
        """The colour of a state: by SM (warm) and DRAM (cool). ``L**`` and unknown states are grey."""
        if name in self.states:
            return self.states[name]
        return self.states.get(name[1:], self.faint) if len(name) == 3 else self.faint

    def state_text(self, name: str) -> str:
        """The same for letters, which need more contrast than an area: what is grey is as light as other quiet text."""
        colour = self.state(name)
        return self.muted if colour in (self.faint, self.states["L**"]) else colour

    @cached_property
    def blocks(self) -> str:
        """Left-aligned partial blocks by eighths; in ASCII a cell is either drawn or not."""
        return " ####" if self.ascii else " ▏▎▍▌▋▊▉█"

    def mark(self, name: str) -> str:
        """A small sign by name, in ASCII where asked."""
        plain, drawn = _MARKS[name]
        return plain if self.ascii else drawn


_MARKS = {
    "running": ("*", "●"),
    "waiting": ("o", "◌"),
    "finished": ("+", "✓"),
    "failed": ("x", "✗"),
    "stopped": ("-", "■"),
    "recording": ("=", "▤"),
    "idle": (".", "·"),
    "rule": ("-", "━"),
    "rule_dim": (".", "─"),
    "swatch": ("#", "■"),
    "down": ("v", "▼"),
    "up": ("^", "▲"),
    "left": ("<", "‹"),
    "right": (">", "›"),
    "dash": ("-", "–"),
    "dot": ("|", "·"),
    "ellipsis": ("~", "…"),
    "check": ("[x]", "☑"),
    "uncheck": ("[ ]", "☐"),
    "cursor": (">", "❯"),
    "estimate": ("~", "≈"),
    "micro": ("u", "µ"),
}

CLASS_GROUP = {
    "gemm": "matmul",
    "attention": "attention",
    "communication": "collective",
    "unclassified": "unclassified",
}
"""The group whose colour a class takes; non-GEMM is a family of colours."""

_GROUPS_DARK = {
    "matmul": "#e8a33d",
    "convolution": "#d9822b",
    "grouped-matmul": "#f2bd72",
    "attention": "#f0d264",
    "elementwise": "#5b8db8",
    "memory": "#3fa796",
    "normalization": "#79c4e8",
    "reduction": "#8e7cc3",
    "activation": "#cc79a7",
    "softmax": "#a9bff0",
    "optimizer": "#7fb069",
    "embedding": "#4f9d8d",
    "pooling": "#7a9e9f",
    "interpolation": "#89a7a7",
    "roi": "#b0a990",
    "quantization": "#b39cd0",
    "routing": "#6c8ebf",
    "loss": "#d4a5a5",
    "random": "#9aa5b1",
    "scan": "#5fa8a0",
    "other": "#8a8f98",
    "collective": "#f2f2f2",
    "unclassified": "#e0564b",
}

_GROUPS_LIGHT = {
    **_GROUPS_DARK,
    "matmul": "#d07f00",
    "convolution": "#b35c00",
    "grouped-matmul": "#e09a3a",
    "attention": "#bfa100",
    "elementwise": "#3f76a8",
    "memory": "#1f8573",
    "normalization": "#3a9bc4",
    "reduction": "#6d58a8",
    "activation": "#b3578a",
    "softmax": "#6f88cc",
    "optimizer": "#55883f",
    "embedding": "#2f7a6b",
    "collective": "#1a1a1a",
    "unclassified": "#c0392b",
}

_GROUPS_ANSI = {
    **dict.fromkeys(GROUPS, "cyan"),
    "matmul": "yellow",
    "convolution": "yellow",
    "grouped-matmul": "yellow",
    "attention": "bright_yellow",
    "elementwise": "blue",
    "memory": "green",
    "normalization": "cyan",
    "reduction": "magenta",
    "activation": "bright_magenta",
    "softmax": "bright_cyan",
    "optimizer": "bright_green",
    "collective": "bright_white",
    "other": "bright_black",
    "unclassified": "red",
}

# Keyed by SM and DRAM letters: SM is warm, DRAM is cool, both together bright, neither grey.
_STATES_DARK = {
    "L**": "#565b64",
    "LL": "#7b818c",
    "LM": "#2f7fa6",
    "LH": "#35a5e0",
    "ML": "#9a6a33",
    "MM": "#a08d80",
    "MH": "#86b8d6",
    "HL": "#e8772e",
    "HM": "#e9a877",
    "HH": "#f1e7d8",
}
_STATES_LIGHT = {
    "L**": "#9aa0a8",
    "LL": "#777d87",
    "LM": "#4c8fb0",
    "LH": "#0072b2",
    "ML": "#b9874a",
    "MM": "#8f7d71",
    "MH": "#5f93b5",
    "HL": "#d55e00",
    "HM": "#c98a55",
    "HH": "#3a2f28",
}
_STATES_ANSI = {
    "L**": "bright_black",
    "LL": "white",
    "LM": "blue",
    "LH": "bright_blue",
    "ML": "yellow",
    "MM": "magenta",
    "MH": "cyan",
    "HL": "red",
    "HM": "bright_yellow",
    "HH": "bright_white",
}

DARK = Palette(
    "dark",
    _GROUPS_DARK,
    _STATES_DARK,
    "#d7dae0",
    "#8b919c",
    "#4a4f58",
    "#74c272",
    "#e0564b",
    "#e0564b",
    "#16181d",
    "#2b3442",
)
LIGHT = Palette(
    "light",
    _GROUPS_LIGHT,
    _STATES_LIGHT,
    "#24272e",
    "#5d636e",
    "#b4b9c2",
    "#2e7d32",
    "#c0392b",
    "#c0392b",
    "#ffffff",
    "#dbe6f3",
)
ANSI = Palette(
    "ansi",
    _GROUPS_ANSI,
    _STATES_ANSI,
    "",
    "bright_black",
    "bright_black",
    "green",
    "red",
    "red",
    "black",
    "",
)


def palette(theme: str, *, ascii: bool = False, colour: bool = True) -> Palette:
    """The palette of a theme name (anything with ``light`` in it is light, with ``ansi`` in it uses the terminal's own colours)."""
    base = ANSI if "ansi" in theme else LIGHT if "light" in theme else DARK
    return Palette(
        base.name,
        base.groups,
        base.states,
        base.text,
        base.muted,
        base.faint,
        base.good,
        base.bad,
        base.warn,
        base.ink,
        base.cursor,
        ascii=ascii,
        colour=colour,
    )
