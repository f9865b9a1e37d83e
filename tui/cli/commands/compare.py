"""Two or more runs or recordings side by side: what grew, what shrank, what is new, and the speed-up.

The first one is a, the second b, and so on; ratio and delta are the last one against the first. Times are per step
where every one of them has steps, else of the whole recording. --format table prints the summary and the rows; other
formats hold the rows, or with --summary the summary.

Runs that differ only in batch and sequence are a sweep: a table says how the step grows and where it turns from
launch-bound to device-bound. --sweep LAUNCH shows that table alone for all runs of a launch.
"""

from __future__ import annotations

import argparse

from profilers.analysis.compare_tables import rows_table, summary_table
from tui.cli.errors import FINE, UsageError
from tui.cli.output import add_output_arguments, chosen_format, print_table, talk, talk_notes
from tui.cli.targets import add_analysis_arguments, open_target, options_of, root_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets", metavar="RUN|FILE", nargs="*", help="two or more runs or recordings; the first is the base"
    )
    parser.add_argument(
        "--by", choices=("kernel", "operator", "group"), default="kernel", help="what a row is (default: kernel)"
    )
    parser.add_argument("--sweep", metavar="LAUNCH", help="the sweep of a launch: its id, or one of its runs")
    parser.add_argument("--summary", action="store_true", help="only the summary")
    add_output_arguments(parser)
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from profilers.analysis.compare import CompareError, compare, summary_block
    from profilers.analysis.sweep import SWEEP, sweep
    from profilers.runs.beside import beside, names_of
    from profilers.runs.sweeps import points_of

    if args.sweep:
        return _sweep(args)
    if len(args.targets) < 2:
        raise UsageError("compare needs two or more runs or recordings")
    format = chosen_format(args)
    opened = [open_target(target, args) for target in args.targets]
    recordings = [one.recording for one in opened]
    names = names_of(opened)
    try:
        rows = compare(recordings, names, options_of(args), by=args.by)
        known = [beside(one.run) for one in opened]
        summary = summary_block(recordings, names, options_of(args), known)
    except CompareError as error:
        raise UsageError(str(error)) from None
    letters = list(rows.attrs["names"])
    per = f"{args.by} times a {rows.attrs['per']}"
    title = ", ".join(f"{letter}: {name}" for letter, name in rows.attrs["names"].items())
    points = points_of(opened)
    if points and format == "table" and args.output is None:
        print_table(sweep(points, options_of(args)), SWEEP, args, {"title": "sweep"})
        print(flush=True)
    if args.summary or (format == "table" and args.output is None):
        print_table(summary, summary_table(letters), args, {"title": title})
    if not args.summary:
        if format == "table" and args.output is None:
            print(flush=True)
        print_table(
            rows,
            rows_table(letters, args.by),
            args,
            {"title": per if format == "table" else title, "per": rows.attrs["per"]},
        )
    for letter, one, target in zip(letters, opened, args.targets, strict=True):
        if one.recording.notes:
            talk(f"{letter}: {one.title}")
            talk_notes(one.recording.notes, target)
    return FINE


def _sweep(args: argparse.Namespace) -> int:
    """The sweeps of a launch, one after the other in one table."""
    from profilers.analysis.sweep import SWEEP, sweep
    from profilers.runs.opening import open_recording
    from profilers.runs.sweeps import groups, point_of, runs_of_launch

    if args.targets:
        raise UsageError("--sweep takes a launch and no other runs")
    root = root_of(args)
    runs = runs_of_launch(root, args.sweep)
    found = groups(runs)
    if not found:
        raise UsageError(f"{args.sweep}: its {len(runs)} runs do not differ in batch or sequence alone")
    points = [point_of(open_recording(run.id, root)) for part in found for run in part]
    frame = sweep([point for point in points if point is not None], options_of(args))
    print_table(frame, SWEEP, args, {"title": f"sweep of {args.sweep}"})
    return FINE
