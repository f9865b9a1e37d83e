"""Reading rules: the built-in TOML files, the user's ``rules.toml``, and files given on the command line.

One format for all: tables ``[[kernel]]``, ``[[operator]]`` and ``[[module]]``, explained at the head of the built-in
files. Later files win over earlier ones; inside a file the first rule that matches wins.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from profilers.rules.matcher import Rule, RuleSet
from profilers.rules.taxonomy import GROUPS
from profilers.tables import Recording

BUILT_IN = ("kernels.toml", "operators.toml", "modules.toml", "onnx.toml", "tensorrt.toml")
VOCABULARY = "vocabulary.toml"
_HERE = Path(__file__).resolve().parent
_TEXTS = ("id", "match", "inside", "anywhere", "group", "words", "doc")
_LISTS = ("names", "takes", "examples")
_FLAGS = ("decisive", "ignore_case")
_ALLOWED = {
    "kernel": {"match", "inside", "anywhere", "decisive", "words"},
    "operator": {"match", "names", "takes"},
    "module": {"match", "takes"},
}
_COMMON = {"id", "group", "doc", "examples", "ignore_case"}


class RulesError(ValueError):
    """A rules file cannot be used. The message is one line: file, line, rule, what is wrong and what to write."""


def user_rules() -> Path:
    """Where the user's own rules live (the file need not exist); ``XDG_CONFIG_HOME`` is respected."""
    from platformdirs import user_config_path

    return user_config_path("kernelscope") / "rules.toml"


def load_rules(extra: Sequence[Path | str] = ()) -> RuleSet:
    """The rules in force: built-in, then the user's ``rules.toml``, then ``extra`` files in order; later ones win.

    Raises :class:`RulesError` for a file that is missing or wrong. The result is cached until a file changes.
    """
    paths = [_HERE / name for name in BUILT_IN]
    own = user_rules()
    if own.is_file():
        paths.append(own)
    paths += [Path(path).expanduser() for path in extra]
    return _load(tuple(_stamp(path) for path in paths))


def classify(recording: Recording, rules: RuleSet | None = None) -> Recording:
    """The recording with ``group``, ``class`` and ``rule`` filled in its operators and kernels."""
    rules = rules or load_rules()
    operators = rules.classify_operators(recording.operators)
    return recording.replace(operators=operators, kernels=rules.classify_kernels(recording.kernels, operators))


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise RulesError(f"{path}: cannot read the rules: {error.strerror or error}") from None
    return str(path), status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)
def _load(stamps: tuple[tuple[str, int, int], ...]) -> RuleSet:
    files: list[list[Rule]] = []
    dominance: tuple[str, ...] = ()
    labels: set[str] = set()
    for name, _, _ in stamps:
        path = Path(name)
        label = path.name
        while label in labels:
            label = f"{path.parent.name}/{label}" if "/" not in label else label + "'"
        labels.add(label)
        rules, order = read_rules(path, label)
        files.append(rules)
        dominance = order or dominance
    return RuleSet(tuple(tuple(rules) for rules in reversed(files)), dominance, _vocabulary())


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    return frozenset(tomllib.loads((_HERE / VOCABULARY).read_text("utf-8"))["names"])


def read_rules(path: Path, label: str = "") -> tuple[list[Rule], tuple[str, ...]]:
    """The rules of one file and its ``dominance`` list (empty if none). ``label`` names it in the rule column."""
    try:
        text = path.read_bytes().decode("utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        raise RulesError(f"{path}: cannot read the rules: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RulesError(f"{path}: not UTF-8 text; save the rules as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from None
    order = data.pop("dominance", [])
    if not isinstance(order, list) or any(not isinstance(group, str) or group not in GROUPS for group in order):
        raise RulesError(f"{path}: dominance must be a list of groups ({_groups()})")
    unknown = sorted(set(data) - set(_ALLOWED))
    if unknown:
        raise RulesError(f"{path}: unknown key '{unknown[0]}'; use [[kernel]], [[operator]], [[module]] or dominance")
    lines = _lines(text)
    rules: list[Rule] = []
    for kind in _ALLOWED:
        entries = data.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise RulesError(f"{path}: write [[{kind}]] (double brackets) above each rule")
        for number, entry in enumerate(entries):
            line = lines[kind][number] if number < len(lines[kind]) else 0
            rules.append(_rule(kind, entry, path, label or path.name, line))
    seen: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in seen:
            raise RulesError(f"{path}:{rule.line} (rule {rule.id}): this id is taken by line {seen[rule.id].line}")
        seen[rule.id] = rule
    return rules, tuple(order)


def _lines(text: str) -> dict[str, list[int]]:
    """The line on which each table of each kind begins (TOML itself does not say)."""
    found: dict[str, list[int]] = {kind: [] for kind in _ALLOWED}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*\[\[\s*(\w+)\s*\]\]", line)
        if match and match.group(1) in found:
            found[match.group(1)].append(number)
    return found


def _rule(kind: str, entry: Mapping[str, Any], path: Path, label: str, line: int) -> Rule:
    name = entry.get("id")

    def wrong(what: str) -> RulesError:
        return RulesError(f"{path}:{line} (rule {name if isinstance(name, str) else '?'}): {what}")

    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
        raise wrong("give it an id of letters, digits, '-', '_' and '.'")
    for key, value in entry.items():
        if key not in _ALLOWED[kind] | _COMMON:
            raise wrong(f"unknown key '{key}'; a [[{kind}]] rule has {', '.join(sorted(_ALLOWED[kind] | _COMMON))}")
        if key in _TEXTS and not isinstance(value, str):
            raise wrong(f"{key} must be a string")
        if key in _FLAGS and not isinstance(value, bool):
            raise wrong(f"{key} must be true or false")
        if key in _LISTS and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise wrong(f"{key} must be a list of strings")
    group = entry.get("group")
    if group not in GROUPS:
        raise wrong(f"group '{group}' is unknown; use one of {_groups()}" if group else f"give it a group: {_groups()}")
    for taken in entry.get("takes", []):
        if taken not in GROUPS:
            raise wrong(f"takes names the unknown group '{taken}'; use {_groups()}")
    if not any(key in entry for key in ("match", "inside", "anywhere", "names")):
        raise wrong(
            "say what it matches: " + ", ".join(sorted(_ALLOWED[kind] & {"match", "inside", "anywhere", "names"}))
        )
    words = entry.get("words", "")
    if words not in ("", "all", "nongemm"):
        raise wrong("words must be 'all' or 'nongemm'")
    flags = re.IGNORECASE if entry.get("ignore_case") else 0
    compiled: dict[str, re.Pattern[str] | None] = {}
    for key in ("match", "inside", "anywhere"):
        try:
            compiled[key] = re.compile(entry[key], flags) if key in entry else None
        except (re.error, OverflowError, RecursionError) as error:
            raise wrong(f"{key} is not a valid regular expression: {error}") from None
    if words and not (compiled["match"] and "words" in compiled["match"].groupindex):
        raise wrong("words needs a group (?P<words>...) in match")
    return Rule(
        kind=kind,
        id=name,
        file=label,
        path=str(path),
        line=line,
        group=str(group),
        match=compiled["match"],
        inside=compiled["inside"],
        anywhere=compiled["anywhere"],
        names=frozenset(entry.get("names", [])),
        takes=frozenset(entry.get("takes", [])),
        decisive=bool(entry.get("decisive", True)),
        words=words,
        doc=str(entry.get("doc", "")),
        examples=tuple(entry.get("examples", [])),
    )


def _groups() -> str:
    return ", ".join(group for group in GROUPS)
