"""One table of a run or of a recording, on stdout or into a file.

TABLE: summary (the default), shares, shares_by_group, groups, kernels, operators, expansion, coverage, gemms, roofline,
roofline_groups, roofs, states, transitions, runlengths, utilization, timeline, idle, communication, ranks, whatif,
fusion, fusion_rate, advice, bound, notes; of a run also samples.

With --follow the table is printed again whenever a window has been recorded, until the run ends. In JSON each of these
is one line: {"windows": 7, "table": "kernels", "rows": [...]}.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.analysis.registry import Table
from tui.cli.errors import FAILED, FINE, UsageError
from tui.cli.output import add_output_arguments, chosen_format, emit, print_table, talk, talk_notes
from tui.cli.targets import add_analysis_arguments, open_target, options_of, root_of, rules_of, table_of, with_rules
from tui.telemetry import SAMPLES

if TYPE_CHECKING:
    import pandas as pd

    from profilers.runs.folder import RunFolder
    from profilers.tables import Recording

POLL_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="RUN|FILE", help="a run (its id, the beginning of it, its name, or 'last') or a recording"
    )
    parser.add_argument("table", metavar="TABLE", nargs="?", default="summary", help="which table; default: summary")
    add_output_arguments(parser)
    parser.add_argument("--follow", action="store_true", help="print again whenever a window lands, until the run ends")
    parser.add_argument(
        "--why", action="store_true", help="with groups: which rule, from which line of which file, decided"
    )
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    table = SAMPLES if args.table == "samples" else _table(args)
    chosen_format(args)
    if args.follow:
        return _follow(table, args)
    if table is SAMPLES:
        folder = _run_folder(args)
        print_table(folder.samples(), table, args, {"title": folder.id, "run": folder.id})
        return FINE
    opened = open_target(args.target, args)
    print_table(_frame(opened.recording, table, args), table, args, _meta(opened.title, args.target))
    talk_notes(opened.recording.notes, args.target)
    if opened.run is not None and not opened.run.window_ids():
        from profilers.runs.status import in_words

        talk(f"note: {opened.run.id} has no window (yet): {in_words(opened.run.effective_status().state)}")
    return FINE


def _table(args: argparse.Namespace) -> Table:
    table = table_of(args.table)
    if args.why:
        if table.name != "groups":
            raise UsageError("--why explains groups: kernelscope show RUN groups --why (kernels have a rule column)")
        from tui.cli.why import WHY

        return WHY
    return table


def _frame(recording: Recording, table: Table, args: argparse.Namespace) -> pd.DataFrame:
    if args.why:
        from tui.cli.why import why

        return why(recording, rules_of(args))
    return table.compute(recording, options_of(args))


def _meta(title: str, target: str) -> dict[str, str]:
    from profilers.runs.opening import printable_name

    return {"title": title, "recording": printable_name(Path(target))}


def _run_folder(args: argparse.Namespace) -> RunFolder:
    from profilers.runs.folder import RunsError, find_run

    try:
        return find_run(root_of(args), args.target)
    except RunsError:
        if not Path(args.target).expanduser().exists():
            raise
        why = (
            "it does not grow: leave out --follow" if args.follow else "it has no samples, which are taken beside a run"
        )
        raise UsageError(f"{args.target} is a recording; {why}") from None


def _follow(table: Table, args: argparse.Namespace) -> int:
    """Print the table for every number of windows that is seen, the last one when the run has ended."""
    folder = _run_folder(args)
    seen = -1
    force = args.force
    while True:
        live = folder.effective_status().live
        windows = len(folder.window_ids())
        if windows != seen and (windows or table is SAMPLES):
            seen = windows
            args.force = force if args.output is None else True
            _print_again(folder, windows, table, args)
        if not live:
            break
        time.sleep(POLL_S)
    status = folder.effective_status()
    talk(f"{folder.id}: {status.state}, {status.windows_done} windows" + (f": {status.cause}" if status.cause else ""))
    return FINE if status.state in ("finished", "stopped") else FAILED


def _print_again(folder: RunFolder, windows: int, table: Table, args: argparse.Namespace) -> None:
    frame = folder.samples() if table is SAMPLES else _frame(with_rules(folder.recording(), args), table, args)
    if chosen_format(args) == "json" and args.output is None:
        import msgspec

        from tui.export.records import records

        emit(msgspec.json.encode({"windows": windows, "table": table.name, "rows": records(frame)}) + b"\n")
        return
    print_table(frame, table, args, {"title": f"{folder.id}, {windows} windows", "run": folder.id})
