"""Stop runs that go on. What they have recorded stays."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tui.cli.many import each_run

if TYPE_CHECKING:
    from profilers.runs.folder import RunFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs_to_stop", metavar="RUN", nargs="+", help="a run's id, the beginning of it, its name, or 'last'"
    )


def run(args: argparse.Namespace) -> int:
    from profilers.runs.launch import stop
    from profilers.runs.status import in_words

    def ended(folder: RunFolder) -> str:
        status = folder.effective_status()
        if not status.live:
            return f"does not go on: {in_words(status.state)}"
        stop(folder)
        return f"stopping; its {status.windows_done} windows stay"

    return each_run(args, args.runs_to_stop, ended)
