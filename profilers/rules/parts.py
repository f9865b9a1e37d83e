"""Taking names apart: what a kernel's function is called, what its template says, which operator is meant."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|(?<![\w<])unnamed>|\{anonymous\}|`anonymous namespace')::")
# Nsight Compute on Windows loses the first bracket of <unnamed>.
_RETURN = re.compile(r"^(?:(?:void|static|inline|__global__)\s+)+")
_CAST = re.compile(r"\((?:unsigned )?(?:int|long|bool|char|short)(?: long)?\)(?=-?\d)")
_BRACKET = re.compile(r"[<>()\[\]{}]")
_LENGTH = re.compile(r"\d{1,6}")
_MANGLED = re.compile(r"^_Z(?:N[KV]*)?(?=\d|S[a-z])")


class Parts(NamedTuple):
    """A kernel name taken apart."""

    function: str
    """The function's own name with its namespaces, no return type, template or parameters."""
    template: str
    """What stands between the outer angle brackets ('' if none); for a mangled name all that follows the function."""


@lru_cache(maxsize=65536)
def split_kernel(name: str) -> Parts:
    """Function and template arguments of a kernel name, demangled or (as far as lengths tell) mangled.

    Handles the spellings of CUPTI, Nsight Systems (``<unnamed>::``, ``(int)4``, ``[lambda() (instance 1)]``) and ROCm.
    A name that follows none of them is its own function.
    """
    if _MANGLED.match(name):
        return _split_mangled(name)
    text = _CAST.sub("", _UNNAMED.sub("", name.strip()))
    text = _RETURN.sub("", text)
    pieces: list[str] = []
    template = ""
    at = 0
    while True:
        opening = _first(text, "<(", at)
        if opening < 0:
            pieces.append(text[at:])
            break
        pieces.append(text[at:opening])
        if text[opening] == "(":
            break
        closing = _closing(text, opening)
        inner = text[opening + 1 : closing]
        rest = text[closing + 1 :]
        returned = re.match(r"::type\s+", rest)
        if returned and not template:  # std::enable_if<...>::type function<...>: the return type, not the function
            pieces.clear()
            at = closing + 1 + returned.end()
            continue
        template = f"{template}, {inner}" if template else inner
        if not rest.startswith("::"):
            break
        at = closing + 1
    function = "".join(pieces).strip()
    if " " in function and f"{function}(" in text:  # a return type that is no void: int kernel(...)
        function = function.rsplit(" ", 1)[-1]
    return Parts(function or text, template)


def _first(text: str, wanted: str, start: int) -> int:
    found = [at for at in (text.find(char, start) for char in wanted) if at >= 0]
    return min(found) if found else -1


def _closing(text: str, opening: int) -> int:
    """Index of the bracket that closes ``text[opening] == '<'``; the end of a name that was cut off."""
    depth: list[str] = []
    pairs = {">": "<", ")": "(", "]": "[", "}": "{"}
    for match in _BRACKET.finditer(text, opening):
        char = match.group()
        if char in "<([{":
            if char == "<" and text[max(0, match.start() - 8) : match.start()].endswith("operator"):
                continue
            depth.append(char)
            continue
        if char == ">" and text[match.start() - 1] == "-":
            continue
        if char == ">" and depth and depth[-1] != "<":  # a comparison inside parentheses
            continue
        while depth and depth[-1] != pairs[char]:
            depth.pop()
        if depth:
            depth.pop()
        if not depth:
            return match.start()
    return len(text)


def _split_mangled(name: str) -> Parts:
    """The nested name at the start of an Itanium-mangled symbol: lengths and identifiers, up to the template."""
    at = _MANGLED.match(name).end()  # type: ignore[union-attr]
    pieces: list[str] = []
    while at < len(name):
        if name.startswith("St", at):
            pieces.append("std")
            at += 2
            continue
        length = _LENGTH.match(name, at)
        if not length:
            break
        end = length.end() + int(length.group())
        if end > len(name) or int(length.group()) == 0:
            break
        piece = name[length.end() : end]
        if not piece.startswith("_GLOBAL__N"):
            pieces.append(piece)
        at = end
    return Parts("::".join(pieces) or name, name[at:])


_EVALUATE = "autograd::engine::evaluate_function: "
_NODE = re.compile(r"^(?:torch::autograd::)?(?:generated::)?([A-Z]\w*?)Backward(?:Functional)?\d*$")
_OVERLOAD = re.compile(r"^([\w:]+)\.[A-Za-z]\w*$")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VARIANT = re.compile(
    r"(?:_(?:backward|forward|functional|jvp|copy|out|impl|legit|with_logits|cpu_fallback|cachemask|inplace|default"
    r"|for_cpu|helper|overrideable|Tensor|Scalar)(?:_(?:data|elemt|reduce|input|weights?|only|no_training|legit))*)+$"
)


def camel_to_snake(word: str) -> str:
    """``NativeLayerNorm`` -> ``native_layer_norm``."""
    return _WORDS.sub("_", word).lower()


@lru_cache(maxsize=65536)
def operator_forms(name: str) -> tuple[str, ...]:
    """The forms under which rules are asked for an operator, most specific first.

    ``aten::_softmax_backward_data`` -> ``softmax_backward_data``, ``softmax``;
    ``autograd::engine::evaluate_function: AddmmBackward0`` -> ``addmm``;
    ``vllm::rms_norm`` -> ``vllm::rms_norm``, ``rms_norm``.
    """
    text = name.removeprefix(_EVALUATE).strip()
    node = _NODE.match(text)
    if node:
        words = re.sub(r"(\d)D(?![a-z])", r"\1d", node.group(1))
        text = camel_to_snake(words)
        forms = [text, node.group(1)]
    else:
        overload = _OVERLOAD.match(text)
        if overload:
            text = overload.group(1)
        text = text.removeprefix("torch::autograd::")
        if text.startswith(("aten::", "prims::")):
            text = text.split("::", 1)[1]
        if re.fullmatch(r"[\w:]+", text):
            space, _, last = text.rpartition("::")
            last = last.strip("_") or last
            forms = [f"{space.strip('_')}::{last}", last] if space else [last]
        else:
            forms = [text]
    forms += [stripped for form in list(forms) if (stripped := _VARIANT.sub("", form)) and stripped != form]
    return tuple(dict.fromkeys(forms))
