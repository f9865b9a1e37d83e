"""The command line: ``kernelscope``. :func:`main` is the console script; each command is a module of ``commands``.

Data go to stdout and talk to stderr; every failure is one line and an exit code that ``--help`` documents.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tui.cli.errors import FAILED, FINE, INTERRUPTED, CommandError

_OURS = ("profilers", "apps", "tui")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Never raises; ``KERNELSCOPE_DEBUG=1`` shows tracebacks."""
    try:
        code = _run(sys.argv[1:] if argv is None else list(argv))
    except BrokenPipeError:
        return _quiet()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as leaving:  # argparse after --help
        code = leaving.code if isinstance(leaving.code, int) else FINE
    except Exception as error:
        code = _explain(error)
    return _flushed(code)


def _run(argv: list[str]) -> int:
    from tui.cli.parser import parse

    args = parse(argv)
    if args.command is None:
        from tui.cli.screen import open_screen

        return open_screen(args)
    code: int = args.call(args)
    return code


def _explain(error: Exception) -> int:
    """One line on stderr for any exception. Ours speak for themselves; others name their type and how to see more."""
    if os.environ.get("KERNELSCOPE_DEBUG"):
        import traceback

        traceback.print_exception(error)
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif type(error).__module__.partition(".")[0] not in _OURS or not text:
        text = f"{type(error).__name__}: {text} (unexpected; KERNELSCOPE_DEBUG=1 shows the traceback)"
    sys.stderr.write(f"kernelscope: {text}\n")
    return error.code if isinstance(error, CommandError) else FAILED


def _quiet() -> int:
    """Whoever read our output has had enough (``| head``): no more output, and nothing is wrong."""
    from tui.cli.output import silence

    silence()
    return FINE


def _flushed(code: int) -> int:
    """The exit code, once what was printed has arrived (a full disk behind ``>`` is told here)."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _quiet()
    except OSError as error:
        _quiet()
        sys.stderr.write(f"kernelscope: cannot write the output: {error.strerror}\n")
        return FAILED
    return code
