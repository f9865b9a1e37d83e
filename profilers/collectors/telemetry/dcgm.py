"""What units of GPUs before Hopper do, from a running dcgm-exporter on this machine: ``KERNELSCOPE_DCGM`` names its URL.

DCGM's profiling fields take the same lock as CUPTI and Nsight on those GPUs, for the whole machine: they must not be
asked for while counters are collected. Whether that is so is the caller's to know.
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence

from profilers.collectors.telemetry.base import Sample, now_ns

SOURCE = "dcgm"
VARIABLE = "KERNELSCOPE_DCGM"
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


def configured() -> str:
    """The exporter's URL, '' where none is named."""
    return os.environ.get(VARIABLE, "").strip()


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
        raise ValueError(f"{VARIABLE} must be an http address on this machine, such as http://localhost:9400/metrics")
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        return str(answer.read(_MOST_BYTES).decode("utf-8", "replace"))
