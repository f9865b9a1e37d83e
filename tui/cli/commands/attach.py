"""The screen on a run that goes on, or on a finished one. Leaving the screen ends no run."""

from __future__ import annotations

import argparse

from tui.cli.screen import open_screen
from tui.cli.targets import root_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="a run's id, the beginning of it, its name; default: the newest"
    )


def run(args: argparse.Namespace) -> int:
    from profilers.runs.folder import find_run

    return open_screen(args, find_run(root_of(args), args.run or "last").id)
