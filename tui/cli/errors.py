"""Why a command ends early, with the exit code that says so. The message is one line for people."""

from __future__ import annotations

FINE, FAILED, USAGE, SOME_FAILED, INTERRUPTED = 0, 1, 2, 3, 130


class CommandError(Exception):
    """The command failed (exit code 1)."""

    code = FAILED


class UsageError(CommandError):
    """What was asked for cannot be meant (exit code 2)."""

    code = USAGE
