"""Sums by code: the few group-by operations that every table is made of, on integer codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def constant(value: str, size: int) -> Any:
    """A categorical column that holds one value."""
    return pd.Categorical.from_codes(np.zeros(size, np.int64), dtype=pd.CategoricalDtype([value]))


def texts(column: pd.Series) -> npt.NDArray[np.object_]:
    """The categories of a column as text, and one more, ``''``, for code -1."""
    return np.array([*(str(c) for c in column.cat.categories), ""], dtype=object)


def codes(column: pd.Series) -> Ints:
    """The codes of a categorical column as int64."""
    return np.asarray(column.cat.codes.to_numpy(), np.int64)


def total(group: Ints, weight: Any, size: int) -> Floats:
    """Sum of ``weight`` per group 0 .. size-1."""
    return np.bincount(group, np.asarray(weight, np.float64), minlength=size).astype(np.float64)


def count(group: Ints, size: int) -> Ints:
    """Rows per group 0 .. size-1."""
    return np.bincount(group, minlength=size).astype(np.int64)


_DENSE = 1 << 22
"""Up to so many possible codes, counting them all is faster than sorting the rows."""


def numbered(code: Ints, size: int) -> tuple[Ints, Ints]:
    """The distinct codes in ascending order, and the number of each row's code among them (codes are below ``size``)."""
    if size > _DENSE:
        pairs, inverse = np.unique(code, return_inverse=True)
        return pairs, inverse.astype(np.int64)
    pairs = np.flatnonzero(np.bincount(code, minlength=size))
    place = np.zeros(size, np.int64)
    place[pairs] = np.arange(pairs.size)
    return pairs, place[code]


def dominant(group: Ints, value: Ints, weight: Any, size: int) -> Ints:
    """Per group the value with most weight (the most frequent of equals); -1 where the group has no row."""
    result = np.full(size, -1, np.int64)
    if not len(group):
        return result
    low = int(value.min())
    width = int(value.max()) - low + 1
    pairs, inverse = numbered(group * width + (value - low), size * width)
    heavy = np.bincount(inverse, np.asarray(weight, np.float64))
    often = np.bincount(inverse)
    order = np.lexsort((often, heavy))
    result[pairs[order] // width] = pairs[order] % width + low
    return result


def distinct(group: Ints, value: Ints, size: int) -> Ints:
    """How many different values each group has."""
    if not len(group):
        return np.zeros(size, np.int64)
    width = int(value.max()) + 2
    pairs, _ = numbered(group * width + (value + 1), size * width)
    return count(pairs // width, size)


def frame(**columns: Any) -> pd.DataFrame:
    """A frame of columns of one length, object columns staying plain text."""
    return pd.DataFrame({name.rstrip("_"): values for name, values in columns.items()})
