"""The one matcher: rules (data) and tables in, group, class and deciding rule out.

A device kernel's verdict, in order:

1. a decisive rule for its name (where both say "product" the launching operator says which: a GEMM kernel under a
   convolution operator, as Winograd's inner products are, is a convolution);
2. the launching operator and its ancestors, modules first; but a name that says "no product" (a copy or an
   element-wise kernel under ``aten::addmm``) is never overruled by an operator that is one;
3. a weak rule for its name;
4. unclassified, which stays visible.

On a CPU run the rows of the kernel table are operators, and classified as such.

Names are matched once each (tables hold them as categories) and verdicts spread over the rows by code, so a million
rows cost a few array operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.rules.parts import operator_forms, split_kernel
from profilers.rules.taxonomy import CLASSES, GEMM, GROUPS, NONGEMM, class_of
from profilers.tables import NONE

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_GROUP_NAMES = list(GROUPS)
_CODE = {group: code for code, group in enumerate(_GROUP_NAMES)}
_UNCLASSIFIED = _CODE["unclassified"]
_OTHER = _CODE["other"]
_CLASS_OF = np.array([CLASSES.index(class_of(group)) for group in _GROUP_NAMES], dtype=np.int64)
_IS_GEMM: Bools = np.isin(_CLASS_OF, [CLASSES.index(GEMM)])
_IS_NONGEMM: Bools = np.isin(_CLASS_OF, [CLASSES.index(NONGEMM)])
_GEMM_GROUPS = frozenset(group for group in _GROUP_NAMES if class_of(group) == GEMM)


@dataclass(frozen=True)
class Rule:
    """One rule of one file (see the head of the built-in files for what each field means)."""

    kind: str
    id: str
    file: str
    path: str
    line: int
    group: str
    match: re.Pattern[str] | None = None
    inside: re.Pattern[str] | None = None
    anywhere: re.Pattern[str] | None = None
    names: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    decisive: bool = True
    words: str = ""
    doc: str = ""
    examples: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How the ``rule`` column names it: file and id."""
        return f"{self.file}:{self.id}"


@dataclass(frozen=True)
class Verdict:
    """What a name says. ``rule`` is '' where nothing matched; ``decisive`` is False for a weak rule."""

    group: str = "unclassified"
    rule: str = ""
    decisive: bool = False
    takes: frozenset[str] = frozenset()

    @property
    def cls(self) -> str:
        return class_of(self.group)


_NOTHING = Verdict()
_LONGEST = 16_384
"""Characters of a name that rules look at; the longest template names seen run to 6,000."""
_GENERATED = re.compile(r"triton_|(?:graph_\d+_)?cpp_fused_")


