"""Into how many kernels each operator expands (operators as a model calls them: outermost dispatched ones)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.view import Ints, View, view
from profilers.tables import Recording

NO_OPERATOR = "(no operator)"
"""The row of kernels that no operator is known to have launched."""


def expansion(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per outermost operator name: its calls, and the kernels (all, distinct names) launched in its calls.

    Kernels launched by an autograd node itself belong to that node; those of no operator have a row of their own, so
    that ``kernels`` adds up to all kernels. Operators that launch nothing are left out.
    """
    v = view(recording)
    owner, names = owners(v, v.rows)
    code = tally.codes(v.operators["name"])
    kernels = tally.count(owner, names.size)
    different = tally.distinct(owner, tally.codes(v.kernels["name"])[v.rows], names.size)
    is_outer = v.outermost == np.arange(len(code))
    node = np.bincount(code[v.outermost < 0], minlength=names.size) if len(code) else np.zeros(names.size, np.int64)
    calls = np.bincount(code[is_outer], minlength=names.size) + node if len(code) else node
    order = np.flatnonzero(kernels)
    order = order[np.argsort(-kernels[order], kind="stable")]
    return tally.frame(
        operator=names[order], calls=calls[order], kernels=kernels[order], distinct_kernels=different[order]
    )


def owners(v: View, rows: Ints) -> tuple[Ints, np.ndarray]:
    """For each of these rows of ``kernels`` the outermost operator that launched it (an autograd node where nothing is
    around that), as a position among the names that come second; the last of them is :data:`NO_OPERATOR`."""
    names = np.append(tally.texts(v.operators["name"])[:-1], [NO_OPERATOR])
    code = np.full(rows.size, names.size - 1, np.int64)
    inner = v.operator_row[rows]
    linked = np.flatnonzero(inner >= 0)
    if linked.size:
        outer = v.outermost[inner[linked]]
        code[linked] = tally.codes(v.operators["name"])[np.where(outer >= 0, outer, inner[linked])]
    return code, names
