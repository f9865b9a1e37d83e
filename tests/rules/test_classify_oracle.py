"""The classifier against kernel names of real recordings, whose launching operators an independent reader grouped.

The measure is GEMM class (products, convolutions, attention) or not, by time. Every disagreement must be covered by a
judgement below; a new one fails the test until somebody has looked at it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from profilers.rules.load import load_rules
from profilers.rules.matcher import RuleSet
from profilers.tables import KERNELS, OPERATORS

GEMM_CLASS = {"gemm", "attention"}

# The operators above these rows name no operation (a compiled region, an expert layer as one custom operator), so the
# oracle says "other" for all that runs inside. Only the kernel's name can tell, and for these it does.
BLIND_OPERATORS = ("CompiledFunction", "CompiledFunctionBackward", "vllm::moe_forward")
PRODUCTS_THE_ORACLE_CANNOT_SEE = {
    "volta_sgemm": "cuBLAS SGEMM called from a compiled region",
    "splitKreduce": "last step of a split product called from a compiled region",
    "magma_sgemmEx": "cuBLAS's GEMM of MAGMA's kind, called from a compiled region",
    "gemv2": "cuBLAS GEMV called from a compiled region",
    "gemmk1_kernel": "cuBLAS product with k = 1, called from a compiled region",
    "epilogue::impl::globalKernel": "cuBLASLt's bias step, launched with its product",
    "bmm_": "TensorRT-LLM's batched expert product, called from vLLM's expert layer",
}

# Launched below a product's or a convolution's operator, but no product: the name decides.
NO_PRODUCTS = {
    "scalePackedTensor": "cuDNN scales or clears a gradient before it adds to it: element-wise",
    "nchwToNhwc": "layout change that a convolution asked for: memory",
    "nhwcToNchw": "layout change that a convolution asked for: memory",
    "im2col": "layout change before a product; the product is a kernel of its own: memory",
    "copy_kernel": "copy or cast of an operand: memory",
    "copy_device_to_device": "copy or cast of an operand: memory",
    "CUDAFunctor_add": "bias or gradient added after the product: element-wise",
    "AddFunctor": "bias or gradient added after the product: element-wise",
    "scal_kernel": "cuBLAS scales the output by beta: element-wise",
    "reshape_and_cache_flash": "write to the key/value cache: memory, although the oracle counts it with attention",
}


class Row(NamedTuple):
    trace: str
    time_us: float
    operator: str
    group: str
    kernel: str

    @property
    def product(self) -> bool:
        return self.group in ("gemm", "conv", "attention")


@pytest.fixture(scope="module")
def oracle(request: pytest.FixtureRequest) -> list[Row]:
    traces: Path = request.getfixturevalue("traces")
    lines = (traces / "kernel_names_by_op.tsv").read_text("utf-8").splitlines()
    cells = [line.split("\t") for line in lines[1:]]
    assert all(len(row) == 7 for row in cells)
    return [Row(row[0], float(row[3]), row[4], row[5], row[6]) for row in cells]


def by_name(rules: RuleSet, rows: list[Row]) -> list[bool]:
    return [rules.kernel(row.kernel).cls in GEMM_CLASS for row in rows]


def with_operator(rules: RuleSet, rows: list[Row]) -> list[bool]:
    """Each row as one operator and one kernel that it launched, through the tables."""
    count = len(rows)
    named = ["" if row.operator == "-" else row.operator for row in rows]
    operators = OPERATORS.conform(pd.DataFrame({"op_id": range(count), "name": named}))
    kernels = KERNELS.conform(
        pd.DataFrame(
            {
                "kind": ["kernel"] * count,
                "name": [row.kernel for row in rows],
                "device": ["cuda:0"] * count,
                "op_id": [number if named[number] else -1 for number in range(count)],
            }
        )
    )
    classified = rules.classify_kernels(kernels, rules.classify_operators(operators))
    return [cls in GEMM_CLASS for cls in classified["class"]]


@pytest.mark.parametrize("judge", [by_name, with_operator])
def test_gemm_class_by_time(oracle: list[Row], judge: object) -> None:
    said = judge(load_rules(), oracle)  # type: ignore[operator]
    seen = missed = other = wrong = 0.0
    unjudged: dict[str, float] = {}
    for row, yes in zip(oracle, said, strict=True):
        if row.group == "-":  # launched before the window, or by a graph: the oracle says nothing
            continue
        if row.product:
            seen += row.time_us
            if not yes:
                missed += row.time_us
                if not any(part in row.kernel for part in NO_PRODUCTS):
                    unjudged[f"missed: {row.operator}: {row.kernel[:100]}"] = row.time_us
            continue
        if (
            yes
            and row.operator in BLIND_OPERATORS
            and any(part in row.kernel for part in PRODUCTS_THE_ORACLE_CANNOT_SEE)
        ):
            continue
        other += row.time_us
        if yes:
            wrong += row.time_us
            unjudged[f"wrongly a product: {row.operator}: {row.kernel[:100]}"] = row.time_us
    assert unjudged == {}
    assert seen > 4e6 and other > 4e6
    assert (seen - missed) / seen >= 0.98
    assert wrong / other <= 0.01


def test_every_judgement_is_still_needed(oracle: list[Row]) -> None:
    said = by_name(load_rules(), oracle)
    rows = list(zip(oracle, said, strict=True))
    for part in PRODUCTS_THE_ORACLE_CANNOT_SEE:
        assert any(yes and row.operator in BLIND_OPERATORS and part in row.kernel for row, yes in rows), part
    for part in NO_PRODUCTS:
        assert any(not yes and row.product and part in row.kernel for row, yes in rows), part


def test_no_name_and_no_operator_is_left_unclassified(oracle: list[Row]) -> None:
    rules = load_rules()
    assert sorted({row.kernel[:80] for row in oracle if not rules.kernel(row.kernel).rule}) == []
    assert (
        sorted({row.operator for row in oracle if row.operator != "-" and not rules.operator(row.operator).rule}) == []
    )


def test_winograd_products_are_convolutions_where_the_operator_says_so(oracle: list[Row]) -> None:
    """Plain SGEMM below a convolution operator: GEMM class by name, and the operator says which kind."""
    rules = load_rules()
    rows = [row for row in oracle if row.kernel.startswith("volta_sgemm") and row.group == "conv"]
    assert rows
    assert {rules.kernel(row.kernel).group for row in rows} == {"matmul"}
    operators = OPERATORS.conform(pd.DataFrame({"op_id": range(len(rows)), "name": [row.operator for row in rows]}))
    kernels = KERNELS.conform(pd.DataFrame({"name": [row.kernel for row in rows], "op_id": range(len(rows))}))
    done = rules.classify_kernels(kernels, rules.classify_operators(operators))
    assert set(done["group"]) == {"convolution"}
    assert all(" via " in rule for rule in done["rule"])


def test_communication_is_found_beyond_nccl(oracle: list[Row]) -> None:
    rules = load_rules()
    found = {row.kernel for row in oracle if rules.kernel(row.kernel).cls == "communication"}
    assert any("multimem" in name for name in found)
    assert any(name.startswith("nccl") for name in found)
    assert all("nccl" in name.lower() or "multimem" in name for name in found)
