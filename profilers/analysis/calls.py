"""One recorded operator call: its tensors, their element sizes and its scalar arguments, read from the text columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

Shape = tuple[int, ...]

_SIZES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2,
    "long int": 8, "long": 8, "int64": 8, "int64_t": 8, "int": 4, "int32": 4, "short": 2, "short int": 2, "int16": 2,
    "char": 1, "signed char": 1, "unsigned char": 1, "uint8": 1, "int8": 1, "bool": 1, "byte": 1,
    "uint16": 2, "unsigned short": 2, "uint32": 4, "unsigned int": 4, "uint64": 8, "unsigned long": 8,
    "complex<float>": 8, "complex<double>": 16, "complex<half>": 4,
    "qint8": 1, "quint8": 1, "qint32": 4,
}  # fmt: skip

_SHORT = {
    "float": "fp32", "float32": "fp32", "double": "fp64", "float64": "fp64", "half": "fp16", "float16": "fp16",
    "bfloat16": "bf16", "signed char": "int8", "char": "int8", "int8": "int8", "unsigned char": "uint8",
    "uint8": "uint8", "qint8": "int8", "quint8": "uint8", "int": "int32", "int32": "int32", "long int": "int64",
    "long": "int64", "int64": "int64",
}  # fmt: skip

_NO_TENSOR = {"", "Scalar", "ScalarList", "TensorList", "GenericList", "Device", "String", "None"}


def plain(dtype: str) -> str:
    """``c10::BFloat16`` and ``bfloat16`` are one thing: ``bfloat16``."""
    return dtype.rsplit("::", 1)[-1].removeprefix("torch.").strip().lower()


def size_of(dtype: str) -> int | None:
    """Bytes of one element; None where the type says nothing."""
    name = plain(dtype)
    if name.startswith("float8"):
        return 1
    return _SIZES.get(name)


def short_dtype(dtype: str) -> str:
    """fp32, bf16, fp8 ... as people write them; unknown types as recorded."""
    name = plain(dtype)
    return "fp8" if name.startswith("float8") else _SHORT.get(name, name)


def numel(shape: Sequence[int]) -> int:
    return prod(shape)


@lru_cache(maxsize=65536)
def _list(text: str) -> list[Any]:
    if not text:
        return []
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _scalar(value: Any) -> Any:
    """A recorded scalar argument as Python data; None where there is nothing to read."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in ("True", "False"):
        return text == "True"
    try:
        return json.loads(text.replace("True", "true").replace("False", "false"))
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(size, int) and size >= 0 for size in value)


@dataclass(frozen=True)
class Call:
    """``name`` without its namespace (``dispatched``: it has one); arguments by position, as recorded."""

    name: str
    dispatched: bool
    shapes: list[Any]
    dtypes: list[str]
    values: list[Any]

    @classmethod
    def parse(cls, name: str, shapes: str, dtypes: str, values: str) -> Call:
        short = name.rsplit("::", 1)[-1].removesuffix(".out").removesuffix("_out")
        kinds = [kind if isinstance(kind, str) else "TensorList" for kind in _list(dtypes)]
        return cls(short, "::" in name, _list(shapes), kinds, _list(values))

    def dtype(self, index: int) -> str:
        return self.dtypes[index] if index < len(self.dtypes) else ""

    def tensor(self, index: int) -> Shape | None:
        """The shape of a tensor argument; None where the argument is no (recorded) tensor."""
        if index >= len(self.shapes) or not _is_shape(self.shapes[index]):
            return None
        shape = tuple(self.shapes[index])
        if self.dtypes:
            return None if self.dtype(index) in _NO_TENSOR else shape
        return shape or None

    def matrix(self, index: int) -> Shape | None:
        """The same, for an argument of at least one dimension."""
        return self.tensor(index) or None

    def tensors(self) -> list[tuple[Shape, str]]:
        """Every tensor with its type; the tensors of a list argument carry the type ``""`` (it is not recorded)."""
        found: list[tuple[Shape, str]] = []
        for index, shape in enumerate(self.shapes):
            single = self.tensor(index)
            if single is not None:
                found.append((single, self.dtype(index)))
            elif isinstance(shape, list) and shape and all(_is_shape(part) for part in shape):
                found += [(tuple(part), "") for part in shape]
        return found

    def lists(self) -> list[list[Shape]]:
        """The shapes in every tensor-list argument."""
        nested = [shape for shape in self.shapes if isinstance(shape, list) and shape]
        return [[tuple(part) for part in shape] for shape in nested if all(_is_shape(part) for part in shape)]

    def scalar(self, index: int) -> Any:
        return _scalar(self.values[index]) if index < len(self.values) else None

    def ints(self, index: int) -> Shape | None:
        """A list of whole numbers (stride, padding ...), a single one as a list of one."""
        value = self.scalar(index)
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, int):
            return (value,)
        if isinstance(value, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            return tuple(value)
        return None

    def flags(self, index: int) -> tuple[bool, ...] | None:
        """A list of truth values (an output mask)."""
        value = self.scalar(index)
        if isinstance(value, list) and value and all(isinstance(v, (bool, int)) for v in value):
            return tuple(bool(v) for v in value)
        return None
