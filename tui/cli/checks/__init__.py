"""What ``doctor`` looks at, one module a topic. Nothing here imports torch: versions come from what is installed."""

from __future__ import annotations

import argparse

from tui.cli.checks.check import Check


def all_checks(args: argparse.Namespace) -> list[Check]:
    """Every check, in the order in which a person would ask."""
    from tui.cli.checks import devices, packages, places, system, terminal, tools

    return [
        *packages.checks(),
        *system.checks(),
        *devices.checks(),
        *tools.checks(),
        *terminal.checks(),
        *places.checks(args),
    ]
