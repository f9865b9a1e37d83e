"""The screen's budgets, measured: first frame, live processor time and bytes, a million kernels. Prints; never fails.

    python -m tests.benchmarks.screen [million|live|paint]

Figures of one run are comparable with each other; machines are shared, so processor time is given beside wall time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd


def million(rows: int = 1_000_000) -> None:
    """A finished recording of a million kernels: from Parquet to the first tables, then sorting and filtering."""
    from profilers.analysis.prepare import prepare
    from profilers.runs.folder import RunFolder
    from profilers.runs.spec import Spec
    from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Origin, Recording
    from tui.analyst import Analyst
    from tui.grid import Grid
    from tui.headers import SHARED_QUERIES
    from tui.snapshot import Query

    rng = np.random.default_rng(0)
    names = pd.Categorical.from_codes(
        (rng.zipf(1.3, rows) % 1000).astype(np.int16),
        pd.Index(
            [f"void at::native::elementwise_kernel<{i}, at::native::CUDAFunctor_add<float>>" for i in range(1000)]
        ),
    )
    dur = rng.integers(1_000, 40_000, rows)
    start = np.cumsum(dur + 500)
    ops = rows // 2
    operators = pd.DataFrame({"op_id": np.arange(ops), "start_ns": start[::2][:ops], "step": np.arange(ops) // 5000})
    operators = operators.assign(dur_ns=900, self_ns=900, thread_id=1)
    operators["name"] = pd.Categorical.from_codes(
        (np.arange(ops) % 3).astype(np.int8), pd.Index(["aten::add", "aten::mul", "aten::relu"])
    )
    kernels = pd.DataFrame({"start_ns": start, "dur_ns": dur, "threads": rng.integers(32, 200_000, rows)})
    kernels = kernels.assign(
        stream=7, op_id=np.arange(rows) // 2, launch_ns=start - 300, step=np.arange(rows) // 10_000
    )
    kernels["name"], kernels["kind"], kernels["device"] = names, "kernel", "cuda:0"
    steps = pd.DataFrame(
        {"step": np.arange(100), "start_ns": start[::10_000][:100], "dur_ns": 100_000_000, "thread_id": 1}
    )
    recording = prepare(
        Recording(
            OPERATORS.conform(operators),
            KERNELS.conform(kernels),
            STEPS.conform(steps),
            RUNTIME.empty(),
            (Device("cuda:0", "NVIDIA H100 80GB HBM3"),),
            Origin("kineto"),
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder), Spec(name="million", workload="million", target="import", device="cuda:0"))
        run.write_window(1, recording)
        status = run.status()
        status.state = "finished"
        run.write_status(status)
        del recording
        wall, cpu = time.perf_counter(), time.process_time()
        analyst = Analyst(run.path)
        view = analyst.view((*SHARED_QUERIES, Query("kernels")), analyst._options, None)
        print(
            f"open {rows:,} kernels and {ops:,} operators: {time.perf_counter() - wall:.2f} s wall, "
            f"{time.process_time() - cpu:.2f} s processor"
        )
        assert not view.problems, view.problems
        for query in (
            Query("operators"),
            Query("gemms"),
            Query("idle"),
            Query("whatif"),
            Query("coverage"),
            Query("roofline"),
            Query("kernel-occurrences", str(names.categories[1])),
        ):
            cpu = time.process_time()
            view = analyst.view((query,), analyst._options, None)
            print(f"  tab {query.table}: {time.process_time() - cpu:.2f} s processor")
        from tui.drill import DRILLS

        table, frame = DRILLS["kernel-occurrences"], view.tables[query]
        frame = pd.concat([frame] * max(rows // max(len(frame), 1), 1), ignore_index=True)
        grid = Grid(table, frame)
        cpu = time.process_time()
        grid.sort_by("dur_us")
        print(f"sort {len(frame):,} rows: {time.process_time() - cpu:.2f} s processor")
        cpu = time.process_time()
        grid.filter = "cuda:0 add"
        grid.rearrange()
        print(f"filter {len(frame):,} rows: {time.process_time() - cpu:.2f} s processor")


def live(seconds: float = 30.0, every: float = 3.0, devices: int = 8) -> None:
    """A live run at 160x50: a window every three seconds, telemetry of eight devices twice a second."""
    from profilers.runs.folder import RunFolder
    from profilers.runs.spec import Spec
    from profilers.runs.status import own_identity
    from tests.tui.conftest import gpu_recording, telemetry
    from tests.tui.terminal import terminal

    for key, name in (("1", "kernels"), ("5", "states"), ("9", "device")):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            run = RunFolder.create(root, Spec(name="gpt2", workload="gpt2", device="cuda:0", windows=1000))
            made = [gpu_recording(layers=12) for _ in range(2)]
            run.write_window(1, made[0])
            status = run.status()
            pid, start, boot = own_identity()
            status.state, status.windows_total, status.started = "profiling", 1000, time.time()
            status.supervisor_pid, status.supervisor_start, status.boot_id = pid, start, boot
            run.write_status(status)
            with terminal(["--runs", str(root)], size=(160, 50)) as t:
                t.wait_for("matmul")
                t.send(key)
                time.sleep(3)
                count, cpu, begin, number = t.count, t.cpu_seconds(), time.monotonic(), 1
                due = begin
                while time.monotonic() - begin < seconds:
                    if time.monotonic() >= due:
                        due, number = due + every, number + 1
                        run.write_window(number, made[number % 2])
                        status = run.status()
                        status.windows_done, status.eta_s = number, 1000.0 - number
                        run.write_status(status)
                    for device in range(devices):
                        run.append_samples(telemetry(f"cuda:{device}", number % 10 + 1)[-3:])
                    time.sleep(0.5)
                took = time.monotonic() - begin
                print(
                    f"live, {name} tab: {(t.count - count) / took / 1024:.1f} KiB/s, {(t.cpu_seconds() - cpu) / took * 60:.1f} CPU s/min"
                )


def paint() -> None:
    """From the command to the first frame, and the help text."""
    import subprocess

    from tests.tui.terminal import terminal

    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        with terminal(["--runs", folder]) as t:
            t.wait_for("kernelscope")
            print(f"first frame: {time.monotonic() - begin:.2f} s wall, {t.cpu_seconds():.2f} s processor")
    begin = time.monotonic()
    subprocess.run([sys.executable, "-P", "-m", "tui.cli", "--help"], stdout=subprocess.DEVNULL, check=True)
    print(f"--help: {time.monotonic() - begin:.2f} s wall")


if __name__ == "__main__":
    os.environ.setdefault("KERNELSCOPE_RUNS", tempfile.mkdtemp())
    chosen = sys.argv[1:] or ["paint", "million", "live"]
    for name in chosen:
        {"paint": paint, "million": million, "live": live}[name]()
