"""What a runtime or driver call does: CUDA and HIP, with or without the version suffix that some recorders append."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SUFFIX = re.compile(r"_v\d{4,}$")
LOADING = "enumerate(DataLoader)"
"""What the range begins with that PyTorch marks around fetching a batch: a call of the host, too."""

_KINDS = (
    ("loading", re.compile("^" + re.escape(LOADING))),
    # `cuLaunchKernelEx`, `cudaGraphLaunch`, `hipExtModuleLaunchKernel`, `cudaLaunchCooperativeKernel`.
    ("launch", re.compile(r"^(cuda|cu|hip)\w*Launch(?!HostFunc|Attribute)", re.IGNORECASE)),
    ("sync", re.compile(r"Synchronize|StreamWaitEvent|WaitEvent|EventQuery|StreamQuery")),
    ("copy", re.compile(r"^(cuda|cu|hip)(Memcpy|Memset|MemPrefetch)", re.IGNORECASE)),
    (
        "alloc",
        re.compile(r"Malloc|Free(?!ze)|MemAlloc|MemCreate|MemMap|MemUnmap|HostAlloc|HostRegister|HostUnregister"),
    ),
)
_NEVER = re.compile(r"Get|Occupancy|FuncSet|IsCapturing")


def plain_name(name: str) -> str:
    """The call's name without an ABI version: ``cudaLaunchKernel_v7000`` is ``cudaLaunchKernel``."""
    return _SUFFIX.sub("", name)


def call_kind(name: str) -> str:
    """``launch``, ``sync``, ``copy``, ``alloc``, ``loading`` or ``other``, the ``kind`` of the runtime table."""
    if _NEVER.search(name):
        return "other"
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "other")


def call_kinds(names: Iterable[str]) -> list[str]:
    """:func:`call_kind` of each name (of the distinct ones, please: a recording has few)."""
    return [call_kind(name) for name in names]
