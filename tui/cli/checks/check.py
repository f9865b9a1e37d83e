"""One thing looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """``state``: ``ok``, ``note`` (``meaning`` says what is lost), ``problem`` (runs cannot work: what to do)."""

    topic: str
    check: str
    value: str
    state: str = "ok"
    meaning: str = ""
