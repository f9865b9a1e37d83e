"""List what there is: models and suites to run, devices to run them on, and the runs so far."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from profilers.analysis.registry import Col, Table
from tui.cli.errors import FAILED, FINE, UsageError
from tui.cli.near import hint
from tui.cli.output import add_output_arguments, print_table, talk
from tui.cli.targets import root_of

if TYPE_CHECKING:
    import pandas as pd

MODELS = Table(
    "models",
    "Which workloads are there?",
    (
        Col("name", "name"),
        Col("suite", "suite"),
        Col("task", "task"),
        Col("modes", "modes"),
        Col("dtypes", "types"),
        Col("parameters", "parameters", "count"),
        Col("memory_gb", "memory GB", "number", doc="of the full size in its default mode on a GPU, estimated"),
        Col("sizes", "sizes"),
        Col("extra", "needs"),
    ),
    "",
)
SUITES = Table(
    "suites",
    "Which suites are there?",
    (Col("suite", "suite"), Col("title", "title"), Col("workloads", "workloads", "count"), Col("names", "names")),
    "",
)
DEVICES = Table(
    "devices",
    "Which devices can runs use?",
    (
        Col("device", "device"),
        Col("name", "name"),
        Col("uuid", "uuid", wide=True),
        Col("kind", "kind"),
        Col("memory_total_gb", "memory GB", "number"),
        Col("memory_used_gb", "used GB", "number"),
        Col("utilization_pct", "busy", "pct", "of recent time"),
        Col("users", "used by"),
        Col("peak_tflops", "peak TFLOP/s", "number"),
        Col("peak_gb_s", "peak GB/s", "number"),
    ),
    "",
)
RUNS = Table(
    "runs",
    "Which runs are there? The newest is first.",
    (
        Col("run", "run"),
        Col("name", "name"),
        Col("workload", "workload"),
        Col("device", "device"),
        Col("status", "status"),
        Col("started", "started"),
        Col("windows", "windows", "count"),
        Col("step_ms", "step ms", "number"),
        Col("gemm_pct", "GEMM", "pct", "of kernel time"),
    ),
    "",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="models|suites|devices|runs", help="what to list")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    listed = _LISTS.get(args.what)
    if listed is None:
        raise UsageError(
            f"nothing to list is called '{args.what}'{hint(args.what, _LISTS)}; there are {', '.join(_LISTS)}"
        )
    table, rows = listed
    found, code = rows(args)
    print_table(frame_of(found, table), table, args, {})
    return code


def frame_of(rows: list[dict[str, Any]], table: Table) -> pd.DataFrame:
    """Rows as a frame with the table's columns; numbers stay numbers also where a row has none."""
    import pandas as pd

    frame = pd.DataFrame(rows, columns=[column.name for column in table.columns])
    for column in table.columns:
        if column.format in ("number", "pct"):
            frame[column.name] = frame[column.name].astype("float64")
        elif column.format == "count":
            frame[column.name] = frame[column.name].fillna(-1).astype("int64")
    return frame


def models(args: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """The catalogue, suite by suite."""
    from apps import catalogue

    rows = []
    for entry in catalogue.entries():
        memory = entry.memory_gb
        rows.append(
            {
                "name": entry.name,
                "suite": " ".join(entry.suites),
                "task": entry.task,
                "modes": " ".join(entry.modes),
                "dtypes": " ".join(entry.dtypes),
                "parameters": entry.parameters or -1,  # not published
                "memory_gb": memory.get(entry.modes[0]),
                "sizes": " ".join(entry.sizes),
                "extra": entry.extra,
            }
        )
    return rows, FINE


def suites(args: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Suites with what belongs to them."""
    from apps import catalogue

    titles = catalogue.suite_titles()
    return [
        {"suite": name, "title": titles[name], "workloads": len(members), "names": " ".join(members)}
        for name, members in catalogue.suites().items()
    ], FINE


def devices(args: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Devices with who uses them and what they can do at most; what a device does not tell is said on stderr."""
    from profilers.analysis.peaks import device_peaks
    from profilers.collectors.telemetry.devices import list_devices
    from profilers.runs.leases import with_holders
    from profilers.tables import Device

    rows = []
    for row in with_holders(list_devices(), root_of(args)):
        memory = None if row.memory_total_gb is None else int(row.memory_total_gb * 1e9)
        kind = {"cpu": "cpu", "amd": "hip"}.get(row.kind, "cuda")
        peaks = device_peaks(Device(row.device, row.name, kind, memory_bytes=memory))
        rows.append(
            {
                **{name: getattr(row, name) for name in _OF_A_DEVICE},
                "peak_tflops": peaks.best_tflops if peaks else None,
                "peak_gb_s": peaks.memory_gb_s if peaks else None,
            }
        )
        if row.note:
            talk(f"note: {row.device}: {row.note}")
        if peaks and peaks.source == "estimated":
            talk(f"note: {row.device}: its peaks are {peaks.cite}")
        elif peaks and peaks.unchecked:
            talk(f"note: {row.device}: its peaks are from a table: {peaks.cite}")
    return rows, FINE


_OF_A_DEVICE = ("device", "name", "uuid", "kind", "memory_total_gb", "memory_used_gb", "utilization_pct", "users")


def runs(args: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Runs, newest first. One that cannot be read is named on stderr, and makes the exit code 1."""
    from profilers.runs.folder import RunsError, list_runs

    rows, code = [], FINE
    for folder in list_runs(root_of(args)):
        try:
            spec, status, summary = folder.spec(), folder.effective_status(), folder.summary()
        except RunsError as error:
            talk(str(error))
            code = FAILED
            continue
        began = status.started or status.created
        rows.append(
            {
                "run": folder.id,
                "name": spec.name,
                "workload": spec.workload,
                "device": spec.device,
                "status": status.state,
                "started": datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds") if began else "",
                "windows": status.windows_done,
                "step_ms": status.step_ms,
                "gemm_pct": summary.get("gemm_pct"),
            }
        )
    return rows, code


_LISTS: dict[str, tuple[Table, Callable[[argparse.Namespace], tuple[list[dict[str, Any]], int]]]] = {
    "models": (MODELS, models),
    "suites": (SUITES, suites),
    "devices": (DEVICES, devices),
    "runs": (RUNS, runs),
}
