"""From the command line to the screen, where there is a terminal that can show one."""

from __future__ import annotations

import argparse
import os
import sys

from tui.cli.errors import UsageError

_HEADLESS = "'kernelscope run MODEL --no-tui' prints progress and tables, 'kernelscope show RUN TABLE' one table"


def has_terminal() -> bool:
    """Whether a person sits at all three: keys come from stdin, the screen goes to stderr, stdout is no file."""
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def refuse_dumb(instead: str = _HEADLESS) -> None:
    """Raise :class:`UsageError` on a terminal that cannot place a cursor."""
    if os.environ.get("TERM", "") in ("dumb", ""):
        raise UsageError(f"TERM={os.environ.get('TERM', '')} cannot show a screen; use --no-tui: {instead}")


def open_screen(args: argparse.Namespace, run: str | None = None) -> int:
    """Open the screen (on ``run``, a run's id) and return its exit code."""
    if not has_terminal():
        raise UsageError(f"the screen needs a terminal; without one: {_HEADLESS}")
    refuse_dumb()
    from tui.app import run_app

    if args.no_color:
        os.environ["NO_COLOR"] = "1"
    return run_app(run=run, root=args.runs, ascii=args.ascii)
