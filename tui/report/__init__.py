"""A report of one recording to share: the panes' tables and pictures as one page, as Markdown, or as LaTeX tables."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui.report.content import Content

FORMATS = {"html": ".html", "markdown": ".md", "latex": ".tex"}
"""Format -> the extension of its files."""

_WRITERS = {"html": "page", "markdown": "markdown", "latex": "latex"}


def render(content: Content, format: str) -> bytes:
    """The report in one of :data:`FORMATS`, as UTF-8."""
    data: bytes = importlib.import_module(f"tui.report.{_WRITERS[format]}").render(content)
    return data
