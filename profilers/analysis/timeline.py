"""What ran when: each device's span in equal slices, with the class and the state that dominate each."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import intervals
from profilers.analysis.options import Options
from profilers.analysis.states import state_codes, state_names
from profilers.analysis.view import View, view
from profilers.rules.taxonomy import CLASSES, IDLE
from profilers.tables import Recording

_COLUMNS = ["device", "bin", "start_us", "dur_us", "class", "state", "gemm_pct", "busy_pct"]


def timeline(recording: Recording, options: Options) -> pd.DataFrame:
    """``options.timeline_bins`` rows per device, from its first start to its last end (fewer where the span is shorter
    than that many nanoseconds).

    ``class`` and ``state`` are those with most time in the slice among what ran (``idle`` and '' where nothing did);
    ``gemm_pct`` and ``busy_pct`` are of the slice. Where several activities run, an instant is divided among them.
    """
    v = view(recording)
    state, gemm = state_codes(v, options), v.gemm_like(options)
    frames = [_device(v, index, state, gemm, options.timeline_bins) for index in range(len(v.devices))]
    frames = [frame for frame in frames if len(frame)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_COLUMNS)


def _device(v: View, device: int, state: np.ndarray, gemm: np.ndarray, wanted: int) -> pd.DataFrame:
    low, high = v.span(device)
    bins = min(wanted, high - low)
    if bins < 1:
        return pd.DataFrame(columns=_COLUMNS)
    edges = low + np.round(np.linspace(0, high - low, bins + 1)).astype(np.int64)
    begin, end, row = v.segments(device)
    shared = intervals.sharing(begin, end)
    begin, end, index, place = intervals.cut(begin, end, edges)
    row = row[index]
    time = shared.share(begin, end)
    length = np.diff(edges).astype(float)

    def table(code: np.ndarray, size: int, rows: np.ndarray) -> np.ndarray:
        return np.bincount(place[rows] * size + code[row[rows]], time[rows], minlength=bins * size).reshape(bins, size)

    everything = np.arange(row.size)
    by_class = table(v.cls.astype(np.int64), len(CLASSES), everything)
    by_state = table(state, state_names().size, np.flatnonzero(v.is_kernel[row]))
    gemm_time = np.bincount(place, np.where(gemm[row], time, 0), minlength=bins)
    busy = shared.busy_between(edges[:-1], edges[1:])
    ran = by_class.sum(axis=1) > 0
    return pd.DataFrame(
        {
            "device": v.devices[device],
            "bin": np.arange(bins),
            "start_us": edges[:-1] / 1e3,
            "dur_us": length / 1e3,
            "class": np.where(ran, np.array(CLASSES, object)[by_class.argmax(axis=1)], IDLE),
            "state": np.where(by_state.sum(axis=1) > 0, state_names()[by_state.argmax(axis=1)], ""),
            "gemm_pct": np.minimum(100 * gemm_time / length, 100),
            "busy_pct": np.minimum(100 * busy / length, 100),
        },
        columns=_COLUMNS,
    )
