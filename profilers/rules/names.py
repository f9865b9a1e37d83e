"""Short names for people: library, operation, data type and tile instead of 6,000 characters of template.

``short_names`` is what a table shows: unique within the table, because what two names differ in is added where their
short forms agree. Names come from strangers: :func:`visible` is for every text that a screen shows as it was recorded.
Patterns and words are data (``names.toml``).
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from profilers.rules.parts import Parts, camel_to_snake, split_kernel

LIMIT = 56
"""A short name is cut to this many characters; what tells it from others may follow."""

_LONGEST = 16_384
_ENGINE = "autograd::engine::evaluate_function: "
_GENERATED = re.compile(
    r"^(?P<lib>triton|(?:graph_\d+_)?cpp)_(?:(?P<kind>poi|red|per|tem|for|ssc|mix)_)?fused_(?P<words>\w+)$"
)
_ELEMENTWISE = re.compile(r"elementwise_kernel(?:_\w+)?$")
_SCALAR = re.compile(r"\b[AB]UnaryFunctor<")
"""PyTorch's two-operand functors with one operand a number (A the first, B the second)."""
_FIELD = re.compile(r"\{(\w*)(?::(\w+))?\}")
_TOKEN = re.compile(r"[A-Za-z]+\d*(?:x\d+)*|\d+(?:x\d+)*")
_WRAPPERS = re.compile(
    r"(?:gpu_kernel_impl(?:_nocast)?|(?:Binary|AUnary|BUnary|Unary)Functor|binary_internal|func_wrapper_t|ReduceOp"
    r"|BinaryOp\w*Functor|UnaryOpFunctor|PointwiseOp\w*Functor|TernaryOp\w*Functor|TensorListMetadata|gpu_index_kernel)$"
)
_WORD = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")
_FLOATS = frozenset(("f64", "f32", "f16", "bf16", "tf32", "e4m3", "e5m2", "c64", "c128"))
_SUFFIX = re.compile(
    r"(?:_?(?:CUDAKernelImpl|KernelImpl|kernel_impl|kernel_cuda|cuda_kernel|kernel|cuda_out|cuda|impl)_?)+$"
)


def visible(text: str) -> str:
    """The text with everything that could move a cursor or reorder a line written out (``\\x1b``, ``\\n``, ``\\u202e``).

    Control characters (C0, C1, DEL), line and paragraph separators, bidirectional and other invisible format characters,
    lone surrogates and unassigned code points are escaped; printable text of any language stays.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if named:
        return named
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@dataclass(frozen=True)
class _Pattern:
    match: re.Pattern[str]
    inside: re.Pattern[str] | None
    text: str


@dataclass(frozen=True)
class _Data:
    patterns: tuple[_Pattern, ...]
    types: Mapping[str, str]
    functors: Mapping[str, str]
    type_words: re.Pattern[str]
    noise: frozenset[str]


@lru_cache(maxsize=1)
def _data() -> _Data:
    data = tomllib.loads((Path(__file__).resolve().parent / "names.toml").read_text("utf-8"))
    patterns = tuple(
        _Pattern(re.compile(entry["match"]), re.compile(entry["inside"]) if "inside" in entry else None, entry["text"])
        for entry in data["name"]
    )
    types = data["types"]
    spelled = sorted((name for name in types if len(name) > 2), key=len, reverse=True)
    words = re.compile(r"(?<![\w:])(?:" + "|".join(re.escape(name) for name in spelled) + r")(?![\w:]|<)")
    return _Data(patterns, types, data["functors"], words, frozenset(data["noise"]))


@lru_cache(maxsize=65536)
def short_name(full: str, group: str = "") -> str:
    """A name of about 40 characters for a kernel or an operator. Two different names may share it: see :func:`short_names`.

    ``group`` (a group of the taxonomy) stands in where the name itself says nothing, as in a bare ``Kernel``.
    """
    return _clip(" ".join(visible(_shorten(full[:_LONGEST].strip(), group)).split())) or "(no name)"


def _shorten(full: str, group: str) -> str:
    if full.startswith(_ENGINE):
        return "autograd " + full.removeprefix(_ENGINE).removeprefix("torch::autograd::")
    if re.fullmatch(r"(?:aten|torch::autograd|prims)::[\w.]+", full):
        return full.rsplit("::", 1)[1]
    graph = re.match(r"## Call CompiledFxGraph (\w{6})", full)
    if graph:
        return f"CompiledFxGraph {graph.group(1)}"
    parts = split_kernel(full)
    for pattern in _data().patterns:
        found = pattern.match.search(parts.function)
        if not found:
            continue
        inner = pattern.inside.search(parts.template) if pattern.inside else None
        if pattern.inside and not inner:
            continue
        fields = found.groupdict() | (inner.groupdict() if inner else {})
        return _fill(pattern.text, fields, parts)
    generated = _GENERATED.match(parts.function)
    if generated:
        return _fused(generated)
    if _ELEMENTWISE.search(parts.function):
        scalar = " scalar" if _SCALAR.search(parts.template) else ""
        return f"elementwise {_functor(parts.template)}{scalar} {_lambda_type(parts.template)}"
    if parts.function.endswith("multi_tensor_apply_kernel"):
        return f"foreach {_functor(parts.template)} {_type_in(parts.template)}"
    if parts.function.endswith("reduce_kernel") and "ReduceOp" in parts.template:
        return f"reduce {_functor(parts.template)} {_type_in(parts.template)}"
    return _generic(parts, group)


def _fill(text: str, fields: Mapping[str, str | None], parts: Parts) -> str:
    def put(match: re.Match[str]) -> str:
        key, how = match.groups()
        if not key:
            return _type_in(parts.template)
        value = fields.get(key) or ""
        if how == "type":
            return _data().types.get(value, value)
        if how == "snake":
            return camel_to_snake(value)
        if how == "lower":
            return value.lower()
        if how == "tile":
            return value.replace("_", "x")
        return value.strip("_")

    return _FIELD.sub(put, text)


def _type_in(template: str) -> str:
    """The first floating-point type of a template, else its first type at all; an opaque type by its size."""
    types = _data().types
    opaque = re.search(r"OpaqueType<(\d+)", template)
    if opaque:
        return f"{8 * int(opaque.group(1))}-bit"
    found = [types[match.group()] for match in _data().type_words.finditer(template[:2000])]
    if found:
        return next((name for name in found if name in _FLOATS), found[0])
    mangled = re.match(r"I(?:Li\d+E)?(DF16b|14__hip_bfloat16|13__nv_bfloat16|DF16_|6__half|[fdil])", template)
    if not mangled:
        return ""
    return {"f": "f32", "d": "f64", "i": "i32", "l": "i64", "DF16_": "f16", "6__half": "f16"}.get(
        mangled.group(1), "bf16"
    )


def _lambda_type(template: str) -> str:
    """The type that an element-wise functor works on: of its lambda's arguments, else of its template arguments."""
    types = _data().types
    # lambda(int) is the loop over elements, or a functor on integers: believed only if nothing else speaks.
    loops = False
    for arguments in reversed(re.findall(r"lambda\(([\w:, ]+)\)", template)):
        if re.match(r"int(?:, bool)?$", arguments):
            loops = True
            continue
        known = [types[name] for name in arguments.split(", ") if name in types]
        if known:
            return next((name for name in known if name != "bool"), known[0])
    functor = re.split(r"(?:std::|at::detail::)?[Aa]rray<", re.sub(r"^\d+, ", "", template))[0]
    functor = re.sub(r"\([^()]*\)|lambda\([^()]*\)", "", functor)
    found = [types[match.group()] for match in _data().type_words.finditer(functor)]
    return found[0] if found else "i32" if loops else _type_in(functor)


