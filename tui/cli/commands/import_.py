"""Keep recordings among the runs: they are read once, and are then in the screen's list and in 'ls runs'."""

from __future__ import annotations

import argparse
from pathlib import Path

from tui.cli.errors import FAILED, FINE, SOME_FAILED
from tui.cli.output import talk, talk_notes
from tui.cli.targets import Progress, root_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="a recording: torch.profiler, Nsight Systems or Compute"
    )


def run(args: argparse.Namespace) -> int:
    from profilers.readers.errors import ReadError
    from profilers.runs.folder import RunsError
    from profilers.runs.opening import import_recording

    failed = 0
    for text in args.files:
        progress = Progress(f"reading {text}")
        try:
            folder = import_recording(text, root_of(args), progress)
        except (ReadError, RunsError) as error:
            progress.clear()
            talk(f"kernelscope: {error}")
            failed += 1
            continue
        progress.clear()
        print(folder.id, flush=True)
        talk(f"{Path(text).name} is now run {folder.id}")
        talk_notes(folder.recording().notes, folder.id)
    return FINE if not failed else FAILED if failed == len(args.files) else SOME_FAILED
