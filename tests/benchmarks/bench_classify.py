"""How long classifying takes: a million kernels and half a million operators whose names are the rules' own examples.

python tests/benchmarks/bench_classify.py [KERNELS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pandas as pd

from profilers.rules.load import load_rules
from profilers.rules.names import short_names
from profilers.tables import KERNELS, OPERATORS

Result = TypeVar("Result")


def timed(what: str, call: Callable[[], Result]) -> Result:
    begin = time.process_time()
    result = call()
    print(f"{what:<44} {time.process_time() - begin:8.3f} CPU s")
    return result


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    random = np.random.default_rng(0)
    rules = timed("load the rules", load_rules)
    examples = {
        kind: [e for r in rules.rules() if r.kind == kind for e in r.examples] for kind in ("kernel", "operator")
    }
    # Template arguments multiply names in real recordings; so does a number here.
    names = [f"{name}#{number}" for name in dict.fromkeys(examples["kernel"]) for number in range(8)]
    called = ["aten::" + name if "::" not in name else name for name in dict.fromkeys(examples["operator"])]

    def column(values: list[str], size: int) -> pd.Categorical:
        return pd.Categorical.from_codes(random.integers(0, len(values), size).astype(np.int32), pd.Index(values))

    half = count // 2
    parent = np.maximum(np.arange(half) - random.integers(1, 20, half), -1)
    parent[random.random(half) < 0.3] = -1
    operators = OPERATORS.conform(
        pd.DataFrame(
            {
                "op_id": np.arange(half),
                "parent_id": parent,
                "name": column(called, half),
                "module": column(["", "LlamaRMSNorm", "Linear"], half),
            }
        )
    )
    kernels = KERNELS.conform(
        pd.DataFrame(
            {
                "op_id": random.integers(-1, half, count),
                "name": column(names, count),
                "kind": column(["kernel"], count),
                "device": column(["cuda:0"], count),
            }
        )
    )
    classified = timed(f"classify {half:,} operators", lambda: rules.classify_operators(operators))
    timed(f"classify {count:,} kernels ({len(names):,} names)", lambda: rules.classify_kernels(kernels, classified))
    timed("the same again (names known)", lambda: rules.classify_kernels(kernels, classified))
    timed(f"short names of {len(names):,} kernels", lambda: short_names(names))


if __name__ == "__main__":
    main()
