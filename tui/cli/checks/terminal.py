"""What the terminal says of itself: colours, glyphs, size, and what stands in between."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from collections.abc import Iterator

from tui.cli.checks.check import Check


def checks() -> Iterator[Check]:
    """The terminal on stderr, where the screen is drawn."""
    term = os.environ.get("TERM", "")
    if term in ("dumb", ""):
        yield Check("terminal", "TERM", term or "not set", "note", "no screen here: use --no-tui")
    else:
        yield Check("terminal", "TERM", term)
    colour = os.environ.get("COLORTERM", "")
    if colour in ("truecolor", "24bit"):
        yield Check("terminal", "COLORTERM", colour)
    else:
        loss = "256 colours or fewer; ssh forwards it with 'SendEnv COLORTERM' where the server accepts it"
        yield Check("terminal", "COLORTERM", colour or "not set", "note", loss)
    if os.environ.get("NO_COLOR"):
        yield Check("terminal", "NO_COLOR", "set", "note", "no colours: letters and marks carry everything")
    encoding = sys.stderr.encoding or locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") == "utf8":
        yield Check("terminal", "encoding", encoding)
    else:
        yield Check("terminal", "encoding", encoding, "note", "glyphs outside ASCII would be garbled: use --ascii")
    yield Check(
        "terminal",
        "locale",
        os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or "not set",
    )
    size = shutil.get_terminal_size()
    if sys.stderr.isatty():
        small = size.columns < 80 or size.lines < 24
        yield Check(
            "terminal",
            "size",
            f"{size.columns}x{size.lines}",
            "note" if small else "ok",
            "the screen wants 80x24" if small else "",
        )
    else:
        yield Check("terminal", "size", "no terminal", "note", "the screen needs one; tables and progress do not")
    if os.environ.get("TMUX"):
        yield Check("terminal", "multiplexer", "tmux", "ok", "copying goes through tmux load-buffer")
    elif os.environ.get("STY"):
        yield Check("terminal", "multiplexer", "screen", "note", "copying to your clipboard may not get through")
    if os.environ.get("SSH_CONNECTION"):
        yield Check("terminal", "connection", "ssh")
