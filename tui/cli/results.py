"""The tables that a run without a screen ends with."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from profilers.analysis.registry import TABLES
from tui.cli.errors import FAILED, FINE, SOME_FAILED
from tui.cli.output import Look, emit, talk, talk_notes
from tui.cli.targets import options_of, with_rules
from tui.export import render

if TYPE_CHECKING:
    from profilers.runs.folder import RunFolder

FINAL = (("summary", None), ("shares", None), ("groups", None), ("kernels", 15))
"""Tables and how many of their rows."""

RANKED = (FINAL[0], ("ranks", None), *FINAL[1:])
"""The same for a script of several ranks."""

COMPUTED = (*FINAL, ("bound", 15))
"""The same for a run on the meta device."""


def print_results(runs: Sequence[RunFolder], args: argparse.Namespace) -> int:
    """Tables of every run on stdout; on stderr why some failed and how their logs end. Returns the exit code: that of
    the script, where one script is all that ran."""
    from profilers.runs.folder import RunsError

    failed = 0
    script = len(runs) == 1 and runs[0].spec().target == "script"
    computed = {folder.id for folder in runs if folder.spec().device == "meta"}
    for folder in runs:
        status = folder.effective_status()
        lost = status.state in ("failed", "died")
        failed += lost
        if status.state != "finished":
            talk(f"{folder.id}: {status.state}" + (f": {status.cause}" if status.cause else ""))
        if lost and not script:
            for text in folder.log_tail(8):
                talk(f"  | {text}")
        if script or folder.id in computed:
            for text in status.notes:
                talk(f"note: {text}")
        if not folder.window_ids():
            continue
        try:
            _print(folder, args, COMPUTED if folder.id in computed else RANKED if folder.spec().ranks > 1 else FINAL)
        except RunsError as error:
            talk(f"kernelscope: {error}")
            failed += not lost
    if len(runs) > 1:
        _print_suite(runs, args)
    if script and failed and (code := runs[0].effective_status().exit_code):
        return code if code > 0 else 128 - code
    return FINE if not failed else FAILED if failed == len(runs) else SOME_FAILED


def _print_suite(runs: Sequence[RunFolder], args: argparse.Namespace) -> None:
    """Several workloads end with the tables that set them side by side."""
    from tui.cli.commands.suite import members_of, print_suite

    members = members_of([folder for folder in runs if folder.window_ids()], args)
    if len(members) > 1:
        print(flush=True)
        as_text = {"format": None, "output": None, "force": False, "table": None}
        print_suite(members, argparse.Namespace(**{**vars(args), **as_text}))


def _print(folder: RunFolder, args: argparse.Namespace, tables: Sequence[tuple[str, int | None]]) -> None:
    recording = with_rules(folder.recording(), args)
    look = Look.of(args)
    for name, rows in tables:
        table = TABLES[name]
        frame = table.compute(recording, options_of(args))
        shown = frame if rows is None else frame.head(rows)
        left = f" (the first {rows} of {len(frame):,})" if len(shown) < len(frame) else ""
        meta = {"title": f"{folder.id}: {name}{left}"}
        emit(render(shown, table, "table", meta=meta, ascii=look.ascii, width=look.width, colour=look.colour) + b"\n")
    talk_notes(recording.notes, folder.id)
