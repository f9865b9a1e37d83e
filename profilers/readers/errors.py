"""The one error that every reader raises for input it cannot read."""

from __future__ import annotations


class ReadError(Exception):
    """A recording cannot be read. The message is one line: what the file is, and what to do about it."""
