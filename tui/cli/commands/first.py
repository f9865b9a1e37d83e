"""Put waiting runs before all your others on their devices, of any launch. With several: the one named first goes first.

What goes on there goes on to its end. Runs of other users of one runs folder do not give way. For a
run over several devices those that are free are kept free until it has them all."""

from __future__ import annotations

import argparse

from tui.cli.many import each_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs_to_move", metavar="RUN", nargs="+", help="a waiting run's id, the beginning of it, or its name"
    )


def run(args: argparse.Namespace) -> int:
    from profilers.runs.launch import first_in_queue

    return each_run(args, list(reversed(args.runs_to_move)), first_in_queue)
