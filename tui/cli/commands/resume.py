"""Let paused runs go on."""

from __future__ import annotations

import argparse

from tui.cli.many import each_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs_to_resume", metavar="RUN", nargs="+", help="a run's id, the beginning of it, its name, or 'last'"
    )


def run(args: argparse.Namespace) -> int:
    from profilers.runs.launch import resume

    return each_run(args, args.runs_to_resume, lambda run: "goes on" if resume(run) else "was not paused")
