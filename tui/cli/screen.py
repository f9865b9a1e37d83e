"""From the command line to the screen, where there is a terminal that can show one."""

from __future__ import annotations

import argparse
import os
import sys

from tui.cli.errors import UsageError


def has_terminal() -> bool:
    """Whether a person sits at all three: keys come from stdin, the screen goes to stderr, stdout is no file."""
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def require_screen() -> None:
    """Raise :class:`UsageError`, with what to do instead, where the screen cannot be shown."""
    from tui.lifecycle import refuse

    if why := refuse(os.environ, has_terminal()):
        raise UsageError(why.removeprefix("kernelscope: "))


def open_screen(args: argparse.Namespace, run: str | None = None) -> int:
    """Open the screen (on ``run``, a run's id) and return its exit code."""
    require_screen()
    from tui.app import run_app
    from tui.cli.targets import root_of

    if args.no_color:
        os.environ["NO_COLOR"] = "1"
    return run_app(run=run, root=root_of(args), ascii=args.ascii, theme=args.theme, mouse=not args.no_mouse)
