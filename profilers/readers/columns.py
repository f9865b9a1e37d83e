"""Small column builders that several readers need: texts by id, launch dimensions, threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.readers.nesting import Ints

_LARGEST = float(1 << 62)


def text_column(texts: Any) -> pd.Categorical:
    """Texts as a categorical whose categories are in order of first appearance."""
    codes, categories = pd.factorize(np.asarray(texts, dtype=object))
    return pd.Categorical.from_codes(codes, pd.Index(categories, dtype=object))


def looked_up(ids: npt.ArrayLike, texts: Mapping[Any, str], missing: str) -> pd.Categorical:
    """Ids turned into their texts (``missing`` where there is none); ids that share a text share a category."""
    codes, distinct = pd.factorize(np.asarray(ids))
    names = text_column([texts.get(key, missing) for key in distinct.tolist()])
    return pd.Categorical.from_codes(names.codes[codes] if len(distinct) else codes, names.categories)


def xyz_column(x: Ints, y: Ints, z: Ints) -> pd.Categorical:
    """Launch dimensions as ``XxYxZ``; ``''`` where one of them is not positive (nothing recorded)."""
    known = (x > 0) & (y > 0) & (z > 0)
    table = pd.DataFrame({"x": np.where(known, x, 0), "y": np.where(known, y, 0), "z": np.where(known, z, 0)})
    codes = table.groupby(["x", "y", "z"], sort=False).ngroup().to_numpy()
    distinct = table.drop_duplicates()
    texts = [f"{a}x{b}x{c}" if a else "" for a, b, c in distinct.itertuples(index=False)]
    return pd.Categorical.from_codes(codes, pd.Index(texts, dtype=object))


def thread_count(sizes: list[Ints]) -> Ints:
    """Threads launched: the product of grid and block; -1 where a factor is not positive or the product is absurd."""
    known = np.logical_and.reduce([size > 0 for size in sizes])
    rough = np.prod([np.where(known, size, 1).astype(np.float64) for size in sizes], axis=0)
    known &= rough < _LARGEST
    exact = np.ones(len(known), np.int64)
    for size in sizes:
        exact *= np.where(known, size, 1)
    return np.where(known, exact, -1)
