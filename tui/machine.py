"""One line on this machine for the title."""

from __future__ import annotations

import socket


def machine_line() -> str:
    """Host and devices: ``gpu01 · 2x H100 80GB``. The host's name is shown, never exported."""
    from profilers.collectors.telemetry.devices import list_devices

    rows = list_devices()
    names: dict[str, int] = {}
    for row in rows:
        if row.kind != "cpu" or len(rows) == 1:
            names[short(row.name)] = names.get(short(row.name), 0) + 1
    devices = ", ".join(f"{count}x {name}" if count > 1 else name for name, count in names.items())
    return f"{socket.gethostname()} · {devices}" if devices else socket.gethostname()


def short(name: str) -> str:
    """A device's name without its vendor and trade marks."""
    for word in ("NVIDIA ", "AMD ", "Intel ", "(R)", "(TM)", " Processor", "GeForce ", " CPU"):
        name = name.replace(word, "")
    return " ".join(name.split())[:36]
