"""How fast a device can compute and move at most, and where that figure comes from.

Looked up in this order: the user's own file (``peaks.toml`` in the configuration folder, which ``calibrate`` writes),
the table of vendor figures beside this module, and for the processors of this machine an estimate from cores, clock and
vector width. A device that is in none of them has no peak: nothing is shown in percent of it.
"""

from __future__ import annotations

import math
import os
import platform
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import platformdirs

from profilers.analysis.options import Options
from profilers.tables import Device, Recording

_RATES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


class PeaksError(ValueError):
    """A file of peaks that cannot be read; the message names the file and the line or entry."""


@dataclass(frozen=True)
class Peaks:
    """Dense TFLOP/s (int8: TOP/s) per type, GB/s and decimal GB of memory of one device; NaN where unknown.

    ``source``: table | estimated | measured | given. ``cite`` says which datasheet and which figures were not found again
    in it, or how they were estimated.
    """

    name: str
    fp64: float = math.nan
    fp32: float = math.nan
    tf32: float = math.nan
    fp16: float = math.nan
    bf16: float = math.nan
    fp8: float = math.nan
    int8: float = math.nan
    memory_gb_s: float = math.nan
    memory_gb: float = math.nan
    sm_count: int | None = None
    source: str = "table"
    cite: str = ""
    unchecked: tuple[str, ...] = ()
    """Fields that were not found in what ``cite`` names, which says so."""

    def tflops(self, dtype: str) -> float:
        """The peak for a type as :func:`profilers.analysis.calls.short_dtype` writes it. ``tf32`` falls back to fp32
        where the device has none; ``''`` (not recorded) means fp32."""
        name = self._field(dtype)
        return float(getattr(self, name)) if name else math.nan

    def source_of(self, dtype: str) -> str:
        """Where the peak for a type is from: ``source``, or ``unchecked`` for a figure of the table that nobody found
        again; '' where there is no peak."""
        if math.isnan(self.tflops(dtype)):
            return ""
        return "unchecked" if self.source == "table" and self._field(dtype) in self.unchecked else self.source

    def _field(self, dtype: str) -> str:
        name = {"uint8": "int8", "": "fp32"}.get(dtype, dtype)
        name = "fp32" if name == "tf32" and math.isnan(self.tf32) else name
        return name if name in _RATES else ""

    @property
    def best_tflops(self) -> float:
        """The highest 16-bit or fp32 rate: what a device is usually advertised with."""
        known = [value for value in (self.fp16, self.bf16, self.fp32) if not math.isnan(value)]
        return max(known, default=math.nan)


@dataclass(frozen=True)
class _Entry:
    pattern: re.Pattern[str]
    min_memory: float
    max_memory: float
    peaks: Peaks

    def fits(self, device: Device) -> bool:
        if not self.pattern.search(device.name.lower()):
            return False
        if device.memory_bytes is None:
            return self.min_memory <= 0
        return self.min_memory <= device.memory_bytes / 1e9 <= self.max_memory


def _entries(text: str, where: str, source: str) -> tuple[_Entry, ...]:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PeaksError(f"{where}: {error}") from None
    found = []
    for number, item in enumerate(raw.get("device", []), 1):
        try:
            rates = {key: float(item[key]) for key in (*_RATES, "memory_gb_s", "memory_gb") if key in item}
            if any(not value > 0 for value in rates.values()):
                raise ValueError("a peak must be above 0")
            peaks = Peaks(
                str(item["name"]),
                **rates,
                sm_count=int(item["sm_count"]) if "sm_count" in item else None,
                source=str(item.get("source", source)),
                cite=_cite(item, where),
                unchecked=tuple(item.get("unchecked", ())),
            )
            pattern = re.compile(str(item.get("pattern", re.escape(str(item["name"]).lower()))))
        except (KeyError, TypeError, ValueError, re.error) as error:
            raise PeaksError(f"{where}: [[device]] number {number}: {error or type(error).__name__}") from None
        low, high = float(item.get("min_memory_gb", 0)), float(item.get("max_memory_gb", math.inf))
        found.append(_Entry(pattern, low, high, peaks))
    return tuple(found)


