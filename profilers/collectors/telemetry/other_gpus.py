"""GPUs that are there but cannot be measured yet, found without any vendor's library."""

from __future__ import annotations

from pathlib import Path

AMD = "0x1002"
_DRM = Path("/sys/class/drm")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")

AMD_NOTE = (
    "AMD GPUs are not supported yet: no telemetry, and runs do not start on them; recordings made on them can be opened"
)


def amd_gpus(drm: Path = _DRM, kfd: Path = _KFD) -> list[str]:
    """The names of AMD GPUs here. From the display driver's devices; where a container hides those, from the compute
    driver's."""
    found = []
    for device in sorted(drm.glob("card*/device")):
        if "-" in device.parent.name or _text(device / "vendor") != AMD:
            continue
        found.append(_text(device / "product_name") or f"AMD GPU {_text(device / 'device')}".strip())
    if found:
        return found
    # A node with SIMDs is a GPU; the processors are nodes as well.
    return [_text(node / "name") or "AMD GPU" for node in sorted(kfd.glob("*")) if _simds(node) > 0]


def _simds(node: Path) -> int:
    for line in _text(node / "properties").splitlines():
        name, _, value = line.partition(" ")
        if name == "simd_count" and value.strip().isdigit():
            return int(value)
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