def _functor(template: str) -> str:
    """The word for what a functor does: the innermost name that is neither wrapper nor type."""
    functors = _data().functors
    best = ""
    for found in _WORD.finditer(template.split("Array<")[0].split("std::array<")[0]):
        last = found.group().rsplit("::", 1)[-1]
        if last in functors:
            return functors[last]
        if last in _data().noise or _WRAPPERS.search(last) or last in _data().types:
            continue
        word = camel_to_snake(_SUFFIX.sub("", re.sub(r"(?:Functor|Ops|_functor|Op)$", "", last)))
        if word and not best:
            best = word.strip("_")
    return best


def _fused(found: re.Match[str]) -> str:
    from profilers.rules.load import load_rules  # pandas comes with it, and the first paint needs visible() alone

    words = re.sub(r"_\d+$", "", found.group("words"))
    rules = load_rules()
    names = rules.operators_in(words)
    telling = [name for name in names if rules.operator(name).group not in ("memory", "other")] or names
    listed = list(dict.fromkeys(telling))
    if not listed:
        return found.string.replace("_", " ")
    more = f" +{len(listed) - 4}" if len(listed) > 4 else ""
    lib = "cpp" if found.group("lib").endswith("cpp") else "triton"
    template = " template" if found.group("kind") == "tem" else ""
    return f"{lib}{template} {' '.join(listed[:4])}{more} (fused)"


def _generic(parts: Parts, group: str) -> str:
    pieces = [piece for piece in parts.function.split("::") if piece]
    last = pieces[-1] if pieces else parts.function
    bare = re.sub(r"_?(?:cuda_?|CUDA_?)?[Kk]ernel$", "", last) or ""
    if bare.lower() in ("", "kernel", "kernel2", "device", "kentry", "global", "main"):
        inner = next((word.group().rsplit("::", 1)[-1] for word in _WORD.finditer(parts.template)), "")
        mangled = re.match(r"I(?:Li\d+E)?(?:NS_)?(\d+)", parts.template)
        if mangled:
            inner = parts.template[mangled.end() : mangled.end() + int(mangled.group(1))]
        bare = " ".join(part for part in (group, inner or last) if part)
    ours = pieces[:1] in (["at"], ["native"]) or len(pieces) < 2
    library = "" if ours else pieces[0].removeprefix("at_cuda_detail")
    return f"{library} {bare} {_type_in(parts.template)}"


