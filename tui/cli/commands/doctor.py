"""What this machine offers and lacks, and what each missing thing costs. Paste it into a bug report."""

from __future__ import annotations

import argparse

from profilers.analysis.registry import Col, Table
from tui.cli.errors import FAILED, FINE
from tui.cli.output import add_output_arguments, print_table, talk

CHECKS = Table(
    "doctor",
    "What does this machine offer, and what does it lack?",
    (
        Col("topic", "topic"),
        Col("check", "check"),
        Col("value", "value"),
        Col(
            "state",
            "state",
            "text",
            doc="ok | note (something is missing, all else works) | problem (runs cannot work)",
        ),
        Col("meaning", "what it means"),
    ),
    "",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import pandas as pd

    from tui.cli.checks import all_checks

    checks = all_checks(args)
    names = [column.name for column in CHECKS.columns]
    frame = pd.DataFrame([[getattr(check, name) for name in names] for check in checks], columns=names)
    print_table(frame, CHECKS, args, {})
    problems = [check for check in checks if check.state == "problem"]
    for check in problems:
        talk(f"problem: {check.check}: {check.meaning}")
    return FAILED if problems else FINE
