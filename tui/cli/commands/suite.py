"""The tables of a suite: what several workloads consist of, where their time goes, and what they have in common.

LAUNCH is what one 'kernelscope run' started: its id, any of its runs, or 'last'; or name the runs and recordings one by
one. The tables: suite (a row a workload: operators and kernels, shares, utilization states, what faster GEMM would buy,
geometric means), operators (the three that take most time) and union (how many kernel names cover each part of every
workload's time). --format table prints all three; other formats hold the one that --table names.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tui.cli.errors import FINE, CommandError, UsageError
from tui.cli.output import add_output_arguments, chosen_format, print_table, talk
from tui.cli.targets import add_analysis_arguments, open_target, options_of, root_of

if TYPE_CHECKING:
    from profilers.analysis.suite import Member
    from profilers.runs.folder import RunFolder

NAMES = {"suite": "suite", "operators": "suite-operators", "union": "suite-union"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets", metavar="LAUNCH|RUN|FILE", nargs="*", default=["last"], help="default: last, the newest launch"
    )
    parser.add_argument("--table", choices=tuple(NAMES), help="only this one (default: suite; as text all three)")
    add_output_arguments(parser)
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    members = _members(args)
    if not members:
        raise CommandError("none of these runs has recorded a window")
    print_suite(members, args)
    return FINE


def print_suite(members: list[Member], args: argparse.Namespace) -> None:
    """The tables of these members, as the arguments want them."""
    from profilers.analysis import suite
    from profilers.analysis.suite_tables import TABLES

    compute = {"suite": suite.suite, "operators": suite.top_operators, "union": suite.union}
    text = getattr(args, "table", None) is None and chosen_format(args) == "table" and args.output is None
    for place, name in enumerate(NAMES if text else [args.table or "suite"]):
        if place:
            print(flush=True)
        table = TABLES[NAMES[name]]
        print_table(compute[name](members, options_of(args)), table, args, {"title": table.question})


def _members(args: argparse.Namespace) -> list[Member]:
    from profilers.analysis.suite import Member

    if len(args.targets) == 1 and (runs := launch_of(args.targets[0], args)):
        return members_of(runs, args)
    found = []
    for target in args.targets:
        opened = open_target(target, args)
        step_ms = opened.run.effective_status().step_ms if opened.run is not None else None
        found.append(Member(opened.title, opened.recording, step_ms))
    return found


def members_of(runs: list[RunFolder], args: argparse.Namespace) -> list[Member]:
    """The runs that recorded something, named by workload and by what else tells them apart."""
    from profilers.analysis.suite import Member
    from profilers.runs.folder import RunsError
    from profilers.runs.status import in_words
    from tui.cli.targets import with_rules

    found = []
    for run, name in zip(runs, names_of(runs), strict=True):
        if not run.window_ids():
            talk(f"note: {run.id} has no window: {in_words(run.effective_status().state)}")
            continue
        try:
            recording = with_rules(run.recording(), args)
        except RunsError as error:
            talk(f"note: {error}")
            continue
        found.append(Member(name, recording, run.effective_status().step_ms))
    return found


def names_of(runs: list[RunFolder]) -> list[str]:
    """Each run's workload, followed by those of its facts in which the runs of that workload differ."""
    specs = [run.spec() for run in runs]
    names = []
    for spec in specs:
        kin = [(*other.facts(), other.device) for other in specs if other.name == spec.name]
        own = (*spec.facts(), spec.device)
        differs = [word for word in own if any(word not in other for other in kin)]
        names.append(" ".join([spec.name, *differs]))
    return names


def launch_of(text: str, args: argparse.Namespace) -> list[RunFolder]:
    """The runs of the launch that ``text`` names by its id, by 'last', or by one of its runs, in order; [] for a file.

    Raises :class:`UsageError` when it is neither a launch, a run nor a file.
    """
    from pathlib import Path

    from profilers.runs.folder import RunsError, find_run, list_runs

    root = root_of(args)
    runs = list_runs(root)
    launches: dict[str, list[RunFolder]] = {}
    for run in reversed(runs):
        try:
            launches.setdefault(run.spec().launch, []).append(run)
        except RunsError:
            continue
    launches.pop("", None)
    if text == "last" and launches:
        newest = next(run for run in runs if any(run in members for members in launches.values()))
        return launches[newest.spec().launch]
    if text in launches:
        return launches[text]
    try:
        run = find_run(root, text)
    except RunsError as error:
        if Path(text).exists():
            return []
        raise UsageError(str(error)) from None
    return launches.get(run.spec().launch, [run])