@dataclass(frozen=True, eq=False)
class RuleSet:
    """All rules in force, the file that wins first. Made by :func:`profilers.rules.load.load_rules`."""

    files: tuple[tuple[Rule, ...], ...]
    dominance: tuple[str, ...] = ()
    vocabulary: frozenset[str] = frozenset()
    _kernels: dict[str, Verdict] = field(default_factory=dict, repr=False)
    _operators: dict[str, Verdict] = field(default_factory=dict, repr=False)
    _modules: dict[str, Verdict] = field(default_factory=dict, repr=False)

    @cached_property
    def _by_kind(self) -> dict[str, list[list[Rule]]]:
        return {
            kind: [[rule for rule in rules if rule.kind == kind] for rules in self.files]
            for kind in ("kernel", "operator", "module")
        }

    @cached_property
    def _exact(self) -> list[dict[str, Rule]]:
        return [{name: rule for rule in reversed(rules) for name in rule.names} for rules in self._by_kind["operator"]]

    def rules(self) -> Iterable[Rule]:
        """Every rule, the ones that win first."""
        return (rule for rules in self.files for rule in rules)

    def where(self, rule: str) -> str:
        """``file:line`` of the rule that a ``rule`` column names, '' if it names none."""
        label = rule.split(" ", 1)[0]
        for known in self.rules():
            if known.label == label:
                return f"{known.path}:{known.line}"
        return ""

    # ------------------------------------------------------------------------------------------------ single names

    def kernel(self, name: str) -> Verdict:
        """What a kernel's name alone says."""
        held = self._kernels.get(name)
        if held is None:
            held = self._kernels[name] = self._match_kernel(name[:_LONGEST])
        return held

    def operator(self, name: str) -> Verdict:
        """What an operator's name alone says."""
        held = self._operators.get(name)
        if held is None:
            held = self._operators[name] = self._match_operator(name[:_LONGEST])
        return held

    def module(self, name: str) -> Verdict:
        """What the class name of a module says about the small operators inside it."""
        held = self._modules.get(name)
        if held is None:
            held = self._modules[name] = self._match_module(name[:_LONGEST])
        return held

    def _match_kernel(self, name: str) -> Verdict:
        function, template = split_kernel(name)
        for rules in self._by_kind["kernel"]:
            for rule in rules:
                if rule.anywhere and not rule.anywhere.search(name):
                    continue
                found = rule.match.search(function) if rule.match else None
                if rule.match and not found:
                    continue
                if rule.inside and not rule.inside.search(template):
                    continue
                if rule.words and found:
                    return self._fused(rule, found.group("words"))
                return Verdict(rule.group, rule.label, rule.decisive)
        return _NOTHING

    def _match_operator(self, name: str) -> Verdict:
        if _GENERATED.match(name):  # recorded as an operator under the name of its kernel
            said = self.kernel(name)
            if said.rule:
                return replace(said, decisive=True)
        for rules, exact in zip(self._by_kind["operator"], self._exact, strict=True):
            for form in operator_forms(name):
                rule = exact.get(form) or next((r for r in rules if r.match and r.match.fullmatch(form)), None)
                if rule:
                    return Verdict(rule.group, rule.label, True, rule.takes)
        return _NOTHING

    def _match_module(self, name: str) -> Verdict:
        for rules in self._by_kind["module"]:
            for rule in rules:
                if rule.match and rule.match.fullmatch(name):
                    return Verdict(rule.group, f"{rule.label} {name}", True, rule.takes)
        return _NOTHING

    def _fused(self, rule: Rule, words: str) -> Verdict:
        """The most telling operator among the words of a generated kernel's name (see ``dominance``)."""
        best: tuple[int, str, Verdict] | None = None
        for word in self.operators_in(words):
            verdict = self.operator(word)
            if not verdict.rule or (rule.words == "nongemm" and verdict.group in _GEMM_GROUPS):
                continue
            rank = self.dominance.index(verdict.group) if verdict.group in self.dominance else len(self.dominance)
            if best is None or rank < best[0]:
                best = (rank, word, verdict)
        if best is None or (rule.words == "all" and best[2].cls == NONGEMM):
            return Verdict(rule.group, rule.label, rule.decisive)
        return Verdict(best[2].group, f"{best[2].rule} via {best[1]}", rule.decisive)

    def operators_in(self, words: str) -> list[str]:
        """Split ``native_layer_norm_add_gelu`` into the longest operator names that the rules know."""
        parts = [part for part in words.split("_") if part]
        known = self.vocabulary
        found: list[str] = []
        at = 0
        while at < len(parts):
            for length in range(min(8, len(parts) - at), 0, -1):
                word = "_".join(parts[at : at + length])
                if word in known:
                    found.append(word)
                    at += length
                    break
            else:
                at += 1
        return found

    # ------------------------------------------------------------------------------------------------------- tables

    def classify_operators(self, operators: pd.DataFrame) -> pd.DataFrame:
        """The frame (``tables.OPERATORS``) with ``group``, ``class`` and ``rule`` filled; rows and order unchanged."""
        names = _Names(operators["name"], self.operator)
        own = names.groups[names.codes]
        rule = names.rules[names.codes]
        table = names.table
        parent = _positions(operators["op_id"].to_numpy(np.int64), operators["parent_id"].to_numpy(np.int64))

        # An operator that takes small operators below it, unless a module nearer by does.
        above = _nearest(np.asarray(names.takes.any(axis=1))[names.codes], parent)
        scope = names.codes[np.maximum(above, 0)]
        taken = (above >= 0) & names.takes[scope, own]
        group = np.where(taken, names.groups[scope], own)
        rule = np.where(taken, table.via(names.rules, names.values)[scope], rule)

        modules = _Names(operators["module"], self.module)
        inside = modules.takes[modules.codes, own]
        group = np.where(inside, modules.groups[modules.codes], group)
        rule = np.where(inside, table.extend(modules.table)[modules.rules[modules.codes]], rule)

        # Unknown names take the group of what called them, if that computes something.
        speaks = (group != _UNCLASSIFIED) & (group != _OTHER)
        caller = _nearest(speaks, parent)
        blank = (group == _UNCLASSIFIED) & (caller >= 0)
        label = table.via(names.rules, names.values)
        group = np.where(blank, group[np.maximum(caller, 0)], group)
        rule = np.where(blank, label[names.codes[np.maximum(caller, 0)]], rule)

        casts = _int8_casts(operators)
        group = np.where(casts, _CODE["quantization"], group)
        rule = np.where(casts, table.code(INT8_CAST), rule)
        return _filled(operators, group, rule, table)

    def classify_kernels(self, kernels: pd.DataFrame, operators: pd.DataFrame) -> pd.DataFrame:
        """The frame (``tables.KERNELS``) with ``group``, ``class`` and ``rule`` filled.

        ``operators`` must be classified already; kernels whose ``op_id`` is not among them are judged by name alone.
        """
        names = _Names(kernels["name"], self.kernel)
        table = names.table
        group = names.groups[names.codes]
        rule = names.rules[names.codes]
        decisive = names.decisive[names.codes]

        at = _positions(operators["op_id"].to_numpy(np.int64), kernels["op_id"].to_numpy(np.int64))
        linked = at >= 0
        at = np.maximum(at, 0)
        if len(operators):
            spoken = _codes_of(operators["group"], _GROUP_NAMES)[at]
            said_codes, said_values = _factors(operators["rule"])
            name_codes, name_values = _factors(operators["name"])
            said, called = said_codes[at], name_codes[at]
        else:
            spoken, said, called = np.full(len(kernels), _UNCLASSIFIED), at, at
            said_values, name_values = [""], [""]
        known = linked & (spoken != _UNCLASSIFIED) & (spoken != _OTHER)

        product = known & _IS_GEMM[group] & (group == _CODE["matmul"]) & _IS_GEMM[spoken] & (spoken != group)
        unnamed = known & (group == _UNCLASSIFIED)
        weak = known & (group != _UNCLASSIFIED) & ~decisive & _IS_NONGEMM[spoken] & (spoken != group)
        by_operator = product | unnamed | weak

        host = _is_cpu(kernels["device"])
        by_operator = by_operator | (host & linked)
        alone = host & ~linked
        group = np.where(by_operator, spoken, group)
        rule = _spoken_rules(table, rule, by_operator, said, said_values, called, name_values, host)
        if alone.any():
            own = _Names(kernels["name"], self.operator)
            group = np.where(alone, own.groups[own.codes], group)
            rule = np.where(alone, table.extend(own.table)[own.rules[own.codes]], rule)

        moved = _codes_of(kernels["kind"], ["memcpy", "memset"])
        copies = (moved >= 0) & (group != _CODE["memory"])
        if copies.any():
            group = np.where(copies, _CODE["memory"], group)
            rule = np.where(copies, table.code("kind: memcpy or memset"), rule)
        return _filled(kernels, group, rule, table)


