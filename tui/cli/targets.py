"""RUN|FILE on the command line -> a recording, and where the runs folder is."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.analysis.options import Options
from profilers.analysis.registry import TABLES, Table
from tui.cli.errors import UsageError
from tui.cli.near import hint

if TYPE_CHECKING:
    from profilers.rules.matcher import RuleSet
    from profilers.runs.opening import Opened
    from profilers.tables import Recording


def root_of(args: argparse.Namespace) -> Path:
    """The runs folder: ``--runs``, else where the environment says."""
    from profilers.runs.folder import runs_root

    root: Path = args.runs.expanduser() if args.runs else runs_root()
    return root.absolute()


def table_of(name: str) -> Table:
    """The result table of a name. Raises :class:`UsageError` with the nearest one."""
    if name not in TABLES:
        raise UsageError(f"no table is called '{name}'{hint(name, TABLES)}; there are {', '.join(TABLES)}")
    return TABLES[name]


def add_analysis_arguments(parser: argparse.ArgumentParser) -> None:
    """Choices that change what a table counts."""
    parser.add_argument(
        "--attention-apart",
        action="store_true",
        help="fused attention is not counted as GEMM in totals (default: it is, as in NonGEMM Bench)",
    )


def options_of(args: argparse.Namespace) -> Options:
    """The analysis options that the arguments ask for."""
    return Options(attention_as_gemm=not args.attention_apart)


def rules_of(args: argparse.Namespace) -> RuleSet:
    """The rules in force: built-in, the user's own, and those of ``--rules``. Raises :class:`UsageError`."""
    from profilers.rules.load import RulesError, load_rules

    try:
        return load_rules(args.rules)
    except RulesError as error:
        raise UsageError(str(error)) from None


def with_rules(recording: Recording, args: argparse.Namespace) -> Recording:
    """The recording, classified anew where ``--rules`` names rules of its own. Raises :class:`UsageError`."""
    if not args.rules:
        return recording
    from profilers.analysis.prepare import prepare

    return prepare(recording, rules=rules_of(args))


def open_target(text: str, args: argparse.Namespace) -> Opened:
    """The recording of a run or a file. A long read shows how far it is. Raises the readers' own errors."""
    import dataclasses

    from profilers.runs.opening import open_recording

    progress = Progress(f"reading {text}")
    try:
        opened = open_recording(text, root_of(args), progress)
    finally:
        progress.clear()
    return dataclasses.replace(opened, recording=with_rules(opened.recording, args))


class Progress:
    """A share from 0 to 1, rewritten on one line of a terminal's stderr; silent where nobody looks."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.shown = -1
        self.terminal = sys.stderr.isatty()

    def __call__(self, share: float) -> None:
        percent = int(share * 100)
        if self.terminal and percent != self.shown:
            self.shown = percent
            sys.stderr.write(f"\r\x1b[K{self.what} {percent} %")
            sys.stderr.flush()

    def clear(self) -> None:
        if self.shown >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
