"""What a speed-up would buy: of kernel time (Amdahl on the measured times) and of the step's wall time.

Factors are speed-ups: --gemm 2 makes all matrix multiply twice as fast. --window D adds the path-forward model: up to D
kernels in different states run side by side at the cost of the longest.
"""

from __future__ import annotations

import argparse
import math

from profilers.analysis.options import WhatIf
from profilers.rules.taxonomy import GROUPS
from tui.cli.errors import FINE, UsageError
from tui.cli.near import hint
from tui.cli.output import add_output_arguments, print_table, talk_notes
from tui.cli.targets import add_analysis_arguments, open_target, options_of, table_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN|FILE", help="a run or a recording")
    parser.add_argument("--gemm", metavar="X", type=_factor, default=1.0, help="matrix multiply X times as fast")
    parser.add_argument("--nongemm", metavar="X", type=_factor, default=1.0, help="everything else X times as fast")
    parser.add_argument(
        "--group", metavar="NAME=X", type=_named, action="append", default=[], help="one group (repeatable)"
    )
    parser.add_argument(
        "--kernel", metavar="NAME=X", type=_named, action="append", default=[], help="one kernel, by its full name"
    )
    parser.add_argument(
        "--window", metavar="D", type=_window, default=1, help="kernels considered together (default: 1)"
    )
    add_output_arguments(parser)
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import dataclasses

    from profilers.analysis.whatif import WhatIfError

    for name, _ in args.group:
        if name not in GROUPS:
            raise UsageError(f"no group is called '{name}'{hint(name, GROUPS)}; there are {', '.join(GROUPS)}")
    case = WhatIf(args.gemm, args.nongemm, args.window, dict(args.group), dict(args.kernel))
    options = options_of(args)
    if case != WhatIf():
        options = dataclasses.replace(options, whatif=case)
    opened = open_target(args.target, args)
    table = table_of("whatif")
    try:
        frame = table.compute(opened.recording, options)
    except WhatIfError as error:
        raise UsageError(str(error)) from None
    print_table(frame, table, args, {"title": opened.title})
    talk_notes(opened.recording.notes, args.target)
    return FINE


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a speed-up: a number above 0, e.g. 2 for twice as fast")
    return value


def _named(text: str) -> tuple[str, float]:
    # Kernel names hold '=' themselves (lambda types), so the last one separates.
    name, equals, factor = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=X, e.g. normalization=2")
    return name, _factor(factor)


def _window(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of kernels, 1 or more")
    return int(text)
