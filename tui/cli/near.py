"""The nearest known names to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(word: str, known: Iterable[str]) -> str:
    """``"; did you mean kernels?"``, or '' where nothing known resembles the word."""
    lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), lower, n=2, cutoff=0.75)
    found = found or difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    if not found and len(word) > 1:
        found = [name for name in lower if name.startswith(word.lower())][:3]
    return f"; did you mean {' or '.join(lower[name] for name in found)}?" if found else ""
