"""Measures what a device really computes and moves at most: ``python -P -m profilers.collectors.calibrate DEVICE``.

A process of its own, because it loads torch. It prints one JSON object: ``device`` (its name), ``tflops`` by type (a
large square matrix multiply, 2 n^3 operations) and ``memory_gb_s`` (a large copy, read and write counted). Each is the
best of several batches: a peak is what the device can do, not what it does on average.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

BATCHES = 7
BATCH_S = 0.15
"""Each batch repeats the operation for about so long."""

CUDA_N = {"fp64": 4096, "fp32": 8192, "tf32": 8192, "fp16": 8192, "bf16": 8192}
CPU_N = {"fp64": 1024, "fp32": 2048, "fp16": 512, "bf16": 1024}
COPY_BYTES = {"cuda": 2**30, "cpu": 2**28}


def measure(name: str) -> dict[str, Any]:
    """The rates of ``cpu`` or ``cuda:N``. Raises RuntimeError where the device does not answer."""
    import torch

    device = torch.device(name)
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.set_device(device)

    def wait() -> None:
        if gpu:
            torch.cuda.synchronize(device)

    types = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16}
    types["bf16"] = torch.bfloat16
    tflops: dict[str, float] = {}
    for key, size in (CUDA_N if gpu else CPU_N).items():
        if gpu and key == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            continue
        if key == "tf32" and torch.cuda.get_device_capability(device) < (8, 0):
            continue
        torch.backends.cuda.matmul.allow_tf32 = key == "tf32"
        left, right = (torch.randn(size, size, device=device, dtype=torch.float32).to(types[key]) for _ in range(2))
        out = torch.empty_like(left)
        tflops[key] = 2 * size**3 / best(lambda a=left, b=right, o=out: torch.mm(a, b, out=o), wait) / 1e12  # type: ignore[misc]
        del left, right, out
    source = torch.empty(COPY_BYTES[device.type], dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    moved = 2 * source.nbytes / best(lambda: target.copy_(source), wait) / 1e9
    title = torch.cuda.get_device_name(device) if gpu else ""
    return {"device": title, "tflops": tflops, "memory_gb_s": moved}


def best(operation: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Seconds that the operation takes at its fastest: the least mean of several batches, the device awaited after each."""
    operation()
    wait()
    began = time.perf_counter()
    operation()
    wait()
    once = max(time.perf_counter() - began, 1e-7)
    repeats = max(1, round(BATCH_S / once))
    means = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for _ in range(repeats):
            operation()
        wait()
        means.append((time.perf_counter() - began) / repeats)
    return min(means)


def main() -> int:
    """Measure the device named on the command line."""
    try:
        json.dump(measure(sys.argv[1]), sys.stdout)
    except (RuntimeError, AssertionError) as error:
        print(" ".join(str(error).split())[:300], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
