"""What a backend gives back: steps to take, and how they are recorded. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from profilers.collectors.protocol import Progress
from profilers.collectors.spec import Spec

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Recorder(Protocol):
    """What records windows, driven as ``torch.profiler.profile`` is: a schedule of waiting, warm-up and active steps.

    ``on_trace_ready(recorder)`` is called after the last active step of a window; it calls
    :meth:`export_chrome_trace`, once a window.
    """

    on_trace_ready: Callable[[Any], None] | None

    def start(self) -> None: ...

    def step(self) -> None: ...

    def stop(self) -> None: ...

    def export_chrome_trace(self, path: str) -> None: ...


RecorderMaker = Callable[[int, int, Callable[[Any], None]], Recorder]
"""``(wait, active, on_trace_ready) -> Recorder``: one warm-up step lies between waiting and active ones."""


@dataclass
class Prepared:
    """``step()`` is one whole step. ``recorder``: how windows are recorded where it is not torch.profiler.

    ``finish`` is called after the last step and gives notes on what only then is known.
    """

    step: Callable[[], Any]
    recorder: RecorderMaker | None = None
    finish: Callable[[], tuple[str, ...]] = field(default=lambda: ())


@dataclass(frozen=True)
class Job:
    """What a backend is told: the built workload and its step, the run's spec, folder and device."""

    built: Any
    step: Callable[[], Any]
    spec: Spec
    folder: Path
    device: torch.device
    progress: Progress

    def note(self, text: str) -> None:
        """Add a line for people to the run's notes."""
        if text not in self.progress.notes:
            self.progress.notes = (*self.progress.notes, text)


def captured_call(job: Job, module: torch.nn.Module) -> Call | None:
    """The arguments of the last call of ``module`` in one step; None where the step does not call it.

    A step may call it several times (a decode loop): then the last call stands for all, and a note says so.
    """
    calls: list[Call] = []

    def keep(_module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append((args, dict(kwargs)))

    handle = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        job.step()
    finally:
        handle.remove()
    if len(calls) > 1:
        job.note(f"one step calls the model {len(calls)} times; the last of these calls is what was exported and timed")
    return calls[-1] if calls else None
