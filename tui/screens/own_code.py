"""The user's own code as entries of the launch screen: what is typed into its search may be a script, a function or a model."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tui.widgets.pick_list import Item

HEADING = "your own"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class OwnCode:
    """What was typed, understood: the WORKLOAD word of ``kernelscope run``, and a script's own arguments."""

    word: str
    arguments: tuple[str, ...]
    kind: str
    problem: str = ""

    @property
    def text(self) -> str:
        return shlex.join([self.word, *self.arguments])

    def item(self, key: str) -> Item:
        return Item(key, self.text, self.kind, self.problem, self.text)


def understand(text: str, suites: tuple[str, ...] = ()) -> OwnCode | None:
    """``train.py --its args``, ``model.py:build``, a model folder or a Hugging Face id; None where it is a mere search.

    A word that begins with a suite's name and a slash belongs to the catalogue. What cannot be started says why.
    """
    try:
        words = shlex.split(text)
    except ValueError:  # a quote is still open: the user is typing
        return None
    if not words:
        return None
    word, rest = words[0], words[1:]
    arguments = tuple(rest[1:] if rest[:1] == ["--"] else rest)
    file, colon, function = word.rpartition(":")
    if colon and file.endswith(".py"):
        lacking = "" if function else f"name the function: {file}:NAME"
        return OwnCode(word, arguments, "function that builds a model", lacking or _missing(file))
    if word.endswith(".py"):
        return OwnCode(word, arguments, "script, run as it is", _missing(word))
    if rest:
        return None
    if word.startswith(("/", "./", "../", "~")):
        there = Path(word).expanduser().joinpath("config.json").is_file()
        return OwnCode(word, (), "model folder", "" if there else "no config.json in it")
    if _HUB_ID.fullmatch(word) and word.partition("/")[0].lower() not in suites:
        return OwnCode(word, (), "Hugging Face id")
    return None


def _missing(file: str) -> str:
    return "" if Path(file).expanduser().is_file() else "there is no such file"
