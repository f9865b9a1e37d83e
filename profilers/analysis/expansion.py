"""Into how many kernels each operator expands (operators as a model calls them: outermost dispatched ones)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profilers.analysis import tally
from profilers.analysis.options import Options
from profilers.analysis.view import view
from profilers.tables import Recording

NO_OPERATOR = "(no operator)"
"""The row of kernels that no operator is known to have launched."""


def expansion(recording: Recording, options: Options) -> pd.DataFrame:
    """One row per outermost operator name: its calls, and the kernels (all, distinct names) launched in its calls.

    Kernels launched by an autograd node itself belong to that node; those of no operator have a row of their own, so
    that ``kernels`` adds up to all kernels. Operators that launch nothing are left out.
    """
    v = view(recording)
    names = np.append(tally.texts(v.operators["name"])[:-1], [NO_OPERATOR])
    none = names.size - 1
    code = tally.codes(v.operators["name"])
    inner = v.operator_row[v.rows]
    owner = np.full(v.rows.size, none, np.int64)
    linked = inner >= 0
    outer = v.outermost[inner[linked]] if len(code) else inner[linked]
    owner[linked] = code[np.where(outer >= 0, outer, inner[linked])]
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