INT8_CAST = "dtypes: int8 to or from a floating type"
"""The rule that decides where types, not names, tell what a copy is for."""
_CAST_NAMES = frozenset({"aten::copy_", "aten::_to_copy"})
_FLOATING = ('"float"', '"c10::Half"', '"c10::BFloat16"')


def _int8_casts(operators: pd.DataFrame) -> Bools:
    """Copies between int8 and a floating type: with plain operators this is how weights are dequantized."""
    names, dtypes = operators["name"], operators["input_dtypes"]
    if not isinstance(names.dtype, pd.CategoricalDtype) or not isinstance(dtypes.dtype, pd.CategoricalDtype):
        return np.zeros(len(operators), bool)
    copying = np.array([*(str(name) in _CAST_NAMES for name in names.cat.categories), False], bool)
    mixed = np.array(
        [*('"signed char"' in str(t) and any(f in str(t) for f in _FLOATING) for t in dtypes.cat.categories), False],
        bool,
    )
    return np.asarray(copying[names.cat.codes.to_numpy()] & mixed[dtypes.cat.codes.to_numpy()])


class _Labels:
    """Rule labels interned to codes; code 0 is '' (no rule)."""

    def __init__(self) -> None:
        self.values: list[str] = [""]
        self._codes: dict[str, int] = {"": 0}

    def code(self, label: str) -> int:
        code = self._codes.get(label)
        if code is None:
            code = self._codes[label] = len(self.values)
            self.values.append(label)
        return code

    def extend(self, other: _Labels) -> Ints:
        """Codes here of the labels of another table, by their code there."""
        return np.array([self.code(label) for label in other.values], dtype=np.int64)

    def via(self, rules: Ints, names: list[str]) -> Ints:
        """Per name, the code of "its rule via the name"."""
        return np.array(
            [
                self.code(f"{self.values[rule]} via {name}") if rule else 0
                for rule, name in zip(rules, names, strict=True)
            ],
            dtype=np.int64,
        )


