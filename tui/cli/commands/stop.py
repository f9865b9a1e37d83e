"""Stop runs that go on. What they have recorded stays."""

from __future__ import annotations

import argparse

from tui.cli.errors import FAILED, FINE, SOME_FAILED
from tui.cli.output import talk
from tui.cli.targets import root_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs_to_stop", metavar="RUN", nargs="+", help="a run's id, the beginning of it, its name, or 'last'"
    )


def run(args: argparse.Namespace) -> int:
    from profilers.runs.folder import RunsError, find_run
    from profilers.runs.launch import stop

    failed = 0
    for text in args.runs_to_stop:
        try:
            folder = find_run(root_of(args), text)
            status = folder.effective_status()
            if not status.live:
                talk(f"{folder.id} does not go on: it is {status.state}")
                continue
            stop(folder)
            talk(f"{folder.id}: stopping; its {status.windows_done} windows stay")
        except RunsError as error:
            talk(f"kernelscope: {error}")
            failed += 1
    return FINE if not failed else FAILED if failed == len(args.runs_to_stop) else SOME_FAILED
