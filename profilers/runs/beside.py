"""What a comparison takes from a run beside its recording: the unprofiled step time, energy, and a name to tell it by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from profilers.analysis.compare import Beside
from profilers.analysis.energy import energy_a_step
from profilers.runs.folder import RunFolder

if TYPE_CHECKING:
    from profilers.runs.opening import Opened

_STEPPING = frozenset({"timing", "profiling"})


def beside(run: RunFolder | None) -> Beside:
    """Step time and energy a step of a run; NaN where it does not know (a recording knows neither)."""
    if run is None:
        return Beside()
    step_ms = run.status().step_ms
    if step_ms is None:
        return Beside()
    span = stepping(run)
    energy = energy_a_step(run.samples(), run.spec().device, *span, step_ms * 1e3) if span is not None else math.nan
    return Beside(step_ms * 1e3, energy)


def stepping(run: RunFolder) -> tuple[float, float] | None:
    """Between which times of day (seconds since the epoch) steps ran; None where the log of events does not say."""
    began = None
    for event in run.events():
        if event.get("kind") == "state":
            if event.get("state") in _STEPPING and began is None:
                began = float(event["t"])
            elif event.get("state") not in _STEPPING and began is not None:
                return began, float(event["t"])
        elif event.get("kind") == "worker_left" and began is not None:
            return began, float(event["t"])
    return None


def names_of(opened: Sequence[Opened]) -> list[str]:
    """Their titles; where two are the same, with what tells them apart: batch, precision ..., else the run's id."""
    titles = [one.title for one in opened]
    names = []
    for one, title in zip(opened, titles, strict=True):
        alike = [other for other in opened if other.title == title]
        if len(alike) == 1 or one.run is None:
            names.append(title)
            continue
        words = [_words(other.run) for other in alike if other.run is not None]
        own = _words(one.run)
        apart = [word for place, word in enumerate(own) if word and len({other[place] for other in words}) > 1]
        unique = sum(other == own for other in words) == 1 and len(words) == len(alike)
        names.append(" ".join([title, *apart]) if unique else f"{title} ({one.run.id})")
    return names


def _words(run: RunFolder) -> tuple[str, ...]:
    """What was asked of a run, in a fixed order of places."""
    spec = run.spec()
    sequence = f"s{spec.seq}" if spec.seq else ""
    return (
        spec.size,
        spec.mode,
        spec.dtype,
        f"b{spec.batch}",
        sequence,
        spec.backend,
        spec.quant,
        spec.attention,
        spec.device,
    )
