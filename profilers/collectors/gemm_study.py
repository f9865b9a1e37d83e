"""Times single GEMMs, convolutions and attentions: ``python -P -m profilers.collectors.gemm_study DEVICE``.

A process of its own, because it loads torch. It reads a JSON list of calls from stdin (``name shapes dtypes values dtype``,
as recorded, and ``flops``) and prints a JSON line for each: ``us`` (the median), ``times`` and ``sets``, and where
something was assumed a ``note``; or ``reason``.

Each call is warm, and its inputs rotate through several sets that together exceed the cache, so that none finds its operands
there. On a GPU the time is that of its kernels, as in a recording; on a CPU that of the call. How a call's inputs are made
is in ``gemm_inputs``.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from typing import Any

from profilers.analysis.calls import Call
from profilers.collectors.gemm_inputs import Inputs, Maker, NotReplayed, Replay, replay

WARM, TIMES, LEAST_TIMES = 5, 40, 5
BUDGET_S = 1.0
"""Slow calls are repeated for about so long."""

CPU_CACHE = 64 * 2**20
MOST_SETS = 64
MOST_MEMORY = 0.25
"""Inputs take at most this share of the device's memory."""


class Device:
    """Where calls are timed."""

    def __init__(self, name: str) -> None:
        import torch

        self.torch = torch
        self.device = torch.device(name)
        self.gpu = self.device.type == "cuda"
        if self.gpu:
            torch.cuda.set_device(self.device)
            properties = torch.cuda.get_device_properties(self.device)
            self.cache, self.memory = properties.L2_cache_size, properties.total_memory
        else:
            import psutil

            self.cache, self.memory = CPU_CACHE, psutil.virtual_memory().total

    def wait(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize(self.device)

    def time(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question."""
        call = Call.parse(question["name"], question["shapes"], question["dtypes"], question["values"])
        made = replay(call, question, Maker(self.torch, self.device))
        if self.gpu:
            # The recording says whether the model computed in TF32.
            self.torch.backends.cuda.matmul.allow_tf32 = question["dtype"] == "tf32"
            self.torch.backends.cudnn.allow_tf32 = question["dtype"] == "tf32"
        with self.torch.no_grad():
            sets = self._sets(made)
            once = self._warm(made.op, sets)
            times = max(LEAST_TIMES, min(TIMES, int(BUDGET_S / max(once, 1e-9))))
            micros = self._kernels(made.op, sets, times) if self.gpu else self._calls(made.op, sets, times)
        note = {"note": made.note} if made.note else {}
        return {"us": statistics.median(micros), "times": len(micros), "sets": len(sets), **note}

    def _sets(self, made: Replay) -> list[Inputs]:
        """So many sets of inputs that each has left the cache when its turn comes again."""
        sets = [made.inputs()]
        size = made.packed + sum(a.numel() * a.element_size() for a in sets[0][0] if isinstance(a, self.torch.Tensor))
        if size > MOST_MEMORY * self.memory:
            raise NotReplayed(f"its inputs take {size / 1e9:.1f} GB")
        wanted = min(max(2, math.ceil(2 * self.cache / max(size, 1))), MOST_SETS)
        wanted = max(1, min(wanted, int(MOST_MEMORY * self.memory / max(size, 1))))
        return sets + [made.inputs() for _ in range(wanted - 1)]

    def _warm(self, op: Any, sets: list[Inputs]) -> float:
        """Seconds of one warm call."""
        for index in range(WARM):
            began = time.perf_counter()
            made, named = sets[index % len(sets)]
            op(*made, **named)
            self.wait()
            took = time.perf_counter() - began
            if took > BUDGET_S:
                break
        return took

    def _calls(self, op: Any, sets: list[Inputs], times: int) -> list[float]:
        micros = []
        for index in range(times):
            made, named = sets[index % len(sets)]
            began = time.perf_counter()
            op(*made, **named)
            micros.append((time.perf_counter() - began) * 1e6)
        return micros

    def _kernels(self, op: Any, sets: list[Inputs], times: int) -> list[float]:
        """Kernel time of each call, by the profiler: the host's own pace does not count."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            for index in range(times):
                made, named = sets[index % len(sets)]
                op(*made, **named)
            self.wait()
        found = [
            e for e in recorded.events() if e.device_type.name == "CUDA" and not e.name.startswith(("Memcpy", "Memset"))
        ]
        found.sort(key=lambda e: e.time_range.start)
        return per_call([e.time_range.end - e.time_range.start for e in found], times)


def per_call(lengths: list[float], times: int) -> list[float]:
    """Kernel time of each of so many equal calls, from the kernels of all of them in order of time. Raises
    :class:`NotReplayed` where the calls did not take as many kernels each."""
    if not lengths or len(lengths) % times:
        raise NotReplayed(f"{len(lengths)} kernels were recorded for {times} calls")
    each = len(lengths) // times
    return [sum(lengths[at : at + each]) for at in range(0, len(lengths), each)]


def answer(device: Device, question: dict[str, Any]) -> dict[str, Any]:
    """The time of a call, or why there is none: one that fails does not end the study."""
    try:
        return device.time(question)
    except NotReplayed as problem:
        return {"reason": f"not timed: {problem}"}
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as problem:
        return {"reason": "not timed: " + (str(problem).split("\n")[0][:200] or type(problem).__name__)}


def main() -> int:
    """Answer the questions of stdin on the device named on the command line."""
    questions = json.load(sys.stdin)
    try:
        device = Device(sys.argv[1])
    except (RuntimeError, AssertionError) as error:
        print(" ".join(str(error).split())[:300], file=sys.stderr)
        return 1
    for question in questions:
        print(json.dumps(answer(device, question)), flush=True)
        if device.gpu:
            device.torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