def _cite(item: Mapping[str, Any], where: str) -> str:
    """Where an entry's figures are from, and which of them nobody has found there. Raises ValueError."""
    cite, unchecked = str(item.get("cite", where)), list(item.get("unchecked", ()))
    if unknown := [name for name in unchecked if name not in item]:
        raise ValueError(f"unchecked names what the entry does not have: {', '.join(map(str, unknown))}")
    return f"{cite} (not checked: {', '.join(unchecked)})" if unchecked else cite


@lru_cache(maxsize=1)
def _table() -> tuple[_Entry, ...]:
    path = Path(__file__).with_name("peaks.toml")
    return _entries(path.read_text("utf-8"), path.name, "table")


def known_devices() -> tuple[Peaks, ...]:
    """Every device of the table, each once, in its order (older first)."""
    return tuple({entry.peaks.name: entry.peaks for entry in _table()}.values())


def user_file() -> Path:
    """Where the user's own peaks are: ``peaks.toml`` in the configuration folder."""
    return Path(platformdirs.user_config_path("kernelscope")) / "peaks.toml"


def _user(path: Path) -> tuple[_Entry, ...]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise PeaksError(f"{path}: {error}") from None
    return _entries(text, str(path), "given")


def device_peaks(device: Device, path: Path | None = None) -> Peaks | None:
    """The peaks of a device; None where the user's file and the table do not know it and it is not this machine's CPU.

    A device with fewer SMs than its model (a MIG slice, a partition) gets that part of the compute peak: estimated.
    Raises :class:`PeaksError` when the user's file cannot be read.
    """
    for entry in _user(path or user_file()):
        if entry.fits(device):
            return entry.peaks
    if device.kind == "cpu":
        if device.name not in _local_names():
            return None
        here = local_cpu()
        if device.name in ("", "cpu"):
            return replace(here, cite=f"{here.cite}; the recording names no processor, so this machine's is taken")
        return here
    if not device.name:
        return None
    for entry in _table():
        if entry.fits(device):
            return _scaled(entry.peaks, device)
    return None


def _scaled(peaks: Peaks, device: Device) -> Peaks:
    have, whole = device.sm_count, peaks.sm_count
    if not have or not whole or have >= whole:
        return peaks
    part = {rate: getattr(peaks, rate) * have / whole for rate in _RATES}
    return replace(peaks, **part, sm_count=have, source="estimated", cite=f"{have} of {whole} SMs; {peaks.cite}")


def recording_peaks(recording: Recording, options: Options | None = None) -> dict[str, Peaks]:
    """Peaks by device id, for the devices that have one. ``options.peaks`` (measured elsewhere, given) come first."""
    given = dict(options.peaks) if options else {}
    devices = {device.id: device for device in recording.devices}
    for name in recording.kernels["device"].cat.categories:
        if name:
            kind = "cpu" if str(name).rsplit("/", 1)[-1].startswith("cpu") else "cuda"
            devices.setdefault(str(name), Device(str(name), kind=kind))
    found: dict[str, Peaks] = {}
    for name, device in devices.items():
        peaks = given.get(name) or device_peaks(device)
        if peaks is not None:
            found[name] = peaks
    return found


# --- this machine's processors -------------------------------------------------------------------------------------

_GB_S_PER_CORE, _GB_S_MOST = 10.0, 200.0
"""Memory bandwidth that one core, and a socket, sustain: rules of thumb, until ``calibrate`` has measured."""


@lru_cache(maxsize=1)
def local_cpu() -> Peaks:
    """An estimate for this machine's processors: usable cores x clock x operations a cycle (vector width, two FMA
    units where the instruction set suggests them)."""
    info = _cpuinfo()
    cores = _usable_cores(info)
    ghz = _clock_ghz(info)
    flags = set(info.get("flags", info.get("features", "")).lower().split())
    return cpu_estimate(info.get("model name", "").strip() or _other_name(), cores, ghz, flags)