class _Names:
    """The distinct names of a column with their verdicts as arrays, and each row's code into them."""

    def __init__(self, column: pd.Series, ask: Callable[[str], Verdict]) -> None:
        self.codes, self.values = _factors(column)
        used = np.bincount(self.codes, minlength=len(self.values)) > 0 if len(self.codes) else np.zeros(1, bool)
        verdicts = [ask(name) if known and name else _NOTHING for name, known in zip(self.values, used, strict=True)]
        self.table = _Labels()
        self.groups = np.array([_CODE[verdict.group] for verdict in verdicts], dtype=np.int64)
        self.rules = np.array([self.table.code(verdict.rule) for verdict in verdicts], dtype=np.int64)
        self.decisive = np.array([verdict.decisive for verdict in verdicts], dtype=bool)
        self.takes = np.array([[group in verdict.takes for group in _GROUP_NAMES] for verdict in verdicts], dtype=bool)


def _factors(column: pd.Series) -> tuple[Ints, list[str]]:
    """Codes and distinct values of a text column (never none of them); a missing value becomes ''."""
    values = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
    codes: Ints = np.asarray(values.cat.codes, dtype=np.int64)
    names = [str(name) for name in values.cat.categories]
    if not names or (len(codes) and codes.min() < 0):
        codes = np.where(codes < 0, len(names), codes)
        names.append("")
    return codes, names


def _codes_of(column: pd.Series, known: list[str]) -> Ints:
    """Per row the index of its value in ``known``, -1 if it is not there."""
    codes, values = _factors(column)
    index = {value: code for code, value in enumerate(known)}
    return np.array([index.get(value, -1) for value in values], dtype=np.int64)[codes]


def _positions(ids: Ints, wanted: Ints) -> Ints:
    """Row of each wanted id, -1 if there is none."""
    size = len(ids)
    if not size:
        return np.full(len(wanted), NONE, dtype=np.int64)
    if ids[0] == 0 and ids[-1] == size - 1 and bool((np.diff(ids) == 1).all()):
        return np.where((wanted >= 0) & (wanted < size), wanted, NONE)
    order = np.argsort(ids, kind="stable")
    found = np.minimum(np.searchsorted(ids, wanted, sorter=order), size - 1)
    rows = order[found]
    return np.where((ids[rows] == wanted) & (wanted >= 0), rows, NONE)


def _nearest(marked: Bools, parent: Ints) -> Ints:
    """Row of the nearest ancestor that is marked, -1 if there is none.

    Every row looks twice as far up in each round, so a tree of depth d takes log2(d) rounds over the open rows.
    """
    found = np.where(marked, np.arange(len(parent), dtype=np.int64), NONE)
    jump = parent.copy()
    for _ in range(64):  # a tree cannot be deeper; a cycle in damaged data ends here
        still = np.flatnonzero((found < 0) & (jump >= 0))
        if not len(still):
            break
        target = jump[still]
        found[still] = found[target]
        jump[still] = jump[target]
    return np.where(parent >= 0, found[np.maximum(parent, 0)], NONE)


def _is_cpu(device: pd.Series) -> Bools:
    codes, values = _factors(device)
    return np.array([value.rsplit("/", 1)[-1] == "cpu" for value in values], dtype=bool)[codes]


def _spoken_rules(
    table: _Labels,
    rule: Ints,
    where: Bools,
    said: Ints,
    said_values: list[str],
    called: Ints,
    name_values: list[str],
    host: Bools,
) -> Ints:
    """The rule codes, those decided by an operator replaced by "rule via operator" (on a CPU the operator's own)."""
    if not where.any():
        return rule
    key = (said[where] * len(name_values) + called[where]) * 2 + host[where]
    pairs, inverse = np.unique(key, return_inverse=True)
    labels = []
    for pair in pairs.tolist():
        text = said_values[pair // 2 // len(name_values)]
        name = name_values[pair // 2 % len(name_values)]
        labels.append(table.code(text if pair % 2 or " " in text or not text else f"{text} via {name}"))
    out = rule.copy()
    out[where] = np.array(labels, dtype=np.int64)[inverse]
    return out


def _filled(frame: pd.DataFrame, group: Ints, rule: Ints, table: _Labels) -> pd.DataFrame:
    used = np.flatnonzero(np.bincount(rule, minlength=1))  # codes are few and dense: no sort of a million rows
    rank = np.zeros(len(table.values), dtype=np.int32)
    rank[used] = np.arange(len(used), dtype=np.int32)
    codes = rank[rule]
    return frame.assign(
        **{
            "group": pd.Categorical.from_codes(group.astype(np.int8), pd.Index(_GROUP_NAMES)),
            "class": pd.Categorical.from_codes(_CLASS_OF[group].astype(np.int8), pd.Index(list(CLASSES))),
            "rule": pd.Categorical.from_codes(
                codes, pd.Index([table.values[code] for code in used.tolist()], dtype=object)
            ),
        }
    )
