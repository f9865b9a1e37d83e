"""What to do next: at most five findings, each with its evidence, what to do about it, and what it would buy.

Gains are speed-ups of kernel time (device) and of the step's wall time, of each change alone and at best, from the
what-if model on the recorded times. A rule that cannot price its change says nothing.
"""

from __future__ import annotations

import argparse

from tui.cli.errors import FINE
from tui.cli.output import Look, add_output_arguments, chosen_format, emit, print_table, talk, talk_notes
from tui.cli.targets import add_analysis_arguments, open_target, options_of, table_of

WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN|FILE", help="a run or a recording")
    add_output_arguments(parser)
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from tui.advice_text import CAVEAT, NOTHING, blocks, folded

    format = chosen_format(args)
    opened = open_target(args.target, args)
    table = table_of("advice")
    frame = table.compute(opened.recording, options_of(args))
    if format != "table" or args.output is not None:
        print_table(frame, table, args, {"title": opened.title})
    else:
        look = Look.of(args)
        width = look.width or WIDTH
        lines = []
        for block in blocks(frame, look.ascii):
            lines.append(f"{block.title}   {block.buys}")
            lines += [f"   {label:<10}{text}" for label, text in folded(block, width)]
            lines.append("")
        emit("".join(line + "\n" for line in lines[:-1]).encode())
        talk(
            CAVEAT
            if len(frame)
            else NOTHING
            if len(opened.recording.kernels)
            else "No kernel was recorded: nothing to advise."
        )
    talk_notes(opened.recording.notes, args.target)
    return FINE
