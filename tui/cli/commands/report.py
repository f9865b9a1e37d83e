"""A report to share: one page that needs no network, or with --format Markdown for a pull request, LaTeX for a paper.

The page holds the tables and pictures of the screen; a click on a heading sorts. It can be mailed, printed, and read
on a phone. Without -o, Markdown and LaTeX go to stdout, and so does the page where stdout is no terminal.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tui.cli.errors import FINE, UsageError
from tui.cli.output import emit, talk, talk_notes
from tui.cli.targets import add_analysis_arguments, open_target, options_of
from tui.report import FORMATS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN|FILE", help="a run or a recording")
    parser.add_argument("--format", choices=tuple(FORMATS), help="default: what -o's extension says, else html")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to FILE instead of stdout")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from tui.export import save
    from tui.report import render

    format = chosen_format(args)
    if format == "html" and args.output is None and sys.stdout.isatty():
        raise UsageError("a page is not for a terminal: say -o report.html")
    opened = open_target(args.target, args)
    if not len(opened.recording.kernels):
        raise UsageError(f"{args.target} holds no kernel (yet): there is nothing to report")
    from tui.report.content import content

    data = render(content(opened.recording, opened.title, opened.run, options_of(args)), format)
    if args.output is None:
        emit(data)
    else:
        talk(f"wrote {save(data, args.output, force=args.force)}")
    talk_notes(opened.recording.notes, args.target)
    return FINE


def chosen_format(args: argparse.Namespace) -> str:
    """The format that was asked for, by word or by extension. Raises :class:`UsageError` for an extension that says none."""
    if args.format:
        return str(args.format)
    if args.output is None:
        return "html"
    known = {extension: name for name, extension in FORMATS.items()} | {".htm": "html", ".markdown": "markdown"}
    extension = args.output.suffix.lower()
    if extension not in known:
        raise UsageError(f"{args.output}: no report format has that extension; say --format {' or '.join(FORMATS)}")
    return known[extension]