def cpu_estimate(name: str, cores: int, ghz: float, flags: Iterable[str]) -> Peaks:
    """``flags`` as in /proc/cpuinfo. Operations a cycle and core in fp32: AVX-512 64, AVX2 with FMA 32, AVX 16,
    otherwise (SSE, NEON) 16."""
    have = set(flags)
    cycle = 64.0 if "avx512f" in have else 32.0 if {"avx2", "fma"} <= have else 16.0
    fp32 = cores * ghz * cycle / 1e3
    half = 2.0 if "avx512_fp16" in have or "asimdhp" in have else 1.0
    brain = 16.0 if "amx_bf16" in have else 2.0 if "avx512_bf16" in have or "bf16" in have else 1.0
    byte = 32.0 if "amx_int8" in have else 4.0 if have & {"avx512_vnni", "avx_vnni", "asimddp"} else 1.0
    return Peaks(
        name,
        fp64=fp32 / 2,
        fp32=fp32,
        fp16=fp32 * half,
        bf16=fp32 * brain,
        int8=fp32 * byte,
        memory_gb_s=min(cores * _GB_S_PER_CORE, _GB_S_MOST),
        sm_count=cores,
        source="estimated",
        cite=f"estimated from core count: {cores} cores x {ghz:.2f} GHz x {cycle:.0f} fp32 operations a cycle; "
        f"memory: {_GB_S_PER_CORE:.0f} GB/s a core, {_GB_S_MOST:.0f} at most, whatever is built in",
    )


def _cpuinfo() -> dict[str, str]:
    """The first processor of /proc/cpuinfo; empty where there is none (macOS)."""
    found: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            if not key.strip() and found:
                break
            found.setdefault(key.strip().lower(), value.strip())
    except OSError:
        pass
    return found


def _usable_cores(info: Mapping[str, str]) -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        per_core = max(1, int(info["siblings"]) // int(info["cpu cores"]))
    except (KeyError, ValueError, ZeroDivisionError):
        per_core = 1
    return max(1, usable // per_core)


def _clock_ghz(info: Mapping[str, str]) -> float:
    try:
        return int(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text()) / 1e6
    except (OSError, ValueError):
        pass
    named = re.search(r"@\s*([\d.]+)\s*GHz", info.get("model name", ""))
    if named:
        return float(named.group(1))
    try:
        return float(info["cpu mhz"]) / 1e3
    except (KeyError, ValueError):
        return 2.0


def _other_name() -> str:
    return platform.processor() or platform.machine() or "cpu"


@lru_cache(maxsize=1)
def _local_names() -> frozenset[str]:
    """What a recording made here may call the processors: a recording that names none is taken to be from here."""
    info = _cpuinfo()
    keys = ("model name", "model", "cpu model", "hardware")
    return frozenset({"", "cpu", local_cpu().name, _other_name(), *(info[key] for key in keys if key in info)})


# --- the user's file ----------------------------------------------------------------------------------------------


def to_toml(peaks: Iterable[Peaks]) -> str:
    """The text of a ``peaks.toml`` with these entries; reading it gives the same peaks."""
    blocks = []
    for item in peaks:
        lines = ["[[device]]"]
        for key, value in asdict(item).items():
            if key == "unchecked":
                # The cite says it already, and is all that is kept of it.
                continue
            if isinstance(value, str):
                text = value.replace("\\", "\\\\").replace('"', '\\"')
                lines.append(f'{key} = "{"".join(c for c in text if c.isprintable())}"')
            elif value is not None and not (isinstance(value, float) and math.isnan(value)):
                lines.append(f"{key} = {value}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def remember(measured: Iterable[Peaks], path: Path | None = None) -> Path:
    """Write peaks into the user's file, in front of what is there; entries of the same name are replaced."""
    path = path or user_file()
    new = list(measured)
    names = {item.name for item in new}
    kept = [entry for entry in _user(path) if entry.peaks.name not in names]
    text = to_toml(new)
    for entry in kept:
        block = to_toml([entry.peaks]).rstrip("\n").split("\n")
        block.append(f"pattern = '''{entry.pattern.pattern}'''")
        if entry.min_memory:
            block.append(f"min_memory_gb = {entry.min_memory}")
        if entry.max_memory != math.inf:
            block.append(f"max_memory_gb = {entry.max_memory}")
        text += "\n" + "\n".join(block) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".tmp")
    aside.write_text(text, "utf-8")
    aside.replace(path)
    return path
