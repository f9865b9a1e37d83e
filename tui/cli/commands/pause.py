"""Let runs rest: a waiting one is passed over, one that goes on waits between two steps. Its device stays reserved."""

from __future__ import annotations

import argparse

from tui.cli.many import each_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs_to_pause", metavar="RUN", nargs="+", help="a run's id, the beginning of it, its name, or 'last'"
    )


def run(args: argparse.Namespace) -> int:
    from profilers.runs.launch import pause

    return each_run(args, args.runs_to_pause, pause, "paused; 'kernelscope resume' lets it go on")
