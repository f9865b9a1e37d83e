"""A pause of several ranks: all rest after one step, which each of them has still to take.

One that rested a step earlier than another would leave it in the middle of a collective, which gives up after a while.
So each rank's ``pause`` file names a step that lies far enough ahead for all to hear of it in time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from profilers.collectors import files, protocol
from profilers.collectors.protocol import Progress

_AHEAD_S = 2.0
_PACE = 10.0
"""Steps a second, where they have not been timed yet."""

_PROGRESS = msgspec.json.Decoder(Progress)


class CommonRest:
    """Passes a run's pause on to its ranks in ``places``. ``beat_s``: how often they say how many steps they have taken."""

    def __init__(self, folder: Path, places: Sequence[Path], beat_s: float) -> None:
        self.paused = False
        self.rate: float | None = None
        self._folder, self._places, self._beat_s = folder, places, beat_s
        self._furthest = (0, 0.0)
        self._told_at, self._again = 0.0, 1

    def pass_on(self) -> None:
        """Tell the ranks when somebody has paused the run, or lets it go on."""
        paused = (self._folder / protocol.PAUSE).exists()
        step = self.step_ahead() if paused and not self.paused else 0
        if paused != self.paused and step is not None:
            self.paused, self._told_at, self._again = paused, time.monotonic(), 1
            for place in self._places:
                if paused:
                    files.write_atomic(place / protocol.PAUSE, b"%d" % step)
                else:
                    (place / protocol.PAUSE).unlink(missing_ok=True)

    def look(self, steps: int, now: float) -> None:
        """Take note of how many ``steps`` the furthest rank has taken by ``now``, and see whether all rest that should."""
        before, at = self._furthest
        if self.paused:
            self._furthest = (0, now)
            self._see_to_resting(steps, now)
        elif steps > before:
            if before > 0:
                self.rate = (steps - before) / (now - at)
            self._furthest = (steps, now)

    def step_ahead(self) -> int | None:
        """The number of a step that no rank will have taken when all have been told of it; 0: no steps are counted (yet);
        None: they are, and their pace is known in a moment."""
        steps, seen = self._furthest
        if self.rate is None:
            return None if steps > 0 else 0
        return steps + math.ceil(self.rate * (time.monotonic() - seen + _AHEAD_S)) + 2

    def _see_to_resting(self, steps: int, now: float) -> None:
        """Some ranks rest, and others have been waiting for them in the next step since: their pace had changed. They are
        told a later step, which all will now hear of in time, as nobody goes on before."""
        if now - self._told_at < self._beat_s + _AHEAD_S:
            return
        resting = [(told := progress_of(place)) is not None and told.phase == "paused" for place in self._places]
        if any(resting) and not all(resting) and steps > 0:
            self._told_at, self._again = now, 2 * self._again
            step = steps + math.ceil((self.rate or _PACE) * _AHEAD_S * self._again) + 2
            for place in self._places:
                files.write_atomic(place / protocol.PAUSE, b"%d" % step)


def progress_of(place: Path) -> Progress | None:
    """How far a rank is, by its own word; None where it has said nothing yet."""
    data = files.read_bytes(place / protocol.PROGRESS)
    try:
        return _PROGRESS.decode(data) if data else None
    except msgspec.MsgspecError:
        return None
