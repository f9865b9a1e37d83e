"""Copying from a terminal that may be far away: say what really happened, never just "copied"."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.analysis.registry import Table

if TYPE_CHECKING:
    import pandas as pd
    from textual.app import App

LIMIT = 100_000
"""Bytes that terminals reliably take by OSC 52; larger copies are dropped by many without a word."""


def rows_as_text(table: Table, frame: pd.DataFrame) -> str:
    """Rows as tab-separated text with a header line: what a spreadsheet takes from a clipboard."""
    from profilers.rules.names import visible

    lines = ["\t".join(column.name for column in table.columns)]
    columns = [frame[column.name].tolist() for column in table.columns]
    for values in zip(*columns, strict=True):
        lines.append("\t".join(visible(str(value)) for value in values))
    return "\n".join(lines) + "\n" if len(lines) > 2 else lines[-1] + "\n"


def copy_text(app: App, text: str, what: str) -> str:  # type: ignore[type-arg]
    """Copy, and return the sentence that says where the text is now."""
    size = len(text.encode())
    if size > LIMIT:
        path = write_aside(text)
        return f"{what}: {size:,} bytes are too many for a terminal's clipboard. Written to {path}"
    app.copy_to_clipboard(text)
    if os.environ.get("TMUX") and shutil.which("tmux"):
        # tmux drops a program's own OSC 52 by default; its load-buffer -w reaches the outer terminal whatever the setting.
        try:
            subprocess.run(
                ["tmux", "load-buffer", "-w", "-"], input=text.encode(), check=True, timeout=2, capture_output=True
            )
        except (OSError, subprocess.SubprocessError):
            return f"{what}: sent to the terminal, but tmux took no copy (its setting may drop it). e writes a file."
        return f"{what}: in tmux's buffer, and sent to the terminal."
    return f"{what}: sent to the terminal (OSC 52). If nothing arrives, the terminal does not take it: e writes a file."


def write_aside(text: str) -> Path:
    """A file of the user's own for what is too large to copy."""
    handle, name = tempfile.mkstemp(prefix="kernelscope-", suffix=".tsv")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return Path(name)
