"""Finding the steps of a script that knows nothing of us.

What marks a step, best first: an optimizer's step; the script's own ``record_function("step")`` range; the ``step()`` of
a ``torch.profiler`` of its own. Where nothing does for a while, time is cut into slices by a clock. Only the thread of
the first mark counts. Imports torch.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler
from torch.optim import optimizer as optimizers

from profilers.collectors.protocol import NO_STEP
from profilers.collectors.session import Session

SLICE_AFTER_S = 30.0
"""A script in which no step was found for so long is recorded in slices of time."""

SLICE_S = 0.2
"""Length of a slice."""

STEP_NAME = re.compile(
    r"(?:(?:train|training|eval|evaluation|infer|inference|model|forward)[ _.]?)?"
    r"(?:step|iteration|iter|batch)(?:[ _#.:\d].*)?",
    re.IGNORECASE,
)
"""Names of ranges that are taken for a step: ``step``, ``train_step 3``, ``iteration``, ``batch``."""

_SLICES, _PROFILER, _RANGE, _OPTIMIZER = range(4)
_KINDS = ("time slices", "steps of the script's own profiler", "the script's own ranges", "optimizer steps")

_PENDING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

THEIRS = "the script's own profiler is at work: no windows meanwhile, as only one can run"


class StepFinder:
    """Calls a session's boundary after each step of the script that runs in this process.

    :meth:`install` before the script begins, :meth:`remove` when it has ended. A forked child inherits nothing of it.
    """

    def __init__(self, session: Session, slice_after_s: float, began: Callable[[], None]) -> None:
        self.session = session
        self.kind = -1
        self.steps = 0
        self._began = began
        self._slice_after_s = slice_after_s
        self._inert = False
        self._busy = False
        self._thread: int | None = None
        self._anchor: int | None = None
        self._since: set[int] = set()
        self._due = False
        self._theirs: set[int] = set()
        self._range = ""
        self._undo: list[Callable[[], Any]] = []
        self._over = threading.Event()
        self._cut = threading.Event()
        self._pending = _PENDING(self._slice)

    def install(self) -> None:
        """Begin to look for steps."""
        handle = optimizers.register_optimizer_step_post_hook(self._optimizer_stepped)
        self._undo.append(handle.remove)
        self._wrap(autograd_profiler.record_function, "__exit__", after=self._range_left)
        self._wrap(torch.profiler.profile, "step", after=self._profiler_stepped)
        self._wrap(autograd_profiler.profile, "_prepare_trace", before=self._profiler_begins)
        self._wrap(autograd_profiler.profile, "__exit__", after=self._profiler_ended)
        os.register_at_fork(after_in_child=self._in_child)
        threading.Thread(target=self._clock, name="kernelscope-clock", daemon=True).start()

    def remove(self) -> None:
        """Leave torch as it was."""
        self._inert = True
        self._over.set()
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    @property
    def counted(self) -> int:
        """Steps taken so far, those after the last window as well; -1 once they are no longer counted."""
        return -1 if self._inert else self.steps

    @property
    def found(self) -> str:
        """What marked the steps, for people; '' while nothing has."""
        if self.kind == _RANGE:
            return f"the script's own ranges '{self._range}'"
        return _KINDS[self.kind] if self.kind >= 0 else ""

    def _wrap(
        self,
        owner: type,
        name: str,
        before: Callable[[Any], None] | None = None,
        after: Callable[[Any], None] | None = None,
    ) -> None:
        original = owner.__dict__[name]

        @functools.wraps(original)
        def wrapper(instance: Any, *args: Any, **kwargs: Any) -> Any:
            if before is not None and not self._inert and not self._busy:
                before(instance)
            result = original(instance, *args, **kwargs)
            if after is not None and not self._inert and not self._busy:
                after(instance)
            return result

        setattr(owner, name, wrapper)
        self._undo.append(lambda: setattr(owner, name, original))

    # --- marks --------------------------------------------------------------------------------------------------------

    def _optimizer_stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """The step ends with the optimizer that began the count: of two that take turns only one counts, and when that
        one falls silent another takes over."""
        if self._inert or self._busy or (self._thread or threading.get_ident()) != threading.get_ident():
            return
        if self._due:
            self._mark(_OPTIMIZER)
        key = id(optimizer)
        if self._anchor is None or key in self._since:
            self._anchor = key
        if key != self._anchor:
            self._since.add(key)
            return
        self._since.clear()
        # The range around the optimizer's step is still open: the boundary comes when it has been left.
        self._due = True

    def _range_left(self, scope: Any) -> None:
        if self._due:
            self._mark(_OPTIMIZER)
        elif self.kind < _OPTIMIZER and STEP_NAME.fullmatch(scope.name):
            if self.kind < _RANGE:
                self._range = re.sub(r"[ _#.:]*\d+$", "", scope.name)
            if scope.name.startswith(self._range):
                self._mark(_RANGE)

    def _profiler_stepped(self, _profiler: Any) -> None:
        self._mark(_PROFILER)

    def _mark(self, kind: int) -> None:
        """A step of this kind has ended here."""
        self._due = False
        here = threading.get_ident()
        if self._inert or self._busy or kind < self.kind:
            return
        if self._thread is None or self.kind <= _SLICES:
            self._thread = here
        if here != self._thread:
            return
        self.steps += 1
        if self.session.done:
            self._do(self.session.rest)
            return
        held, self.kind = self.kind, kind
        if held == -1:
            self._do(self._first_step)
        else:
            self._do(self.session.begin_steps if held == _SLICES else self.session.boundary)

    def _first_step(self) -> None:
        self._began()
        self.session.begin()

    def _do(self, what: Callable[[], Any]) -> None:
        """Let the session work. Whatever goes wrong there ends the recording, and never the script."""
        self._busy = True
        try:
            what()
        except Exception as error:
            traceback.print_exc()
            self._inert = True
            self.session.give_up(f"recording ended early: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        finally:
            self._busy = False

    # --- other profilers ----------------------------------------------------------------------------------------------

    def _profiler_begins(self, profiler: Any) -> None:
        self._theirs.add(id(profiler))
        self._do(lambda: self.session.suspend(THEIRS))

    def _profiler_ended(self, profiler: Any) -> None:
        self._theirs.discard(id(profiler))
        if not self._theirs:
            self._do(self.session.resume)

    # --- slices of time -----------------------------------------------------------------------------------------------

    def _clock(self) -> None:
        """Asks the script's main thread to cut a slice: only the thread that computes can be recorded by itself."""
        if self._over.wait(self._slice_after_s):
            return
        while self.kind <= _SLICES and not self.session.done and not self._over.is_set():
            self._cut.clear()
            if ctypes.pythonapi.Py_AddPendingCall(self._pending, None) == 0:
                # Cutting itself takes time, as starting a profiler does: a slice begins when that is over.
                while not self._cut.wait(SLICE_S) and not self._over.is_set():
                    pass
            self._over.wait(SLICE_S)

    def _slice(self, _nothing: Any) -> int:
        """In the main thread, between two of the script's own instructions."""
        if self._inert or self._busy or self._theirs or self.kind > _SLICES or self.session.done:
            self._cut.set()
            return 0
        self._do(self._next_slice if self.kind == _SLICES else self._first_slice)
        self._cut.set()
        return 0

    def _next_slice(self) -> None:
        if not self.session.skips_slice():
            self.session.boundary()

    def _first_slice(self) -> None:
        self.kind, self._thread = _SLICES, threading.get_ident()
        self._began()
        self.session.begin_slices(
            f"{NO_STEP} in the first {self._slice_after_s:g} s: windows are slices of {SLICE_S * 1e3:.0f} ms"
        )

    def _in_child(self) -> None:
        self._inert = True
        self.session.abandon()
