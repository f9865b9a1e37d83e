"""Seconds that ``prepare`` and every table take on a recording repeated until it has a million kernels.

    python tests/benchmarks/analyses.py RECORDING [--kernels 1000000]

Prints one line per table, as ratios to reading the columns once (a sort of all kernels by start).
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.readers import kineto
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Recording, concat


def repeated(made: Recording, kernels: int) -> Recording:
    """Copies of a recording one after the other in time, with ids of their own."""
    rows = max(len(made.kernels), len(made.operators), 1) if not len(made.kernels) else len(made.kernels)
    copies = -(-kernels // rows)
    ends = [int((f["start_ns"] + f["dur_ns"]).max()) for f in (made.kernels, made.operators, made.steps) if len(f)]
    width, calls = max(ends) + 1, len(made.operators)
    tables = {}
    for name, schema in (("operators", OPERATORS), ("kernels", KERNELS), ("steps", STEPS), ("runtime", RUNTIME)):
        frame = concat([getattr(made, name)] * copies, schema)
        number = np.repeat(np.arange(copies), len(getattr(made, name)))
        frame["start_ns"] += number * width
        for column in ("op_id", "parent_id"):
            if column in frame:
                frame[column] = np.where(frame[column] >= 0, frame[column] + number * calls, -1)
        if "launch_ns" in frame:
            frame["launch_ns"] = np.where(frame["launch_ns"] >= 0, frame["launch_ns"] + number * width, -1)
        tables[name] = frame
    return made.replace(**tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    asked = parser.parse_args()
    made = repeated(kineto.read(asked.recording), asked.kernels)
    begin = time.perf_counter()
    made = prepare(made)
    print(f"{len(made.operators):,} operators, {len(made.kernels):,} kernels")
    print(f"prepare      {time.perf_counter() - begin:7.2f} s")
    begin = time.perf_counter()
    np.argsort(made.kernels["start_ns"].to_numpy(), kind="stable")
    unit = time.perf_counter() - begin
    total = 0.0
    for name, table in TABLES.items():
        if name == "samples":
            continue
        begin = time.perf_counter()
        table.compute(made)
        took = time.perf_counter() - begin
        total += took
        print(f"{name:16} {took:7.3f} s  {took / unit:8.1f} x a sort")
    print(f"all tables   {total:7.2f} s; peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


if __name__ == "__main__":
    main()
