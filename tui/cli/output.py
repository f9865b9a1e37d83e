"""What a command prints: data to stdout as bytes, talk to stderr, and how the terminal wants it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.analysis.registry import Table
from tui.cli.errors import CommandError, UsageError
from tui.export import BINARY, FORMATS, format_for, render, save

if TYPE_CHECKING:
    import pandas as pd

    from profilers.tables import Note

MAX_NOTES = 6


def emit(data: bytes) -> None:
    """Data to stdout, exactly these bytes."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence()
        raise CommandError(f"cannot write the output: {error.strerror}") from None


def silence() -> None:
    """Nothing more goes to stdout: what Python still holds for it must not fail a second time when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def talk(line: str) -> None:
    """A line for people, to stderr. Control characters in it are made visible (texts may come from strangers)."""
    from profilers.rules.names import visible

    sys.stderr.write(plain(visible(line)) + "\n")
    sys.stderr.flush()


def plain(text: str) -> str:
    """The text as stderr's encoding can show it."""
    encoding = sys.stderr.encoding or "ascii"
    try:
        text.encode(encoding)
        return text
    except (UnicodeEncodeError, LookupError):
        from tui.format import ascii_text

        return ascii_text(text)


@dataclass(frozen=True)
class Look:
    """How the terminal table is drawn. ``width`` None: as wide as it needs (a pipe or a file folds nothing)."""

    ascii: bool
    colour: bool
    width: int | None

    @classmethod
    def of(cls, args: argparse.Namespace, *, file: bool = False) -> Look:
        """For stdout, or for a file: by the options, ``NO_COLOR``, the encoding, and whether a terminal reads it."""
        terminal = sys.stdout.isatty() and not file
        utf8 = (sys.stdout.encoding or "ascii").lower().replace("-", "") in ("utf8", "utf8mb4")
        colour = terminal and not args.no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = shutil.get_terminal_size().columns if terminal else None
        return cls(args.ascii or (not utf8 and not file), colour, width)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """``--format``, ``-o`` and ``--force``: the same for every command that prints a table."""
    parser.add_argument(
        "--format", choices=FORMATS, help="default: table, or what -o's extension says; csv, json and parquet are exact"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to FILE instead of stdout")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def chosen_format(args: argparse.Namespace) -> str:
    """The format that was asked for. Raises :class:`UsageError` where bytes would go to a terminal."""
    format: str = args.format or (format_for(args.output) if args.output else None) or "table"
    if format in BINARY and args.output is None and sys.stdout.isatty():
        raise UsageError(f"{format} is not for a terminal: say -o FILE")
    return format


def print_table(frame: pd.DataFrame, table: Table, args: argparse.Namespace, meta: Mapping[str, str]) -> None:
    """The frame to stdout or to ``-o FILE``, in the format asked for. Raises :class:`tui.export.ExportError`."""
    format = chosen_format(args)
    look = Look.of(args, file=args.output is not None)
    data = render(frame, table, format, meta=meta, ascii=look.ascii, width=look.width, colour=look.colour)
    if args.output is None:
        emit(data)
    else:
        talk(f"wrote {save(data, args.output, force=args.force)} ({len(frame):,} rows)")


def talk_notes(notes: Iterable[Note], where: str) -> None:
    """What was dropped, repaired or assumed, on stderr; what a long list leaves out is named.

    What nearly every recording has (utilization that is estimated or unknown) stands last, whatever its count.
    """
    notes = sorted(notes, key=lambda note: (note.code.startswith("utilization_"), -note.count))
    for note in notes[:MAX_NOTES]:
        talk(f"note: {note.text}" + (f" ({note.count:,} times)" if note.count > 1 else ""))
    if len(notes) > MAX_NOTES:
        talk(f"note: {len(notes) - MAX_NOTES} more: kernelscope show {where} notes")
