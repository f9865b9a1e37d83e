"""Running a user's script as it is: as ``__main__``, with its own arguments, while a session records windows of it.

The script runs to its own end, also when all windows have been recorded; what it prints goes into the run's log, and its
exit code, its uncaught exception and its signals are its own. Imports torch.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

import torch

from profilers.collectors import usercode, whereabouts
from profilers.collectors.failures import SCRIPTS, UsageError, explain
from profilers.collectors.protocol import Failure, Progress
from profilers.collectors.session import Session
from profilers.collectors.spec import Spec
from profilers.collectors.stepmarks import SLICE_AFTER_S, StepFinder


@dataclass(frozen=True)
class Ended:
    """How a script ended. ``failure`` is None for exit code 0."""

    code: int
    failure: Failure | None = None


def run(
    spec: Spec, folder: Path, device: torch.device, progress: Progress, report: Callable[[Progress], None]
) -> Ended:
    """Run the script to its end and say how it ended. Nothing of ours may be imported afterwards."""
    path = Path(spec.cwd or ".", spec.workload)
    if not spec.module and not path.is_file():
        raise UsageError(f"there is no file {path}")
    session = Session(spec, folder, device, report, progress)

    def began() -> None:
        if torch.cuda.is_initialized():
            progress.device_name = torch.cuda.get_device_name(torch.cuda.current_device())

    finder = StepFinder(session, float(spec.extra.get("slice_after_s", SLICE_AFTER_S)), began)
    session.steps_taken = lambda: finder.steps
    beat_s = float(spec.extra.get("beat_s", whereabouts.BEAT_S))
    progress.state, progress.phase = "warming", "the script runs; no step has been seen yet"
    report(progress)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A log that is read while it grows, and that loses nothing when the script is killed.
            stream.reconfigure(line_buffering=True)
    # Python puts the script's own folder first, and with -m the one that it was started in.
    usercode.step_aside(path.parent.absolute())
    sys.argv = [str(path), *spec.argv]
    finder.install()
    # A rank says where it is, so that of ranks that hang the odd one out can be told.
    silent = whereabouts.tell(folder, lambda: finder.counted, beat_s) if "rank" in spec.extra else None
    try:
        ended = _as_main(path, _own_device(spec), spec.workload if spec.module else "")
    finally:
        finder.remove()
        if silent is not None:
            silent()
        recorded, done = progress.windows_done, session.done
        session.close()
    if finder.found:
        _note(progress, f"steps: {finder.found}")
    if not done and spec.windows:
        _note(progress, _too_short(finder.steps, recorded, spec))
    report(progress)
    return ended


def _own_device(spec: Spec) -> str:
    """The name of the device that this process computes on: a rank's own of those of all."""
    rank = os.environ.get("LOCAL_RANK", "")
    return spec.devices[int(rank) % len(spec.devices)][0] if rank.isdigit() else spec.device


def _as_main(path: Path, device: str, module: str) -> Ended:
    """Execute the file (or the ``module``) as ``__main__``, and take its end for what Python itself would have made of it."""
    main = ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    try:
        if module:
            code, main.__spec__ = _module(module)
            path = Path(main.__spec__.origin or "")
            main.__loader__, main.__package__ = main.__spec__.loader, main.__spec__.parent
            sys.argv[0] = str(path)
        else:
            main.__spec__ = main.__package__ = None
            main.__loader__ = importlib.machinery.SourceFileLoader("__main__", str(path))
            with io.open_code(str(path)) as file:
                code = compile(file.read(), str(path), "exec", dont_inherit=True)
        main.__file__ = str(path)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # noqa: S102 - running it is what was asked for
    except SystemExit as leaving:
        return _left(leaving.code)
    except KeyboardInterrupt:
        # As Python does: a process that was interrupted ends by that signal, so that its parent can tell.
        traceback.print_exc()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        return Ended(130, Failure(kind="exit", cause="the script was interrupted"))
    except BaseException as error:
        error.__traceback__ = _own_part(error.__traceback__, path)
        sys.excepthook(type(error), error, error.__traceback__)
        return Ended(1, explain(error, device, SCRIPTS))
    return Ended(0)


def _module(name: str) -> tuple[CodeType, importlib.machinery.ModuleSpec]:
    """The code of a module and where it comes from; of a package that of its ``__main__``.

    Raises :class:`UsageError` where there is none; what a package's own ``__init__`` raises goes through.
    """
    spec, parts = None, name.split(".")
    # Packages around it one by one, so that a mistake in one of them is not taken for a name that is not there.
    for end in range(1, len(parts) + 1):
        spec = importlib.util.find_spec(".".join(parts[:end]))
        if spec is None or (end < len(parts) and spec.submodule_search_locations is None):
            raise UsageError(f"there is no module {name} (looked for from {sys.path[0]})")
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = importlib.util.find_spec(name)
    code = spec.loader.get_code(name) if spec and isinstance(spec.loader, importlib.abc.InspectLoader) else None
    if spec is None or code is None:
        raise UsageError(f"{name} is not there, or has no Python code to run")
    return code, spec


def _left(code: object) -> Ended:
    """``sys.exit(code)``: None is 0; anything that is no number is printed, and the code is 1."""
    if code is None:
        return Ended(0)
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        text = " ".join(str(code).split())[:300]
        return Ended(1, Failure(kind="exit", cause=f"the script ended with exit code 1: {text}"))
    # What the operating system keeps of it.
    code &= 0xFF
    return Ended(code, Failure(kind="exit", cause=f"the script ended with exit code {code}") if code else None)


def _own_part(trace: TracebackType | None, path: Path) -> TracebackType | None:
    """The traceback from the script's first line on; None for what never got there (a syntax error)."""
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    return trace


def _too_short(steps: int, recorded: int, spec: Spec) -> str:
    """Why there are fewer windows than asked for."""
    if recorded:
        return f"the script ended after {recorded} of {spec.windows} windows"
    if not steps:
        return "the script ended before a step was found in it: nothing was recorded"
    # The first mark begins the count; a window has an unprofiled step and a step of warm-up before it.
    needed = 1 + spec.warmup + spec.timed_steps + 2 + spec.steps
    return f"the script ended after {steps} steps: the first window would have been whole after {needed}"


def _note(progress: Progress, text: str) -> None:
    progress.notes = (*progress.notes, text)
