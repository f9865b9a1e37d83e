"""What windows cost: unprofiled steps between windows, and profiled ones, against the same steps before any window.

    python tests/benchmarks/window_overhead.py [WORKLOAD[:SIZE] ...] [--mode infer] [--windows 20] [--device cpu]

Runs each workload the way ``kernelscope run`` does and prints ratios of medians: ``between`` is the budget's figure
(at most 1.02x), ``window`` what the profiler with shapes and module ranges adds while it records. With ``--modules``
it also measures the module ranges alone, in this process, by process CPU time of alternating steps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from profilers.runs.folder import RunFolder
from profilers.runs.launch import launch
from profilers.runs.spec import Spec


def measured(run: RunFolder) -> None:
    while run.effective_status().live:
        time.sleep(0.2)
    status = run.status()
    spec = run.spec()
    if status.state != "finished" or not status.step_ms:
        print(f"{spec.name:24} {status.state}: {status.cause}")
        return
    read = [event["seconds"] for event in run.events() if event["kind"] == "window"]
    between = (status.between_step_ms or float("nan")) / status.step_ms
    window = (status.window_step_ms or float("nan")) / status.step_ms
    print(
        f"{spec.name:24} {status.step_ms:10.2f} {status.step_ms_spread or 0:8.2f} {between:9.3f}x {window:9.3f}x"
        f" {statistics.median(read) * 1e3:10.0f} {status.windows_done:8d}"
    )


def modules_alone(name: str, size: str, mode: str, rounds: int) -> None:
    os.environ["KINETO_LOG_LEVEL"] = "6"
    import torch

    from apps import catalogue
    from profilers.collectors.modules import ModuleRanges

    entry = catalogue.lookup(name)
    built = entry.load()(entry.request(size=size, mode=mode))
    activities = [torch.profiler.ProfilerActivity.CPU]

    def step(ranges: ModuleRanges | None) -> float:
        with torch.profiler.profile(activities=activities, record_shapes=True, acc_events=False):
            if ranges:
                ranges.on()
            began = time.process_time()
            built.step()
            took = time.process_time() - began
            if ranges:
                ranges.off()
        return took

    for _ in range(3):
        built.step()
    ranges = ModuleRanges()
    without, with_them = [], []
    for _ in range(rounds):
        without.append(step(None))
        with_them.append(step(ranges))
    ratio = statistics.median(with_them) / statistics.median(without)
    print(f"{name:24} module ranges: {ratio:.3f}x of a profiled step ({statistics.median(without) * 1e3:.2f} ms CPU)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["gpt2:tiny", "bert-base:tiny", "gpt2"])
    parser.add_argument("--mode", default="infer")
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--timed", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--modules", action="store_true", help="measure the module ranges alone as well")
    args = parser.parse_args()
    chosen = [text.partition(":")[::2] for text in args.workloads]
    specs = [
        Spec(
            name=f"{name} {size or 'full'} {args.mode}",
            workload=name,
            size=size or "full",
            mode=args.mode,
            device=args.device,
            dtype="fp32",
            warmup=5,
            timed_steps=args.timed,
            windows=args.windows,
        )
        for name, size in chosen
    ]
    print(
        f"{'workload':24} {'step ms':>10} {'spread':>8} {'between':>10} {'window':>10} {'read ms':>10} {'windows':>8}"
    )
    with tempfile.TemporaryDirectory(prefix="kernelscope-bench-") as folder:
        for run in launch(specs, Path(folder)):
            measured(run)
        time.sleep(1.5)
    if args.modules:
        for name, size in chosen:
            modules_alone(name, size or "full", args.mode, 15)


if __name__ == "__main__":
    main()
