"""Let runs rest: a waiting one is passed over, one that goes on waits between two steps. Its device stays reserved.

A script in which no step was found goes on, unrecorded. Of several ranks some may wait for the others in the middle of a
step: let them go on before their collectives give up (after 10 minutes with NCCL, 30 with gloo, unless the script says
otherwise)."""

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
