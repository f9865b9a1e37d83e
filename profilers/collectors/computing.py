"""A run on the meta device: no memory and no waiting, every operator's shapes, and the memory that a step would need.

One step is taken on tensors that have shapes and no content, and what is dispatched is written down in the form of a
trace of the profiler, so that everything after it is the same as for a measured run. The profiler itself would not do:
it records how torch works out shapes, not what a device would be given. The trace has an order and no times: each
operator is one microsecond long, until :mod:`profilers.analysis.computed` puts a bound in its place. Imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from apps.meta import PeakMemory
from profilers.collectors import protocol, workloads
from profilers.collectors.failures import UsageError
from profilers.collectors.modules import PREFIX
from profilers.collectors.protocol import Progress
from profilers.collectors.spec import Spec
from profilers.collectors.typenames import type_name

_COPIES = frozenset({"_to_copy", "clone", "contiguous"})
_FILLS = {
    "zeros": "fill_",
    "ones": "fill_",
    "full": "fill_",
    "zeros_like": "zero_",
    "ones_like": "fill_",
    "full_like": "fill_",
    "new_zeros": "zero_",
    "new_ones": "fill_",
    "new_full": "fill_",
    "rand": "uniform_",
    "rand_like": "uniform_",
    "randn": "normal_",
    "randn_like": "normal_",
    "randint": "random_",
    "randint_like": "random_",
}
"""Operators whose work is that of another, which they call on a device; on meta tensors they call none."""


class Dispatched(TorchDispatchMode):
    """Writes down every operator that reaches the dispatcher while entered, with the modules around it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self.now = 0
        self._open: list[int] = []
        self._handles: list[Any] = []

    def __enter__(self) -> Dispatched:
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter_module),
            hooks.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self._handles:
            handle.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        begin = self.now
        # An operator made of others: without gradients it arrives whole, with them in its parts.
        with self._again():
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            if self.now > begin:
                # A little longer than its parts, so that it is clear which holds which.
                self.now += 1
                self._add(schema.name, begin, self.now - begin, _arguments(schema, args, kwargs))
            return result
        result = func(*args, **kwargs)
        short = schema.name.rpartition("::")[2]
        out = next((value for value in tree_iter(result) if isinstance(value, torch.Tensor)), None)
        if out is not None and short in _COPIES:
            self._add("aten::copy_", begin, 1, [out, args[0]])
            self.now += 1
        elif out is not None and short in _FILLS:
            self._add(f"aten::{_FILLS[short]}", begin, 1, [out])
            self.now += 1
        self.now += 1
        self._add(schema.name, begin, self.now - begin, _arguments(schema, args, kwargs))
        return result

    @contextmanager
    def _again(self) -> Iterator[None]:
        """Entered once more inside itself: the modules' hooks are there already."""
        super().__enter__()
        try:
            yield
        finally:
            super().__exit__(None, None, None)

    def _add(self, name: str, begin: int, length: int, arguments: list[Any]) -> None:
        dims, types, values = [], [], []
        for value in arguments:
            shape, kind, text = _described(value)
            dims.append(shape)
            types.append(kind)
            values.append(text)
        self.events.append(
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": name,
                "pid": 1,
                "tid": 1,
                "ts": begin,
                "dur": length,
                "args": {"Input Dims": dims, "Input type": types, "Concrete Inputs": values},
            }
        )

    def _enter_module(self, _module: Any, _inputs: Any) -> None:
        self._open.append(self.now)

    def _leave_module(self, module: Any, _inputs: Any, _output: Any) -> None:
        begin = self._open.pop()
        if self.now > begin:
            self.annotate(PREFIX + type(module).__name__, begin)

    def annotate(self, name: str, begin: int) -> None:
        """A range from ``begin`` to now."""
        self.events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": name,
                "pid": 1,
                "tid": 1,
                "ts": begin,
                "dur": self.now - begin,
            }
        )


def _arguments(schema: Any, args: Any, kwargs: Any) -> list[Any]:
    """Every argument by position, with the defaults of those that were not given."""
    return [
        args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
        for place, argument in enumerate(schema.arguments)
    ]


def _described(value: Any) -> tuple[list[Any], str, str]:
    """Shape, type and value of an argument, as the profiler writes them."""
    if isinstance(value, torch.Tensor):
        return list(value.shape), type_name(value.dtype), ""
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(part, torch.Tensor) for part in value):
            return [list(part.shape) for part in value], "TensorList", ""
        if all(isinstance(part, (int, float)) for part in value):
            return [], "ScalarList", str(list(value))
        return [], "GenericList", ""
    if isinstance(value, (bool, int, float)):
        return [], "Scalar", str(value)
    return [], "", ""


def run(spec: Spec, folder: Path, progress: Progress, report: Callable[[Progress], None]) -> None:
    """Take the step and write its trace. ``progress`` gets the parameters and the memory."""
    if spec.backend != "eager":
        raise UsageError(f"on the meta device nothing runs, so there is no backend {spec.backend}: leave --backend out")
    device = torch.device("meta")
    memory = PeakMemory()
    with memory:
        prepared = workloads.prepare(spec, folder, device, progress)
        progress.phase = "taking a step on shapes"
        report(progress)
        prepared.step()
        # Gradients and the optimizer's state are there from the second step on.
        prepared.step()
        resident = memory.live
    dispatched = Dispatched()
    with dispatched:
        prepared.step()
    dispatched.annotate("ProfilerStep#0", 0)
    progress.peak_memory_bytes = memory.peak
    progress.notes = (
        *progress.notes,
        "computed, not measured: one step on shapes alone",
        f"memory, estimated: {resident / 1e9:,.2f} GB stay between steps, {memory.peak / 1e9:,.2f} GB at the worst moment",
    )
    progress.windows_done = 1
    report(progress)
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": time.time_ns(), "traceEvents": dispatched.events}
    aside = folder / protocol.RAW / f".{protocol.raw_name(1)}"
    aside.write_bytes(msgspec.json.encode(trace))
    aside.rename(aside.parent / protocol.raw_name(1))
