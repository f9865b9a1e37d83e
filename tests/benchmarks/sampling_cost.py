"""What telemetry costs: a tick of the host and of every GPU, and steps beside a sampler against steps without one.

    python -m tests.benchmarks.sampling_cost [--device cuda:0] [--rounds 6] [--interval 0.5]

A tick runs in the supervisor, not in the worker: what it costs the steps is the driver's lock (GPU) or a core's time (CPU).
Rounds with and without a sampler take turns, so that a machine that warms up or is shared does not decide.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

TICKS = """
import sys, time
from profilers.collectors.telemetry.cpu import CpuCollector
from profilers.collectors.telemetry.devices import visible
from profilers.collectors.telemetry.nvidia import NvmlCollector
from profilers.collectors.telemetry.nvml import Nvml
interval, count = float(sys.argv[1]), int(sys.argv[2])
host, nvml = CpuCollector(), Nvml()
gpus = visible(nvml.gpus)
own, beside = NvmlCollector(nvml, gpus[:1]), NvmlCollector(nvml, gpus[1:], brief=True)
costs = {"host": [], "own": [], "beside": []}
print("ready", flush=True)
while count:
    count -= 1
    time.sleep(interval)
    for name, source in (("host", host), ("own", own), ("beside", beside)):
        began = time.perf_counter()
        source.sample()
        costs[name].append((time.perf_counter() - began) * 1e3)
for name, values in costs.items():
    values.sort()
    print(f"{name} {len(gpus)} {values[len(values) // 2]:.3f} {values[-1]:.3f}")
own.close(); beside.close(); host.close(); nvml.close()
"""


def ticks(interval: float, count: int) -> subprocess.Popen[str]:
    """A process that samples so often; it prints ``ready``, and its costs when it is through."""
    command = [sys.executable, "-c", TICKS, str(interval), str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def steps(device: str, seconds: float) -> list[float]:
    """Milliseconds of each of the steps taken in so many seconds: a few small kernels and one matrix multiply."""
    import torch

    where = torch.device(device)
    x = torch.randn(256 if where.type == "cpu" else 1024, 1024, device=where)
    weight = torch.randn(1024, 1024, device=where)
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        torch.nn.functional.layer_norm(torch.relu(x @ weight) + x, (1024,))
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        found.append((time.perf_counter() - began) * 1e3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--interval", type=float, default=0.5, help="between ticks; runs are sampled every second")
    args = parser.parse_args()
    steps(args.device, 1.0)
    without, beside = [], []
    for _ in range(args.rounds):
        without.append(statistics.mean(steps(args.device, args.seconds)))
        process = ticks(args.interval, max(int(args.seconds / args.interval), 1))
        beside.append(statistics.mean(steps(args.device, args.seconds)))
        said = process.communicate()[0]
    print(f"steps beside a sampler every {args.interval:g} s: {min(beside) / min(without):.3f}x")
    print(f"{'a tick of':12} {'GPUs':>5} {'median ms':>10} {'most ms':>10}")
    for line in said.splitlines():
        name, gpus, median, most = line.split()
        print(f"{name:12} {gpus:>5} {median:>10} {most:>10}")


if __name__ == "__main__":
    main()
