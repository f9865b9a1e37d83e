"""Where things are kept, whether they can be written, and how much room there is."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tui.cli.checks.check import Check
from tui.cli.targets import root_of

ROOM_GB = 1.0
"""Less free space than this is worth a word: a window of a large model takes tens of megabytes while it is read."""


def checks(args: argparse.Namespace) -> Iterator[Check]:
    """The runs folder, and the model cache that pretrained weights need."""
    root = root_of(args)
    there = next(place for place in (root, *root.parents) if place.exists())
    if not there.is_dir():
        yield Check(
            "places", "runs folder", str(root), "problem", f"{there} is not a folder: choose another with --runs"
        )
    elif not os.access(there, os.W_OK | os.X_OK):
        yield Check(
            "places", "runs folder", str(root), "problem", f"{there} cannot be written: choose another with --runs"
        )
    else:
        yield Check("places", "runs folder", str(root) + ("" if root.exists() else " (made by the first run)"))
    try:
        free = shutil.disk_usage(there).free / 1e9
    except OSError as error:
        yield Check("places", "free space", "not known", "note", error.strerror or str(error))
    else:
        low = free < ROOM_GB
        yield Check(
            "places", "free space", f"{free:.1f} GB", "note" if low else "ok", "a run may end early" if low else ""
        )
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    yield Check(
        "places", "model cache", str(Path(home).expanduser()), "ok", "used only with --weights pretrained and model ids"
    )
