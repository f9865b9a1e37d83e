"""Where each rank is: how many steps it has taken, and the line of the script that its main thread is at.

When ranks hang, every one of them waits for another; the one that waits elsewhere is the one to look at. A rank writes
its whereabouts every few seconds from a thread, so it tells them also while its main thread waits (outside Python code
that never lets go of the interpreter).
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

import msgspec

from profilers.collectors import files

FILE = "whereabouts.json"
BEAT_S = 5.0
_WRAPPERS = frozenset({"wrapper", "wrapped", "inner", "_fn", "decorate_context", "_wrapped_call_impl", "_call_impl"})
_OURS = str(Path(__file__).parents[1])
_NOT_THEIRS = (sysconfig.get_path("stdlib"), _OURS)


class Whereabouts(msgspec.Struct):
    """``steps``: taken so far, recorded or not; -1: they are not counted. ``place``: ``train.py:34``, with the function
    of a package that was called there."""

    steps: int = 0
    place: str = ""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Whereabouts)


def tell(folder: Path, steps: Callable[[], int], every_s: float = BEAT_S) -> Callable[[], None]:
    """Begin to write the whereabouts of this thread (the script's main one) into ``folder``. Returns what ends it."""
    main, over = threading.get_ident(), threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            try:
                found = Whereabouts(steps(), place(sys._current_frames().get(main)))
                files.write_atomic(folder / FILE, _ENCODER.encode(found))
            except OSError:
                pass

    threading.Thread(target=beat, name="kernelscope-whereabouts", daemon=True).start()
    return over.set


def told(folder: Path) -> Whereabouts:
    """What a rank last wrote; nothing known yet: no steps, no place."""
    try:
        return _DECODER.decode(files.read_bytes(folder / FILE) or b"{}")
    except msgspec.MsgspecError:
        return Whereabouts()


def place(frame: FrameType | None) -> str:
    """The innermost line of the user's own code, and the function that it called where that lies in a package."""
    called = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", *_NOT_THEIRS)) and "-packages" not in name:
            return f"{Path(name).name}:{frame.f_lineno}" + (f" (in {called})" if called else "")
        if not name.startswith(_OURS) and (frame.f_code.co_name not in _WRAPPERS or not called):
            called = frame.f_code.co_name
        frame = frame.f_back
    return ""


def together(places: Mapping[int, str]) -> str:
    """Where ranks are, those at one place named together: ``ranks 0-2 at train.py:25 (in backward), rank 3 at data.py:9``."""
    by_place: dict[str, list[int]] = {}
    for rank, where in sorted(places.items()):
        by_place.setdefault(where or "a place that it does not tell", []).append(rank)
    said = [
        f"{'ranks' if len(ranks) > 1 else 'rank'} {_numbers(ranks)} {where if where == ENDED else f'at {where}'}"
        for where, ranks in by_place.items()
    ]
    return ", ".join(said)


ENDED = "ended"
"""In place of a line: this rank is no more."""


def _numbers(ranks: list[int]) -> str:
    """``0-2,5`` for 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
