"""The command line's grammar. Only the module of the command that was typed is imported, so ``--help`` stays quick."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tui.cli.errors import UsageError
from tui.cli.near import hint
from tui.themes import THEMES

COMMANDS = {
    "run": "profile models, suites, scripts or functions; watch live",
    "attach": "the screen on a run that goes on, or on a finished one",
    "ls": "list models, suites, devices or runs",
    "show": "one table of a run or a recording, in any format",
    "compare": "two or more runs or recordings side by side",
    "whatif": "what a speed-up would buy",
    "suite": "the tables of several workloads that ran together",
    "advise": "what to do next, and what it would buy",
    "gemms": "time each matrix multiply of a run alone",
    "report": "one page, Markdown or LaTeX to share",
    "import": "keep a recording among the runs",
    "replay": "play a recording as if it were measured now",
    "stop": "stop runs that go on",
    "pause": "let runs rest between two steps",
    "resume": "let paused runs go on",
    "first": "put waiting runs before the others",
    "calibrate": "measure what devices compute and move at most",
    "doctor": "what this machine offers and lacks, for bug reports",
}
"""Command -> one line. The module is ``tui.cli.commands.NAME`` (``import`` is spelt ``import_`` there)."""

EPILOG = """\
exit codes:
  0  fine              2  usage: the command line cannot be meant
  1  failed            3  some of it failed (one of several runs or files)
                     130  interrupted

Data go to stdout, talk goes to stderr. 'kernelscope COMMAND --help' says more.

environment:
  KERNELSCOPE_RUNS     where runs are kept (as --runs)
  KERNELSCOPE_DEBUG=1  the traceback of an unexpected error
  KERNELSCOPE_DCGM     live SM and DRAM of GPUs before Hopper: a dcgm-exporter here (http://localhost:9400/metrics),
                       or dcgmi for DCGM's host engine
  KERNELSCOPE_THEME    the screen's theme (as --theme)
  NO_COLOR             no colours (as --no-color)
"""

_VALUED = ("--runs", "--rules", "--theme")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised and not printed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("kernelscope")
        except PackageNotFoundError:
            number = "(not installed)"
        sys.stdout.write(f"kernelscope {number}\n")
        parser.exit()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments as a namespace; ``command`` is None without one. Raises :class:`UsageError`; ``--help`` exits."""
    words, script_args = _split(list(argv))
    place = _command_place(words)
    typed = words[place] if place is not None else None
    notes: tuple[str, ...] = ()
    if typed == "run" and place is not None:
        from tui.cli.launchers import launched

        if found := launched(argv, place + 1):
            words, script_args, notes = found.words, found.script_args, found.notes
    if typed is not None and typed not in COMMANDS:
        raise UsageError(_unknown(typed, argv))
    top = Parser(
        prog="kernelscope",
        usage="kernelscope [options] [COMMAND ...]",
        description="Where the time of a model really goes. Without a command: the screen.",
        epilog=EPILOG,
    )
    _global_options(top, first=True)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands", prog="kernelscope")
    for name, summary in COMMANDS.items():
        if name != typed:
            commands.add_parser(name, help=summary)
            continue
        module = importlib.import_module(f"tui.cli.commands.{name if name != 'import' else 'import_'}")
        sub = commands.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(sub)
        _global_options(sub, first=False)
        sub.set_defaults(call=module.run)
    args = top.parse_args(words)
    args.script_args, args.typed, args.launcher_notes = script_args, list(argv), notes
    args.rules = [*args.rules, *getattr(args, "rules_after", [])]
    if script_args is not None and typed != "run":
        raise UsageError("'--' is for the arguments of a script: kernelscope run train.py -- --its args")
    return args


def _split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """Our words, and what follows the first ``--`` (the script's own), which argparse must not see."""
    if "--" not in argv:
        return argv, None
    place = argv.index("--")
    return argv[:place], argv[place + 1 :]


def _command_place(words: Sequence[str]) -> int | None:
    place = 0
    while place < len(words):
        if words[place] in _VALUED:
            place += 2
        elif words[place].startswith("-"):
            place += 1
        else:
            return place
    return None


def _unknown(word: str, argv: Sequence[str]) -> str:
    from tui.cli.launchers import command, is_launcher

    if word.endswith(".py") or is_launcher(word):
        place = list(argv).index(word)
        return f"no command is called '{word}'; to profile it: {command([*argv[:place], 'run'], argv[place:])}"
    if Path(word).exists():
        return f"no command is called '{word}'; to look into a file: kernelscope show {word}"
    return f"no command is called '{word}'{hint(word, COMMANDS)} (see kernelscope --help)"


def _global_options(parser: argparse.ArgumentParser, *, first: bool) -> None:
    """Options that may stand before or after the command: those after it must not undo those before."""

    def default(value: object) -> Any:
        return value if first else argparse.SUPPRESS

    group = parser.add_argument_group("for every command")
    group.add_argument("--runs", metavar="DIR", type=Path, default=default(None), help="where runs are kept")
    group.add_argument(
        "--rules",
        metavar="FILE",
        type=Path,
        action="append",
        dest="rules" if first else "rules_after",
        default=default([]),
        help="a TOML file of rules that go before the built-in ones (repeatable)",
    )
    group.add_argument("--ascii", action="store_true", default=default(False), help="no glyphs outside ASCII")
    group.add_argument("--no-color", action="store_true", default=default(False), help="no colours")
    group.add_argument(
        "--theme", metavar="NAME", choices=THEMES, default=default(None), help=f"the screen's: {', '.join(THEMES)}"
    )
    group.add_argument(
        "--no-mouse", action="store_true", default=default(False), help="leave the mouse to the terminal"
    )
    if first:
        group.add_argument("--version", nargs=0, action=_Version, help="print the version")
