"""Ranges named ``nn.Module: ClassName`` around every module's forward pass, so that kernels know their module.

The profiler's own ``with_modules`` works for TorchScript only, and ``with_stack`` costs two to three times the events.
These ranges are entered by two global forward hooks that exist only while a window is recorded: about 1 us a module.
Imports torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as hooks

PREFIX = "nn.Module: "


def _range_type() -> Callable[[str], Any]:
    """The cheap range of recent releases (0.6 us), else the public one (6.7 us)."""
    fast = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)
    return fast or torch.profiler.record_function


class ModuleRanges:
    """Turn the ranges on and off. Off costs nothing: the hooks are removed."""

    def __init__(self) -> None:
        self._range = _range_type()
        self._names: dict[type, str] = {}
        self._open = threading.local()
        self._handles: list[Any] = []

    def on(self) -> None:
        """Begin to mark forward passes."""
        if not self._handles:
            self._handles = [
                hooks.register_module_forward_pre_hook(self._enter),
                hooks.register_module_forward_hook(self._leave, always_call=True),
            ]

    def off(self) -> None:
        """Stop marking them."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._open = threading.local()

    def _enter(self, module: torch.nn.Module, _inputs: Any) -> None:
        cls = type(module)
        name = self._names.get(cls)
        if name is None:
            name = self._names[cls] = PREFIX + cls.__name__
        entered = self._range(name)
        entered.__enter__()
        try:
            self._open.ranges.append(entered)
        except AttributeError:
            self._open.ranges = [entered]

    def _leave(self, _module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        ranges = getattr(self._open, "ranges", None)
        if ranges:
            ranges.pop().__exit__(None, None, None)


def compiled_frames() -> int:
    """How many frames torch.compile has compiled in this process. Inside compiled code there are no module calls."""
    utils = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["frames"]["ok"]) if utils is not None else 0
