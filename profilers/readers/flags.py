"""Device activities whose recorded length cannot be believed.

They stay in the table, marked, so that sums leave them out and say so. Four marks:

* ``zero_time``: the record was never completed (begin 0 in the recorder's own clock);
* ``negative``: it ends before it begins;
* ``overflow``: its end does not fit in 64 bits, or it lasts longer than any recording can;
* ``overrun``: a stream runs its kernels one after the other, and this one is still running when the next on its
  stream has long begun and already ended. Kernels that overlap their successor a little are real (programmatic
  dependent launch, and older clocks: up to 13 us in recordings of a V100, 4 us on a B200), and nodes of one graph may
  really run side by side; neither is marked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.readers.nesting import Ints
from profilers.tables import Note

FLAGS = ("", "zero_time", "negative", "overflow", "overrun")
"""The marks; :func:`flag_durations` gives positions in this tuple."""

OVERRUN_FLOOR_NS = 100_000
"""How long after the next kernel's begin a kernel must still run to be called an overrun."""

LONGEST_NS = 30 * 86_400 * 10**9
"""Thirty days: no activity of a device lasts longer."""

_TEXTS = {
    "zero_time": "device activities without a begin time (never completed by the profiler): left out of the sums",
    "negative": "device activities that end before they begin: left out of the sums",
    "overflow": "device activities with an impossible length: left out of the sums",
    "overrun": "device activities that run on over later ones of their stream: left out of the sums",
}


def flag_durations(
    start: Ints,
    dur: Ints,
    lane: npt.ArrayLike,
    *,
    graph: npt.ArrayLike | None = None,
    zero: npt.ArrayLike | None = None,
) -> npt.NDArray[np.int8]:
    """For every activity, its mark as a position in :data:`FLAGS` (0: believed).

    ``start`` and ``dur`` are int64 nanoseconds, ``lane`` any value that is equal for activities of one stream of one
    device (of one process, where several were recorded), ``graph`` true for nodes of a graph, ``zero`` true where the
    file itself had no begin time. A length that did not fit is to be given as the largest int64.
    """
    flags = np.zeros(len(start), np.int8)
    with np.errstate(over="ignore"):
        wraps = start + np.maximum(dur, 0) < start
    flags[(dur > LONGEST_NS) | wraps] = FLAGS.index("overflow")
    flags[dur < 0] = FLAGS.index("negative")
    if zero is not None:
        flags[np.asarray(zero, bool)] = FLAGS.index("zero_time")
    believed = flags == 0
    if graph is not None:
        believed &= ~np.asarray(graph, bool)
    rows = np.flatnonzero(believed)
    if len(rows) < 2:
        return flags
    lanes, _ = pd.factorize(np.asarray(lane)[rows])
    order = np.lexsort((start[rows], lanes))
    rows, lanes = rows[order], lanes[order]
    begins, ends = start[rows], start[rows] + dur[rows]
    following = _next_other(lanes, begins)
    has = np.flatnonzero(following < len(rows))
    has = has[lanes[following[has]] == lanes[has]]
    later = following[has]
    late = (ends[has] - begins[later] > OVERRUN_FLOOR_NS) & (ends[has] > ends[later])
    flags[rows[has[late]]] = FLAGS.index("overrun")
    return flags


def flag_column(flags: npt.NDArray[np.int8]) -> pd.Categorical:
    """The marks as the ``flag`` column of the kernels table."""
    return pd.Categorical.from_codes(flags, pd.Index(FLAGS, dtype=object))


def flag_notes(flags: npt.NDArray[np.int8]) -> list[Note]:
    """One note for every mark that occurs (code ``flag_overrun`` and so on), with how many."""
    counts = np.bincount(flags, minlength=len(FLAGS))
    found = [(name, int(counts[FLAGS.index(name)])) for name in _TEXTS]
    return [Note(f"flag_{name}", _TEXTS[name], count) for name, count in found if count]


def _next_other(lanes: Ints, begins: Ints) -> Ints:
    """For rows sorted by (lane, begin), the position of the next row that begins at another time or on another lane."""
    size = len(begins)
    changes = np.flatnonzero((begins[1:] != begins[:-1]) | (lanes[1:] != lanes[:-1])) + 1
    bounds = np.append(changes, size)
    return bounds[np.searchsorted(bounds, np.arange(size), side="right")]
