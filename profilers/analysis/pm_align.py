"""The clock of PM samples against that of kernels: how far to move the samples so that they say busy when kernels ran.

Agreement is Pearson's correlation, over all samples, of the sampled activity with the share of the sample in which
kernels ran: 1 is perfect, 0 is chance. The idle time before and after the step counts as well, and is what pins a step
that leaves no gap of its own.

On a known clock only the neighbourhood of zero is searched: two conversions of one clock differ by microseconds. On an
unknown one every position at which the kernels lie within the sampled time is: first on a grid of one interval, by a
cross-correlation through Fourier transforms, then around the best of its peaks in eighths. A step of equal layers fits
almost as well one layer further: where the second best place is nearly as good as the best, nothing is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from profilers.analysis.intervals import Floats, Ints, covered, union

GOOD = 0.8
"""Agreement below this is none."""
RIVAL = 1.5
"""The second best place must be so many times further from perfect than the best."""
NEAR = 20
"""Intervals to either side that are searched on a known clock."""

_FINE = 8
_PEAKS = 24
_OUTSIDE = 2


class CannotAlignError(Exception):
    """Samples and kernels do not go together. The message is one line."""


@dataclass(frozen=True)
class Alignment:
    """``shift_ns`` is added to a sample's time to have the kernels'. ``estimated``: found without a known clock."""

    shift_ns: int
    agreement: float
    estimated: bool


def align(start: Ints, end: Ints, activity: Floats, kernel_start: Ints, kernel_end: Ints, *, known: bool) -> Alignment:
    """Where the samples belong. ``start``, ``end``: samples in order, in nanoseconds; ``activity``: % of each in which
    the GPU was busy; kernels in any order, possibly overlapping. ``known``: both clocks are said to be the same.

    Raises :class:`CannotAlignError` where agreement stays below :data:`GOOD`, or two places fit equally well.
    """
    told = np.isfinite(activity)
    start, end, activity = start[told], end[told], activity[told]
    busy = union(kernel_start, kernel_end)
    if not busy[0].size:
        raise CannotAlignError("no kernel has a length: there is nothing to tie the samples to")
    if len(start) < 3:
        raise CannotAlignError(f"{len(start)} samples are too few to tie them to kernels")
    fit = _Fit(start, end, activity, busy)
    near = Alignment(0, -1.0, False)
    if known:
        near = Alignment(*fit.best(0, NEAR), False)
        if near.agreement >= GOOD:
            return near
    found = fit.places()
    best = found[0] if found else (0, -1.0)
    if best[1] < GOOD:
        raise CannotAlignError(
            f"samples and kernels do not go together: their best correlation is {max(best[1], near.agreement):.2f}, "
            f"{GOOD:.2f} is needed; nothing was attached"
        )
    if len(found) > 1 and 1 - found[1][1] < RIVAL * (1 - best[1]) + 1e-6:
        apart = abs(best[0] - found[1][0]) / 1000
        raise CannotAlignError(
            f"samples fit the kernels equally well at two places, {apart:,.0f} us apart (correlations {best[1]:.3f} and "
            f"{found[1][1]:.3f}); nothing was attached"
        )
    return Alignment(*best, True)


class _Fit:
    """Samples and busy intervals, and how well they agree at any shift."""

    def __init__(self, start: Ints, end: Ints, activity: Floats, busy: tuple[Ints, Ints]) -> None:
        self._start, self._end, self._busy = start, end, busy
        self._activity = activity
        self.interval = max(1, int(np.median(end - start)))

    def agreement(self, shift: int) -> float:
        """Pearson's correlation with the samples moved by ``shift`` nanoseconds; -1 where it is not defined."""
        share = covered(self._start + shift, self._end + shift, *self._busy) / (self._end - self._start)
        if np.ptp(share) == 0 or np.ptp(self._activity) == 0:
            return -1.0
        return float(np.corrcoef(self._activity, share)[0, 1])

    def best(self, around: int, reach: float) -> tuple[int, float]:
        """The best shift within ``reach`` intervals of ``around``, in eighths of one; of equals, the nearest."""
        steps = int(reach * _FINE)
        shifts = sorted((around + number * self.interval // _FINE for number in range(-steps, steps + 1)), key=abs)
        return max(((shift, self.agreement(shift)) for shift in shifts), key=lambda pair: round(pair[1], 9))

    def places(self) -> list[tuple[int, float]]:
        """Every place that may be the one, best first, at least two intervals apart."""
        found = sorted((self.best(shift, 1.5) for shift in self._coarse()), key=lambda pair: -pair[1])
        apart: list[tuple[int, float]] = []
        for shift, score in found:
            if all(abs(shift - other) >= 2 * self.interval for other, _ in apart):
                apart.append((shift, score))
        return apart

    def _coarse(self) -> Iterable[int]:
        """Shifts, to an interval, at which samples and kernels overlap more than one interval before and after."""
        tau, first, origin = self.interval, int(self._start[0]), int(self._busy[0][0])
        place = np.rint((self._start - first) / tau).astype(np.int64)
        sampled = np.zeros(int(place[-1]) + 1)
        sampled[place] = self._activity
        bins = -(-(int(self._busy[1][-1]) - origin) // tau)
        if bins > len(sampled) + 2 * _OUTSIDE:
            raise CannotAlignError(
                f"the samples cover {len(sampled) * tau / 1e6:.3g} ms, the kernels {bins * tau / 1e6:.3g} ms: "
                "nothing was attached"
            )
        edges = origin + tau * np.arange(bins, dtype=np.int64)
        kernels = covered(edges, edges + tau, *self._busy) / tau
        size = 1 << int(np.ceil(np.log2(len(sampled) + bins + 2 * _OUTSIDE)))
        # Place k: the kernels' first bin falls on the k-th sample. Both ends may stick out a little.
        overlap = np.fft.irfft(np.fft.rfft(sampled, size) * np.conj(np.fft.rfft(kernels, size)), size)
        ks = np.arange(-_OUTSIDE, len(sampled) - bins + _OUTSIDE + 1)
        score = overlap[ks % size]
        padded = np.r_[-np.inf, score, -np.inf]
        peaks = np.flatnonzero((score >= padded[:-2]) & (score > padded[2:]))
        for peak in peaks[np.argsort(-score[peaks], kind="stable")][:_PEAKS]:
            yield origin - (first + int(ks[peak]) * tau)
