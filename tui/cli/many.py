"""Commands that do one thing to each run that is named: what fails is said, and the rest is done."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tui.cli.errors import FAILED, FINE, SOME_FAILED
from tui.cli.output import talk
from tui.cli.targets import root_of

if TYPE_CHECKING:
    from profilers.runs.folder import RunFolder


def each_run(
    args: argparse.Namespace, names: Sequence[str], act: Callable[[RunFolder], str | None], done: str = ""
) -> int:
    """Find each run and ``act`` on it; what that returned is said of it afterwards, else ``done``. Returns the exit code."""
    from profilers.runs.folder import RunsError, find_run

    failed = 0
    for text in names:
        try:
            folder = find_run(root_of(args), text)
            said = act(folder) or done
            talk(f"{folder.id}: {said}")
        except RunsError as error:
            talk(f"kernelscope: {error}")
            failed += 1
    return FINE if not failed else FAILED if failed == len(names) else SOME_FAILED
