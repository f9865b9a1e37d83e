"""The report's tables as LaTeX for a paper: each a ``table`` with a caption, to be taken over one by one."""

from __future__ import annotations

from tui.export.latex import escape
from tui.export.latex import render as tabular
from tui.report.content import Content, Section, shortened

ROWS = 15


def render(content: Content) -> bytes:
    """A fragment to \\input: no preamble, no package needed."""
    facts = [f"% {' '.join(f'{label}: {value}'.split())}" for label, value in content.facts]
    parts = [f"% {' '.join(content.title.split())}", *facts, ""]
    parts += [_table(section, content.title) for section in content.sections if section.table.name != "notes"]
    return ("\n".join(parts) + "\n").encode()


def _table(section: Section, title: str) -> str:
    frame = shortened(section, ROWS)
    body = tabular(frame, section.table, {}).decode().rstrip()
    cut = f" The first {len(frame):,} of {len(section.frame):,} rows." if len(frame) < len(section.frame) else ""
    caption = escape(f"{title}: {section.table.question}{cut}")
    label = f"tab:kernelscope-{section.table.name}"
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\footnotesize",
            rf"\caption{{{caption}}}",
            rf"\label{{{label}}}",
            body,
            r"\end{table}",
            "",
        ]
    )
