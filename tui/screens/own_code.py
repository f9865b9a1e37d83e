"""The user's own code as entries of the launch screen: what is typed into its search may be a script, a function or a model."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from tui.cli.errors import UsageError
from tui.cli.launchers import is_launcher, launched
from tui.cli.plan import HUB_ID
from tui.widgets.pick_list import Item

HEADING = "your own"


@dataclass(frozen=True)
class OwnCode:
    """What was typed, understood: words of ``kernelscope run`` (the WORKLOAD, and with a launcher its ranks), and a
    script's own arguments."""

    text: str
    words: tuple[str, ...]
    arguments: tuple[str, ...]
    kind: str
    problem: str = ""

    @property
    def script(self) -> bool:
        """Whether it runs as it is, so that precision, batch and the like are its own affair."""
        return self.kind.startswith("script")

    def item(self, key: str) -> Item:
        return Item(key, self.text, self.kind, self.problem, self.text)

    def _with_file(self, file: str) -> OwnCode:
        """With the problem that there is no such file, where it has no other."""
        if self.problem or Path(file).expanduser().is_file():
            return self
        return replace(self, problem="there is no such file")


def understand(text: str, suites: tuple[str, ...] = ()) -> OwnCode | None:
    """``train.py --its args``, ``torchrun --nproc-per-node 2 train.py``, ``model.py:build``, a model folder or a Hugging
    Face id; None where it is a mere search.

    A word that begins with a suite's name and a slash belongs to the catalogue. What cannot be started says why.
    """
    try:
        words = shlex.split(text)
    except ValueError:  # a quote is still open: the user is typing
        return None
    if not words:
        return None
    text = shlex.join(words)
    if is_launcher(words[0]) and len(words) > 1:
        return _launched(text, words)
    word, rest = words[0], words[1:]
    arguments = tuple(rest[1:] if rest[:1] == ["--"] else rest)

    def own(kind: str, problem: str = "") -> OwnCode:
        return OwnCode(text, (word,), arguments, kind, problem)

    file, colon, function = word.rpartition(":")
    if colon and file.endswith(".py"):
        return own("function that builds a model", "" if function else f"name the function: {file}:NAME")._with_file(
            file
        )
    if word.endswith(".py"):
        return own("script, run as it is")._with_file(word)
    if rest:
        return None
    if word.startswith(("/", "./", "../", "~")):
        there = Path(word).expanduser().joinpath("config.json").is_file()
        return own("model folder", "" if there else "no config.json in it")
    if HUB_ID.fullmatch(word) and word.partition("/")[0].lower() not in suites:
        return own("Hugging Face id")
    return None


def _launched(text: str, words: list[str]) -> OwnCode:
    """A script behind a launcher, as ``kernelscope run`` understands it."""
    try:
        found = launched(["run", *words], 1)
    except UsageError as problem:
        return OwnCode(text, (), (), "", str(problem))
    assert found is not None
    ranks = " in ranks" if "--nproc" in found.words else ""
    own = OwnCode(text, tuple(found.words[1:]), tuple(found.script_args), f"script{ranks}, run as it is")
    return own._with_file(own.words[-1]) if "-m" not in own.words else own
