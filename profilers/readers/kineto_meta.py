"""What a recording says of itself beside its events: devices, rank, clock base, versions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from profilers.readers.salvage import UNREADABLE, object_end, repairs
from profilers.tables import Device, Note

_KEYS = (
    "schemaVersion",
    "deviceProperties",
    "computeProperties",
    "distributedInfo",
    "baseTimeNanoseconds",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "roctracer_version",
)
_VERSIONS = ("schemaVersion", "cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "roctracer_version")
_AMD = re.compile(r"\b(AMD|Radeon|Instinct)\b", re.IGNORECASE)


def metadata(head: bytes, tail: bytes) -> tuple[dict[str, Any], list[Note]]:
    """The keys we know, from the text before the list of events (up to its bracket) and the text after it."""
    if head.strip() == b"[":
        return {}, []
    text = head + b"]" + tail
    try:
        return _holder(msgspec.json.decode(text)), []
    except UNREADABLE:
        pass
    for closing in (b"", b"}", b"}}", b"}]}"):
        for version, kinds in repairs(text.rstrip(b" \t\r\n\0,") + closing):
            try:
                found = _holder(msgspec.json.decode(version))
            except UNREADABLE:
                continue
            if closing and tail.strip():
                kinds = [*kinds, "cut off"]
            if not kinds:  # Only the end was missing, which the list of events has already told.
                return found, []
            what = ", ".join(sorted(kinds))
            mended = f"the data beside the events was damaged JSON and was mended ({what})"
            return found, [Note("repaired_metadata", mended)]
    found = _picked(text)
    names = ", ".join(found) or "nothing"
    return found, [Note("damaged_metadata", f"the data beside the events is damaged JSON; recovered of it: {names}")]


def _holder(value: Any, depth: int = 3) -> dict[str, Any]:
    """The object that holds the list of events, however it is wrapped."""
    if isinstance(value, dict):
        if "traceEvents" in value:
            return value
        inner: Iterable[Any] = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return {}
    return next((found for one in inner if depth and (found := _holder(one, depth - 1))), {})


def _picked(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in _KEYS:
        match = re.search(rb'"%s"\s*:\s*' % key.encode(), text)
        if not match:
            continue
        begin = match.end()
        end = object_end(text, begin, len(text)) if text[begin : begin + 1] in (b"{", b"[") else -1
        raw = text[begin:end] if end > 0 else re.split(rb"[,}\s]", text[begin : begin + 64])[0]
        for version, _ in repairs(raw):
            try:
                found[key] = msgspec.json.decode(version)
                break
            except UNREADABLE:
                continue
    return found


def number(meta: dict[str, Any], *keys: str) -> int | None:
    """The first of these keys that holds a whole number."""
    for key in keys:
        value = meta.get(key)
        if isinstance(value, str) and value.isdecimal():
            return int(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
            return int(value)
    return None


def distributed(meta: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size, where the recording tells them."""
    info = meta.get("distributedInfo")
    if not isinstance(info, dict):
        return None, None
    return number(info, "rank"), number(info, "world_size")


def versions(meta: dict[str, Any]) -> dict[str, str]:
    """Schema and runtime versions as texts."""
    return {key: str(meta[key]) for key in _VERSIONS if isinstance(meta.get(key), (int, float, str))}


def devices(meta: dict[str, Any], used: list[int], hip: bool) -> tuple[tuple[Device, ...], list[Note]]:
    """The devices that the recording lists and those that its activities ran on (``used``: their numbers).

    ROCm numbers its agents with the CPUs, so that activities may name a device that is not listed. It is described by
    the listed ones where they are all of one model, and left without a name where they are not.
    """
    listed: dict[int, Device] = {}
    properties = meta.get("deviceProperties", meta.get("computeProperties"))
    rank = distributed(meta)[0]
    for one in properties if isinstance(properties, list) else ():
        if isinstance(one, dict) and (index := number(one, "id")) is not None:
            listed[index] = _device(index, one, hip, rank)
    notes = []
    model = next(iter(listed.values())) if len({device.name for device in listed.values()}) == 1 else None
    absent = [index for index in used if index not in listed]
    if listed and absent:
        how = "taken to be of the one model listed" if model else "left without a name, as several models are listed"
        named = ", ".join(str(index) for index in absent)
        notes.append(Note("unlisted_devices", f"device {named} is not among the listed devices; {how}", len(absent)))
    for index in absent:
        bare = Device("", kind="hip" if hip else "cuda", rank=rank)
        listed[index] = dataclasses.replace(model or bare, id=f"cuda:{index}")
    return tuple(listed[index] for index in sorted(listed)), notes


def _device(index: int, properties: dict[str, Any], hip: bool, rank: int | None) -> Device:
    name = properties.get("name")
    name = name if isinstance(name, str) else ""
    major, minor = number(properties, "computeMajor", "major"), number(properties, "computeMinor", "minor")
    return Device(
        id=f"cuda:{index}",
        name=name,
        kind="hip" if hip or _AMD.search(name) else "cuda",
        sm_count=number(properties, "numSms", "multiProcessorCount"),
        memory_bytes=number(properties, "totalGlobalMem"),
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        rank=rank,
    )
