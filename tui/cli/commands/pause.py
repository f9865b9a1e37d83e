"""Let runs rest: a waiting one is passed over, one that goes on waits between two steps. Its device stays reserved.

A script in which no step was found goes on, unrecorded. Several ranks rest after one step that all of them have still
to take, some seconds later; in a script's first seconds, when steps are not counted yet, one may rest in the middle of
the next, where its collective gives up after a while (NCCL: 10 minutes)."""

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
