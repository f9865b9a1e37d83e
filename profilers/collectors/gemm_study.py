"""Times single GEMMs, convolutions and attentions: ``python -P -m profilers.collectors.gemm_study DEVICE``.

A process of its own, because it loads torch. It reads a JSON list of calls from stdin (``name shapes dtypes values dtype``,
as recorded) and prints a JSON line for each: ``us`` (the median), ``times`` and ``sets``, or ``reason``.

Each call is warm, and its inputs rotate through several sets that together exceed the cache, so that none finds its operands
there. On a GPU the time is that of its kernels, as in a recording; on a CPU that of the call. Inputs are random and dense:
strides are not recorded. The second matrix of ``addmm`` is a transposed weight, as linear layers have it.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from profilers.analysis.calls import Call, plain

REPLAYED = frozenset(
    (
        *("mm", "addmm", "bmm", "baddbmm", "linear", "_grouped_mm"),
        *("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution", "miopen_convolution"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("_conv_depthwise2d", "_slow_conv2d_forward", "thnn_conv2d", "convolution_backward"),
        *("scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_flash_attention_forward"),
        *("_scaled_dot_product_efficient_attention", "_efficient_attention_forward"),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    )
)
"""Operators of ATen that are called as recorded. A recording comes from a stranger: no other name is ever looked up."""

TYPES = {
    "float": "float32", "float32": "float32", "double": "float64", "float64": "float64", "half": "float16",
    "float16": "float16", "bfloat16": "bfloat16", "bool": "bool",
}  # fmt: skip

WARM, TIMES, LEAST_TIMES = 5, 40, 5
BUDGET_S = 1.0
"""Slow calls are repeated for about so long."""

CPU_CACHE = 64 * 2**20
MOST_SETS = 64
MOST_MEMORY = 0.25
"""Inputs take at most this share of the device's memory."""


class NotReplayed(Exception):
    """A call that cannot be made here; the message says why."""


Inputs = tuple[list[Any], dict[str, Any]]


def arguments(call: Call, op: Any, make: Callable[[tuple[int, ...], str], Any]) -> Inputs:
    """The arguments of one call by the operator's own schema, by position and by name: tensors made anew, scalars as
    recorded (those that only a name may give are at their position in the recording, too)."""
    out: list[Any] = []
    named: dict[str, Any] = {}

    def add(argument: Any, value: Any) -> None:
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            out.append(value)

    for index, argument in enumerate(op._schema.arguments):
        shape = call.tensor(index)
        kind = str(argument.type)
        if "Tensor" in kind:
            if shape is not None:
                add(argument, make(shape, call.dtype(index)))
            elif kind.startswith("Optional"):
                add(argument, None)
            else:
                raise NotReplayed(f"its argument {argument.name} is not recorded")
            continue
        value = _scalar(call, index, kind)
        if value is None and argument.has_default_value():
            value = argument.default_value
        if value is None and not kind.startswith("Optional"):
            raise NotReplayed(f"its argument {argument.name} is not recorded")
        add(argument, value)
    return out, named


def _scalar(call: Call, index: int, kind: str) -> Any:
    """The recorded value of a scalar argument in the schema's type; None where there is none."""
    if kind.startswith("List"):
        found = call.flags(index) if "bool" in kind else call.ints(index)
        return None if found is None else list(found)
    value = call.scalar(index)
    return None if isinstance(value, list | str) else value


def operator_of(call: Call, dispatched: str) -> Any:
    import torch

    if not dispatched.startswith("aten::") or call.name not in REPLAYED:
        raise NotReplayed("not an operator that is called alone")
    if not hasattr(torch.ops.aten, call.name):
        raise NotReplayed("this torch does not have it")
    return getattr(torch.ops.aten, call.name).default


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

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A random tensor. Small values: products of many must stay finite in 16 bits."""
        name = TYPES.get(plain(dtype))
        if name is None:
            raise NotReplayed(f"inputs of type {plain(dtype) or 'unknown'}")
        kind = getattr(self.torch, name)
        if name == "bool":
            return self.torch.ones(shape, dtype=kind, device=self.device)
        return self.torch.randn(shape, device=self.device, dtype=self.torch.float32).mul_(0.1).to(kind)

    def wait(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize(self.device)

    def time(self, question: dict[str, str]) -> dict[str, Any]:
        """The answer to one question."""
        call = Call.parse(question["name"], question["shapes"], question["dtypes"], question["values"])
        op = operator_of(call, question["name"])
        if self.gpu:
            # The recording says whether the model computed in TF32.
            self.torch.backends.cuda.matmul.allow_tf32 = question["dtype"] == "tf32"
            self.torch.backends.cudnn.allow_tf32 = question["dtype"] == "tf32"
        sets = [self._inputs(call, op)]
        size = sum(a.numel() * a.element_size() for a in sets[0][0] if isinstance(a, self.torch.Tensor))
        if size > MOST_MEMORY * self.memory:
            raise NotReplayed(f"its inputs take {size / 1e9:.1f} GB")
        wanted = min(max(2, math.ceil(2 * self.cache / max(size, 1))), MOST_SETS)
        wanted = max(1, min(wanted, int(MOST_MEMORY * self.memory / max(size, 1))))
        sets += [self._inputs(call, op) for _ in range(wanted - 1)]
        with self.torch.no_grad():
            once = self._warm(op, sets)
            times = max(LEAST_TIMES, min(TIMES, int(BUDGET_S / max(once, 1e-9))))
            micros = self._kernels(op, sets, times) if self.gpu else self._calls(op, sets, times)
        return {"us": statistics.median(micros), "times": len(micros), "sets": len(sets)}

    def _inputs(self, call: Call, op: Any) -> Inputs:
        made, named = arguments(call, op, self.make)
        if call.name == "addmm":
            made[2] = made[2].t().contiguous().t()
        return made, named

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


def answer(device: Device, question: dict[str, str]) -> dict[str, Any]:
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
