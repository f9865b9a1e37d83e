"""The bars and the strip of the screen's head as inline SVG. Lengths are percentages, so that a picture is as wide as its
page and its text keeps its size; colours are classes of the page's style sheet, so that light, dark and print need no
second picture."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from profilers.rules.names import visible
from profilers.rules.taxonomy import GROUPS
from tui.widgets.shares import Share
from tui.widgets.state_strip import StripData

T = TypeVar("T")

LETTER_PCT = 2.5
"""A slice of at least so many percent carries its letter."""

STATE_PCT = 4.5
"""A stretch of at least so many percent carries its state's letters (on a wide page)."""


def group_class(name: str) -> str:
    """The class name of a group: groups may come from a person's own rules, so only letters, digits and dashes pass."""
    return "g-" + "".join(char if char.isascii() and char.isalnum() else "-" for char in name)


def state_class(name: str) -> str:
    return "s-" + "".join(char if char.isascii() and char.isalnum() else "x" for char in name)


def verdict(share: Share, of: Mapping[str, str]) -> str:
    """What a bar says. ``of``: what the share's percentages are of, as the table has it."""
    sign = "GEMM and attention" if share.with_attention else "GEMM"
    # Operators run on the host, for all devices at once.
    where = f" ({share.where})" if share.where and share.name != "operator" else ""
    return f"{share.name}{where}: {sign} {share.gemm_pct:.1f} % of {of.get(share.name, 'the whole')}"


def bars(shares: Sequence[Share], of: Mapping[str, str]) -> str:
    """The three shares as stacked bars, GEMM first, idle left blank, each with its verdict above."""
    out = []
    for share in shares:
        whole = (sum(time for _, time in share.parts) + share.idle) or 1.0
        said = _text(verdict(share, of))
        at, parts = 0.0, []
        for name, time in share.parts:
            pct = 100 * time / whole
            letter = GROUPS[name].letter if name in GROUPS else "?"
            parts.append(_slice(at, pct, f"{name} {pct:.1f} %", group_class(name), letter if pct >= LETTER_PCT else ""))
            at += pct
        if share.idle > 0:
            pct = 100 * share.idle / whole
            parts.append(_slice(at, pct, f"idle {pct:.1f} %", "idle", ""))
        out.append(f'<p class="verdict">{said}</p>')
        out.append(f'<svg class="bar" width="100%" height="26" role="img" aria-label="{said}">{"".join(parts)}</svg>')
    return "\n".join(out)


def _text(text: str) -> str:
    """As text of the page: groups and devices may be named by strangers."""
    return html.escape(visible(text))


def _slice(at: float, pct: float, title: str, cls: str, letter: str) -> str:
    text = f'<text x="{at + pct / 2:.3f}%" y="18" text-anchor="middle">{_text(letter)}</text>' if letter else ""
    rect = f'<rect x="{at:.3f}%" y="0" width="{pct:.3f}%" height="26"/>'
    return f'<g class="{cls}"><title>{_text(title)}</title>{rect}{text}</g>'


def group_legend(shares: Sequence[Share]) -> str:
    """Colour, letter and name of every group that occurs, in the taxonomy's order."""
    present = {name for share in shares for name, time in share.parts if time > 0}
    return group_items(present, any(share.idle > 0 for share in shares))


def group_items(present: Iterable[str], idle: bool = False) -> str:
    """A legend of these groups, in the taxonomy's order; ``idle``: the bars leave idle time blank."""
    held = set(present)
    order = [*(name for name in GROUPS if name in held), *sorted(held - set(GROUPS))]
    items = [
        f'<li class="{group_class(name)}"><b>{_text(GROUPS[name].letter if name in GROUPS else "?")}</b> {_text(name)}</li>'
        for name in order
    ]
    if idle:
        items.append('<li class="none">idle (left blank)</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def strip(data: StripData, how: str) -> str:
    """The states through time, one slice a cell, with a mark above where most of the busy time was GEMM. ``how`` says
    where the states come from."""
    if not data.cells:
        return ""
    one = 100 / len(data.cells)
    busy = [(state, gemm >= 0.5 * part, part > 0.02) for state, gemm, part in data.cells]
    out = []
    for first, last, _ in _runs(gemm and some for _, gemm, some in busy):
        place = f'x="{first * one:.3f}%" y="0" width="{(last - first) * one:.3f}%"'
        out.append(f'<rect class="{group_class("matmul")}" {place} height="5"/>')
    for first, last, state in _runs(state if some else "" for state, _, some in busy):
        x, width = first * one, (last - first) * one
        rect = f'<rect x="{x:.3f}%" y="8" width="{width:.3f}%" height="24"/>'
        text = f'<text x="{x + width / 2:.3f}%" y="25" text-anchor="middle">{_text(state)}</text>'
        title = f"<title>{_text(state)}</title>"
        out.append(f'<g class="{state_class(state)}">{title}{rect}{text if width >= STATE_PCT else ""}</g>')
    legend = "".join(
        f'<li class="{state_class(name)}"><b>{_text(name)}</b> {pct:.1f} %</li>' for name, pct in data.legend
    )
    said = (
        f"{data.device}: utilization states in order of time ({how}); {data.run_length:.1f} kernels in a row on average"
    )
    return (
        f'<p class="verdict">{_text(said)}</p>'
        f'<svg class="bar strip" width="100%" height="32" role="img" aria-label="{_text(said)}">{"".join(out)}</svg>'
        f'<ul class="legend">{legend}<li class="none">% of kernel time; orange above: mostly GEMM</li></ul>'
    )


def _runs(cells: Iterable[T]) -> Iterator[tuple[int, int, T]]:
    """Equal neighbours as one, where there is something: (first, past the last, what)."""
    at = 0
    for value, group in groupby(cells):
        size = sum(1 for _ in group)
        if value:
            yield at, at + size, value
        at += size
