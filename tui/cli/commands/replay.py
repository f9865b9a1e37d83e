"""Play a recording as if it were measured now: a run whose windows arrive at the pace at which they were recorded."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from tui.cli.commands import run as run_command
from tui.cli.errors import UsageError
from tui.cli.screen import has_terminal, require_screen
from tui.cli.targets import add_analysis_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a recording")
    parser.add_argument("--speed", metavar="X", type=_speed, default=1.0, help="X times as fast (default: 1)")
    parser.add_argument("--no-tui", action="store_true", help="no screen: progress on stderr, final tables on stdout")
    parser.add_argument("--detach", action="store_true", help="start, print the run's id, and come back at once")
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from profilers.runs.spec import Spec

    path = args.file.expanduser()
    if not path.is_file():
        raise UsageError(f"there is no file {args.file}")
    screen = has_terminal() and not args.no_tui and not args.detach
    if screen:
        require_screen()
    spec = Spec(name=path.name, workload=str(path.resolve()), target="replay", speed=args.speed)
    return run_command.start([spec], args, screen=screen)


def _speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a speed: a number above 0, e.g. 10")
    return value
