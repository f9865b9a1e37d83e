"""Joules a step: the device's mean power while steps ran, times how long a step takes without the profiler.

An estimate: drivers average power over tens of milliseconds or more and are asked about twice a second, and the profiled
steps among those that ran are slower than the timed one. NonGEMM Bench likewise adds up sampled power over many steps.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

LEAST_SAMPLES = 3
"""Fewer samples of the power than these tell nothing."""


def energy_a_step(samples: pd.DataFrame, device: str, began_s: float, ended_s: float, step_us: float) -> float:
    """Joules a step of ``device``, from ``samples`` (:data:`profilers.tables.SAMPLES`) between two times of day in seconds.

    NaN where there are fewer than :data:`LEAST_SAMPLES` of ``power_w``, or no step time.
    """
    time = samples["t_ns"].to_numpy() / 1e9
    mine = (samples["device"] == device) & (samples["metric"] == "power_w")
    power = samples["value"].to_numpy()[mine.to_numpy() & (time >= began_s) & (time <= ended_s)]
    power = power[np.isfinite(power)]
    if power.size < LEAST_SAMPLES or not step_us > 0:
        return math.nan
    return float(power.mean()) * step_us / 1e6