def _clip(text: str) -> str:
    if len(text) <= LIMIT:
        return text
    keep = LIMIT - 1
    return f"{text[: keep * 2 // 3].rstrip()}…{text[-(keep - keep * 2 // 3) :].lstrip()}"


# ------------------------------------------------------------------------------------------------------- unique in a table


def short_names(full_names: Sequence[str]) -> list[str]:
    """One short name per full name, in order; different full names get different short names.

    Where short forms agree, what the full names differ in is added (launch variant, tile, template argument), and where
    that cannot be said in a few words ``#2``, ``#3`` ... in alphabetical order of the full names.
    """
    shorts = {name: short_name(name) for name in dict.fromkeys(full_names)}
    for short, names in _shared(shorts).items():
        for name, detail in zip(names, _differences(short, names), strict=True):
            shorts[name] = f"{short} {detail}".rstrip()
    for _ in range(len(shorts)):
        shared = _shared(shorts)
        if not shared:
            break
        taken = set(shorts.values())
        for short, names in shared.items():
            number = 2
            for name in names[1:]:
                while f"{short} #{number}" in taken:
                    number += 1
                shorts[name] = f"{short} #{number}"
                taken.add(shorts[name])
    return [shorts[name] for name in full_names]


def _shared(shorts: Mapping[str, str]) -> dict[str, list[str]]:
    held: dict[str, list[str]] = defaultdict(list)
    for name, short in shorts.items():
        held[short].append(name)
    return {short: sorted(names) for short, names in held.items() if len(names) > 1}


def _variant(name: str) -> str:
    """How PyTorch launches an element-wise kernel: the most frequent difference, said in a word."""
    function, template = split_kernel(name)
    if "vectorized_elementwise" in function:
        width = re.match(r"\d+", template)
        return f"vec{width.group()}" if width else "vec"
    if "unrolled_elementwise" in function:
        return "unrolled"
    if function.endswith("elementwise_kernel_manual_unroll"):
        return "manual unroll"
    if function.endswith("elementwise_kernel"):
        return "strided"
    return ""


def _unroll(name: str) -> str:
    """How many elements a thread of PyTorch's strided loop takes (``x4``), '' for other kernels."""
    function, template = split_kernel(name)
    many = re.match(r"\d+, (\d+)", template) if function.endswith("elementwise_kernel") else None
    return f"x{many.group(1)}" if many else ""


def _differences(short: str, names: Sequence[str]) -> list[str]:
    """For names that share a short form, a few words each that tell them apart ('' where none are needed or found)."""
    found = [_variant(name) for name in names]
    if len(set(found)) == 1:
        unrolled = [f"{words} {_unroll(name)}" for words, name in zip(found, names, strict=True)]
        if len(set(unrolled)) == len(names) and all(found):
            return unrolled
        found = [""] * len(names)
    groups: dict[str, list[int]] = defaultdict(list)
    for at, words in enumerate(found):
        groups[words].append(at)
    said = frozenset(_TOKEN.findall(short.lower()))
    for members in groups.values():
        if len(members) > 1:
            told = [_unroll(names[at]) for at in members]
            if len(set(told)) < len(members):
                told = _telling_tokens([names[at] for at in members], said)
            for at, words in zip(members, told, strict=True):
                found[at] = f"{found[at]} {words}".strip()
    return found


def _telling_tokens(names: Sequence[str], said: frozenset[str], most: int = 3) -> list[str]:
    """Per name up to ``most`` tokens of it that the others lack, in their order; tokens in ``said`` are known already."""
    tokens = [_tokens(name) for name in names]
    if len({len(row) for row in tokens}) == 1:
        chosen: list[int] = []
        kinds = 1
        for at in range(len(tokens[0])):
            if len({row[at] for row in tokens}) == 1:
                continue
            more = len({tuple(row[i] for i in (*chosen, at)) for row in tokens})
            if more > kinds:
                chosen, kinds = [*chosen, at], more
            if kinds == len(names) or len(chosen) == most:
                break
        return [" ".join(row[at] for at in chosen) for row in tokens]
    sets = [
        dict.fromkeys(token for token in row if token not in _data().noise and token.lower() not in said)
        for row in tokens
    ]
    frequency = Counter(token for row in sets for token in row)
    told = []
    for row in sets:
        order = {token: at for at, token in enumerate(row)}
        rare = sorted(
            (token for token in row if frequency[token] < len(names)),
            key=lambda token: (frequency[token], order[token]),
        )
        told.append(" ".join(sorted(rare[:2], key=order.__getitem__)))
    return told


def _tokens(name: str) -> list[str]:
    function, template = split_kernel(name)
    rest = name[name.rfind(">(") + 1 :] if ">(" in name else name[len(function) :]
    return [visible(token) for token in _TOKEN.findall(f"{function} {template} {rest}"[:8000])]
