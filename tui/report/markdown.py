"""The report as Markdown for a pull request: the verdict and the findings open, the tables folded."""

from __future__ import annotations

from tui.advice_text import CAVEAT, blocks
from tui.export.markdown import escape
from tui.export.markdown import render as table
from tui.report.content import Content, Section, shortened
from tui.report.pictures import verdict

ROWS = 15


def render(content: Content) -> bytes:
    """Markdown as GitHub reads it, UTF-8."""
    lines = [f"## {escape(content.title)}", ""]
    lines += [f"- {escape(label)}: {escape(value)}" for label, value in content.facts]
    lines.append("")
    for share in content.shares:
        name, _, said = verdict(share, content.of).partition(": ")
        lines.append(f"- **{escape(name)}**: {escape(said)}")
    lines.append("")
    for section in content.sections:
        lines += _advice(section) if section.table.name == "advice" else _folded(section)
    for line in content.missing:
        lines += [escape(line), ""]
    return ("\n".join(lines).rstrip() + "\n").encode()


def _advice(section: Section) -> list[str]:
    lines = ["### Next", ""]
    for block in blocks(section.frame):
        lines.append(f"**{escape(block.title)}** ({escape(block.buys)})  ")
        lines += [f"{label}: {escape(text)}  " for label, text in block.lines]
        lines.append("")
    return [*lines, escape(CAVEAT), ""]


def _folded(section: Section) -> list[str]:
    frame = shortened(section, ROWS)
    count = (
        f"{len(frame):,} of {len(section.frame):,} rows" if len(frame) < len(section.frame) else f"{len(frame):,} rows"
    )
    body = table(frame, section.table, {}).decode().rstrip()
    head = f"<details><summary>{section.heading}: {section.table.question} ({count})</summary>"
    return [head, "", body, "", "</details>", ""]
