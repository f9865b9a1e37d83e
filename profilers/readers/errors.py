"""The one error that every reader raises."""

from __future__ import annotations


class ReadError(Exception):
    """A recording cannot be read. The message is one line: what the file is or lacks, and what to do about it."""
