"""What NVIDIA's ``dcgmi`` prints, as values and reasons; pure functions over its text. Formats: DCGM 2.2 to 4.x.

``discovery -l`` draws a table of GPUs, ``profile --list`` one of the profiling fields that a GPU has, and ``dmon`` one
row an entity and interval, with a header again every 14 rounds. All were read from DCGM's source, never from hardware.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

FIELDS = {
    1002: "DCGM_FI_PROF_SM_ACTIVE",
    1003: "DCGM_FI_PROF_SM_OCCUPANCY",
    1004: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    1005: "DCGM_FI_PROF_DRAM_ACTIVE",
    1006: "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
    1007: "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
    1008: "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
    1009: "DCGM_FI_PROF_PCIE_TX_BYTES",
    1010: "DCGM_FI_PROF_PCIE_RX_BYTES",
    1011: "DCGM_FI_PROF_NVLINK_TX_BYTES",
    1012: "DCGM_FI_PROF_NVLINK_RX_BYTES",
}
"""DCGM's number of a field -> its name (``dcgm_fields.h``): ratios up to 1008, bytes a second from 1009."""

NOT_HERE = "dcgmi is not on PATH (it comes with NVIDIA's datacenter-gpu-manager)"
NO_ENGINE = "no DCGM host engine answers on this machine (as root: systemctl start nvidia-dcgm)"
NOT_ROOT = "the DCGM host engine does not run as root, which reading profiling fields takes"
LOCKED = "another profiler holds this machine's counters, or DCGM's profiling module failed"
NO_MODULE = "the DCGM host engine has no profiling module for this machine's GPUs"
UNSUPPORTED = "DCGM reads no profiling fields of this model of GPU"
NO_VALUE = "no value (DCGM says N/A)"

_TROUBLES = (
    (
        r"unable to (?:establish a connection|connect to host engine)|connection (?:is )?(?:not valid|invalid)",
        NO_ENGINE,
    ),
    (r"running as (?:non-)?root|insufficient permission|no permission", NOT_ROOT),
    (r"unrecoverable error|resource is in use|counters? .*in use", LOCKED),
    (r"module of DCGM that is not currently loaded", NO_MODULE),
    (r"profiling is not supported|feature not supported|not supported for (?:this|the)", UNSUPPORTED),
)
_RATIOS_UP_TO = 1008
_MOST_RATIO = 1.05
"""Ratios of counters read one after the other may pass 1 by a little; more is not a ratio."""

_ROW = re.compile(r"^\s*(?P<kind>[A-Za-z][A-Za-z-]*)\s+(?P<number>\d+)\s+(?P<values>\S.*)$")
_UUID = re.compile(r"Device UUID:\s*([A-Za-z0-9-]+)")
_NUMBER_CELL = re.compile(r"^\|\s*(\d+)\s*\|")
_OFFERED = re.compile(r"^\|\s*[A-Z]\.\d+\s*\|\s*(\d+)\s*\|")

Value = float | str
"""A number as DCGM gives it, or why there is none."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of ``dmon``. ``kind``: GPU, GPU-I, GPU-CI (MIG's instances), Switch, ...; ``number`` is DCGM's own."""

    kind: str
    number: int
    values: dict[int, Value]


def gpus(text: str) -> dict[str, int]:
    """UUID -> DCGM's number, from ``discovery -l``. MIG's instances are not listed there."""
    found: dict[str, int] = {}
    number: int | None = None
    for line in text.splitlines():
        if line.startswith("+"):
            number = None
        if cell := _NUMBER_CELL.match(line):
            number = int(cell.group(1))
        if number is not None and (uuid := _UUID.search(line)):
            found[uuid.group(1)] = number
    return found


def offered(text: str) -> tuple[int, ...]:
    """Which of :data:`FIELDS` a GPU has, from ``profile --list``; () where it says so, or anything else."""
    listed = {int(match.group(1)) for line in text.splitlines() if (match := _OFFERED.match(line))}
    return tuple(field for field in FIELDS if field in listed)


def row(line: str, fields: Sequence[int]) -> Row | None:
    """A row of ``dmon -e fields``; None for headers and for anything that is not one."""
    match = _ROW.match(line)
    if match is None:
        return None
    cells = match.group("values").split()
    if len(cells) != len(fields):
        return None
    values = {field: _value(field, cell) for field, cell in zip(fields, cells, strict=True)}
    if not any(isinstance(value, float) or value == NO_VALUE for value in values.values()):
        return None
    return Row(match.group("kind"), int(match.group("number")), values)


def header(line: str) -> bool:
    """Whether a line belongs to the table's header: names, units, or the empty line before them."""
    first = line.split()[:1]
    return not first or first[0].startswith("#") or first[0].lower() == "id"


def trouble(text: str) -> str:
    """Why ``dcgmi`` gives nothing, from what it said instead; '' where that says nothing."""
    for pattern, why in _TROUBLES:
        if re.search(pattern, text, re.IGNORECASE):
            return why
    errors = [line.strip() for line in text.splitlines() if line.lstrip().lower().startswith(("error", "unable"))]
    return f"dcgmi: {_clean(errors[-1])}" if errors else ""


def _value(field: int, cell: str) -> Value:
    if cell.upper() == "N/A":
        return NO_VALUE
    try:
        value = float(cell)
    except ValueError:
        return f"not a number: {_clean(cell)[:20]}"
    if not math.isfinite(value) or value < 0 or (field <= _RATIOS_UP_TO and value > _MOST_RATIO):
        return f"out of range: {_clean(cell)[:20]}"
    return value


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:160].strip()
