"""Measure what devices compute and move at most, and use that from now on in place of vendors' figures.

A large matrix multiply in each precision, and a large copy: seconds for a GPU, a minute for a CPU. Percentages of peak
in every table then refer to what was measured here. Nothing else should run on the device meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from profilers.analysis.registry import Col, Table
from tui.cli.errors import FAILED, FINE, SOME_FAILED
from tui.cli.output import add_output_arguments, print_table, talk

if TYPE_CHECKING:
    from profilers.analysis.peaks import Peaks
    from profilers.collectors.telemetry.devices import DeviceRow

TIMEOUT_S = 600.0
BUSY_PCT = 25.0

PEAKS = Table(
    "peaks",
    "What does the device compute and move at most?",
    (
        Col("device", "device"),
        Col("name", "name"),
        Col("quantity", "quantity"),
        Col("unit", "unit"),
        Col("measured", "measured", "number"),
        Col("before", "before", "number", doc="what was used until now"),
        Col("pct", "%", "pct", "of what was used until now"),
        Col("source", "before from"),
    ),
    "",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="LIST", default="auto", help="cuda:0,cuda:1 | cpu | auto (default)")
    parser.add_argument(
        "--dry-run", action="store_true", help="measure and print, but go on using what was used before"
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import pandas as pd

    from profilers.analysis.peaks import remember
    from tui.cli.devices import chosen_devices

    chosen = chosen_devices(args.device)
    rows: list[dict[str, Any]] = []
    found: list[Peaks] = []
    failed = 0
    for device in chosen:
        talk(f"measuring {device.device} ({device.name}) ...")
        if (device.utilization_pct or 0.0) > BUSY_PCT:
            talk(
                f"note: {device.device} is {device.utilization_pct:.0f} % busy with other work: what is measured will be low"
            )
        try:
            measured = _measure(device.device)
        except _Failed as error:
            talk(f"kernelscope: {device.device}: {error}")
            failed += 1
            continue
        before = peaks_of(device)
        found.append(merged(device, measured, before))
        rows += compared(device, measured, before)
    if rows:
        print_table(pd.DataFrame(rows, columns=[column.name for column in PEAKS.columns]), PEAKS, args, {})
    if found and not args.dry_run:
        talk(f"written to {remember(found)}; remove a device there to go back to the vendor's figures")
    return FINE if not failed else FAILED if failed == len(chosen) else SOME_FAILED


class _Failed(Exception):
    """The measuring process could not; the message is one line."""


def _measure(device: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "profilers.collectors.calibrate", device]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _Failed(f"no answer within {TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise _Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def peaks_of(device: DeviceRow) -> Peaks | None:
    """What has been used for this device until now."""
    from profilers.analysis.peaks import device_peaks
    from profilers.tables import Device

    memory = None if device.memory_total_gb is None else int(device.memory_total_gb * 1e9)
    return device_peaks(
        Device(device.device, device.name, "cpu" if device.kind == "cpu" else "cuda", memory_bytes=memory)
    )


def merged(device: DeviceRow, measured: dict[str, Any], before: Peaks | None) -> Peaks:
    """The measured peaks; types that were not measured keep what was used for them before."""
    from dataclasses import replace

    from profilers.analysis.peaks import Peaks

    rates: dict[str, Any] = {name: float(f"{value:.4g}") for name, value in measured["tflops"].items()}
    base = before or Peaks(device.name)
    kept = [t for t in ("fp8", "int8") if not math.isnan(getattr(base, t))]
    cite = f"kernelscope calibrate, {datetime.now(UTC):%Y-%m-%d}" + (
        f"; {', '.join(kept)}: {base.cite}" if kept else ""
    )
    return replace(
        base,
        **rates,
        name=device.name,
        memory_gb_s=float(f"{measured['memory_gb_s']:.4g}"),
        source="measured",
        cite=cite,
    )


def compared(device: DeviceRow, measured: dict[str, Any], before: Peaks | None) -> list[dict[str, Any]]:
    """Rows of what was measured beside what was used before."""
    quantities = [(f"{name} matmul", "TFLOP/s", value, name) for name, value in measured["tflops"].items()]
    rows = []
    for quantity, unit, value, field in [*quantities, ("copy", "GB/s", measured["memory_gb_s"], "memory_gb_s")]:
        old = getattr(before, field) if before is not None else math.nan
        rows.append(
            {
                "device": device.device,
                "name": device.name,
                "quantity": quantity,
                "unit": unit,
                "measured": value,
                "before": old,
                "pct": 100 * value / old if old > 0 else math.nan,
                "source": before.source if before is not None and old > 0 else "",
            }
        )
    return rows
