"""What units of GPUs before Hopper do, as DCGM tells: ``KERNELSCOPE_DCGM`` says from where.

A URL is a running dcgm-exporter on this machine; ``dcgmi`` is its host engine, asked directly (``host_engine``). Neither
is asked unless it is named: DCGM's profiling fields take the same lock as CUPTI's counters and Nsight on those GPUs, for
the whole machine, so that somebody else's Nsight Compute fails while we watch. They must not be asked for while counters
are collected. Whether that is so is the caller's to know.
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence

from profilers.collectors.telemetry import dcgmi
from profilers.collectors.telemetry.base import Sample, now_ns
from profilers.collectors.telemetry.host_engine import HostEngine, Reading

SOURCE = "dcgm"
VARIABLE = "KERNELSCOPE_DCGM"
HOST_ENGINE = "dcgmi"
"""The variable's value for the host engine."""

_TIMEOUT_S = 0.5
_MOST_BYTES = 4_000_000
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

FIELDS = {
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_pct", 100.0, "%"),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("occupancy_pct", 100.0, "%"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_pct", 100.0, "%"),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_pct", 100.0, "%"),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("fp64_pct", 100.0, "%"),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("fp32_pct", 100.0, "%"),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("fp16_pct", 100.0, "%"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_mib_s", 1 / 2**20, "MiB/s"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_mib_s", 1 / 2**20, "MiB/s"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_mib_s", 1 / 2**20, "MiB/s"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_mib_s", 1 / 2**20, "MiB/s"),
}
"""DCGM field -> (metric, factor, unit). Ratios of 0 to 1 become percentages, bytes a second MiB/s."""

_LINE = re.compile(r"^(DCGM_FI_PROF_\w+)\{([^}]*)\}\s+(\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


PAUSED = "DCGM is not asked while counters are collected: both take the same lock"
NOT_OFFERED = "DCGM does not have it for this GPU"
METRICS = frozenset(metric for metric, _, _ in FIELDS.values())


def configured() -> str:
    """The exporter's URL, :data:`HOST_ENGINE`, or '' where neither is named."""
    return os.environ.get(VARIABLE, "").strip()


class Dcgm:
    """DCGM for the sampler, from what is ``named``: :func:`configured` where nothing is given.

    A turn is: :meth:`sample` for each GPU that wants it, then :meth:`turn_over`. GPUs that were not asked for in a turn
    are watched no longer; where none was, nothing of ours holds the counters' lock.
    """

    def __init__(self, named: str | None = None) -> None:
        self.named = configured() if named is None else named
        self._engines: dict[str, HostEngine] = {}
        self._asked: dict[str, set[str]] = {}

    def sample(self, device: str, uuid: str, model: str) -> tuple[list[Sample], frozenset[str]]:
        """A GPU's samples, and the metrics of which DCGM speaks now: nothing else need be said of them."""
        if self.named != HOST_ENGINE:
            found = DcgmCollector(self.named, [(device, uuid)]).sample()
            return found, frozenset(sample.metric for sample in found)
        # One child a model: DCGM watches no group of several.
        engine = self._engines.setdefault(model, HostEngine())
        asked = self._asked.setdefault(model, set())
        asked.add(uuid)
        reading, why = engine.read(uuid)
        if why:
            return [Sample(now_ns(), device, "sm_pct", None, "%", SOURCE, why)], frozenset({"sm_pct"})
        return [] if reading is None else _of_reading(device, reading, engine.lacking()), METRICS

    def turn_over(self) -> None:
        """End of a turn. Never waits."""
        for model, engine in self._engines.items():
            engine.want(self._asked.get(model, ()))
        self._asked = {}

    def close(self) -> None:
        """End what was started."""
        for engine in self._engines.values():
            engine.close()
        self._engines = {}


def paused(device: str) -> tuple[list[Sample], frozenset[str]]:
    """What :meth:`Dcgm.sample` would say, where it must not ask."""
    return [Sample(now_ns(), device, "sm_pct", None, "%", SOURCE, PAUSED)], frozenset({"sm_pct"})


def _of_reading(device: str, reading: Reading, lacking: Sequence[int]) -> list[Sample]:
    found = []
    for number, value in (*reading.values.items(), *((number, NOT_OFFERED) for number in lacking)):
        metric, factor, unit = FIELDS[dcgmi.FIELDS[number]]
        known = round(value * factor, 3) if isinstance(value, float) else None
        found.append(Sample(reading.t_ns, device, metric, known, unit, SOURCE, "" if known is not None else str(value)))
    return found


class DcgmCollector:
    """Samples of GPUs from an exporter. ``devices`` are (name to sample under, UUID).

    The exporter averages over its own interval (often 30 s): newer values than it has do not exist.
    """

    def __init__(self, url: str, devices: Sequence[tuple[str, str]], fetch: Callable[[str], str] | None = None) -> None:
        self._url = url
        self._devices = list(devices)
        self._fetch = fetch or _fetch

    def sample(self) -> list[Sample]:
        """The values of now, or ``sm_pct`` without a value and the reason."""
        try:
            text = self._fetch(self._url)
        except (OSError, ValueError) as error:
            why = f"dcgm-exporter at {VARIABLE} does not answer: {error}"
            return [Sample(now_ns(), name, "sm_pct", None, "%", SOURCE, why) for name, _ in self._devices]
        t, by_uuid = now_ns(), parse(text)
        found = []
        for name, uuid in self._devices:
            values = by_uuid.get(uuid)
            if not values:
                why = "dcgm-exporter shows no profiling field of this GPU"
                found.append(Sample(t, name, "sm_pct", None, "%", SOURCE, why))
                continue
            for field, value in values.items():
                metric, factor, unit = FIELDS[field]
                found.append(Sample(t, name, metric, round(value * factor, 3), unit, SOURCE))
        return found

    def close(self) -> None:
        """Nothing is held open."""


def parse(text: str) -> dict[str, dict[str, float]]:
    """Profiling fields by UUID from the exporter's page; anything else on it is not ours."""
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match.group(1) not in FIELDS:
            continue
        uuid = dict(_LABEL.findall(match.group(2))).get("UUID", "")
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        if uuid and value == value:
            found.setdefault(uuid, {})[match.group(1)] = value
    return found


def _fetch(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in _LOCAL:
        raise ValueError(
            f"{VARIABLE} must be an http address on this machine, such as http://localhost:9400/metrics, or {HOST_ENGINE}"
        )
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        return str(answer.read(_MOST_BYTES).decode("utf-8", "replace"))
