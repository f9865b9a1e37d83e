"""Verdicts over tables: who decides when kernel name, operator, module and ancestors disagree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profilers.rules.load import classify, load_rules
from profilers.rules.matcher import RuleSet
from profilers.rules.taxonomy import CLASSES, GROUPS
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Recording

COPY = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::direct_copy_kern"
    "el_cuda(at::TensorIteratorBase&)::{lambda()#2}> >(int)"
)
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<cha"
    "r*, 3ul> >(int)"
)
MEAN = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float,"
    " float, float>, unsigned int, float, 4, 4> >(int)"
)
SGEMM = "volta_sgemm_128x64_nn"


def operators(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """(op_id, parent_id, name, module)."""
    columns = ["op_id", "parent_id", "name", "module"]
    return OPERATORS.conform(pd.DataFrame([(*row, "")[:4] for row in rows], columns=columns))


def kernels(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """(name, op_id, kind, device)."""
    defaults = ("", -1, "kernel", "cuda:0")
    columns = ["name", "op_id", "kind", "device"]
    return KERNELS.conform(pd.DataFrame([(*row, *defaults[len(row) :]) for row in rows], columns=columns))


@pytest.fixture
def rules() -> RuleSet:
    return load_rules()


def groups_of(rules: RuleSet, ops: pd.DataFrame, kerns: pd.DataFrame) -> list[str]:
    return list(rules.classify_kernels(kerns, rules.classify_operators(ops))["group"])


def test_a_copy_or_an_addition_below_a_product_is_no_product(rules: RuleSet) -> None:
    ops = operators((0, -1, "aten::addmm"))
    assert groups_of(rules, ops, kernels((COPY, 0), (ADD, 0), (MEAN, 0), (SGEMM, 0))) == [
        "memory",
        "elementwise",
        "reduction",
        "matmul",
    ]


def test_a_decisive_name_wins_over_its_operator(rules: RuleSet) -> None:
    ops = operators((0, -1, "aten::copy_"), (1, -1, "aten::mul"))
    assert groups_of(rules, ops, kernels((SGEMM, 0), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 1))) == [
        "matmul",
        "collective",
    ]


def test_a_weak_name_gives_way_to_an_operator_that_says_more(rules: RuleSet) -> None:
    ops = operators((0, -1, "aten::native_layer_norm"), (1, -1, "aten::gelu"), (2, -1, "aten::nll_loss_forward"))
    assert groups_of(rules, ops, kernels((MEAN, 0), (ADD, 1), (MEAN, 2))) == ["normalization", "activation", "loss"]


def test_an_unknown_name_takes_its_operator_or_what_called_that(rules: RuleSet) -> None:
    ops = operators((0, -1, "aten::mm"), (1, -1, "aten::softmax"), (2, 1, "mylib::frobnicate"), (3, -1, "mylib::other"))
    done = rules.classify_kernels(
        kernels(("my_kernel", 0), ("my_kernel", 2), ("my_kernel", 3), ("my_kernel", -1)), rules.classify_operators(ops)
    )
    assert list(done["group"]) == ["matmul", "softmax", "unclassified", "unclassified"]
    assert list(done["class"]) == ["gemm", "nongemm", "unclassified", "unclassified"]
    assert list(done["rule"]) == [
        "operators.toml:matmul via aten::mm",
        "operators.toml:softmax via aten::softmax",
        "",
        "",
    ]


def test_a_graph_kernel_is_judged_by_its_name_alone(rules: RuleSet) -> None:
    ops = operators((0, -1, "cudaGraphLaunch"))
    done = rules.classify_kernels(kernels((SGEMM, -1), (ADD, -1), ("attn_fwd", 0)), rules.classify_operators(ops))
    assert list(done["group"]) == ["matmul", "elementwise", "attention"]


def test_a_decomposed_norm_is_a_normalization_but_its_products_stay(rules: RuleSet) -> None:
    ops = operators(
        (0, -1, "aten::pow", "LlamaRMSNorm"),
        (1, -1, "aten::mean", "LlamaRMSNorm"),
        (2, -1, "aten::to", "LlamaRMSNorm"),
        (3, -1, "aten::mm", "LlamaRMSNorm"),
        (4, -1, "aten::mul", "LlamaMLP"),
        (5, -1, "aten::tanh", "NewGELUActivation"),
        (6, -1, "aten::mul", "NewGELUActivation"),
        (7, -1, "aten::linear", "SwiGLU"),
        (8, -1, "aten::softmax", "MixtralTopKRouter"),
    )
    done = rules.classify_operators(ops)
    assert list(done["group"]) == [
        *["normalization"] * 3,
        "matmul",
        "elementwise",
        *["activation"] * 2,
        "matmul",
        "routing",
    ]
    assert done["rule"].iloc[0] == "modules.toml:norm LlamaRMSNorm"
    assert rules.where(done["rule"].iloc[0]).split(":")[0].endswith("modules.toml")
    kerns = kernels((ADD, 0), (MEAN, 1), (COPY, 2), (SGEMM, 3), (ADD, 4))
    assert groups_of(rules, ops, kerns) == [*["normalization"] * 3, "matmul", "elementwise"]


def test_an_optimizer_step_takes_its_arithmetic(rules: RuleSet) -> None:
    ops = operators(
        (0, -1, "Optimizer.step#AdamW.step"),
        (1, 0, "aten::mul_"),
        (2, 1, "aten::to"),
        (3, 0, "aten::mm"),
        (4, -1, "aten::mul_"),
    )
    done = rules.classify_operators(ops)
    assert list(done["group"]) == ["optimizer", "optimizer", "optimizer", "matmul", "elementwise"]
    assert done["rule"].iloc[2] == "operators.toml:optimizer via Optimizer.step#AdamW.step"


def test_a_lookup_counts_as_embedding(rules: RuleSet) -> None:
    ops = operators((0, -1, "aten::embedding"), (1, 0, "aten::index_select"))
    kerns = kernels(("void at::native::vectorized_gather_kernel<16, long>(char*)", 1))
    assert groups_of(rules, ops, kerns) == ["embedding"]


def test_ids_need_be_neither_dense_nor_sorted(rules: RuleSet) -> None:
    ops = operators((70, 500, "mylib::step"), (500, -1, "aten::gelu"), (7, -1, "aten::mm"))
    assert list(rules.classify_operators(ops)["group"]) == ["activation", "activation", "matmul"]
    assert groups_of(rules, ops, kernels(("k", 7), ("k", 500), ("k", 70), ("k", 8), ("k", 1000))) == [
        "matmul",
        "activation",
        "activation",
        "unclassified",
        "unclassified",
    ]


def test_damaged_parents_do_not_hang_it(rules: RuleSet) -> None:
    ops = operators((0, 1, "mylib::a"), (1, 0, "mylib::b"), (2, 2, "mylib::c"), (3, 99, "mylib::d"))
    assert list(rules.classify_operators(ops)["group"]) == ["unclassified"] * 4


def test_copies_are_memory_whatever_they_are_called(rules: RuleSet) -> None:
    done = rules.classify_kernels(
        kernels(("Memcpy HtoD (Pageable -> Device)", -1, "memcpy"), ("?", -1, "memset"), ("gemm", -1, "memcpy")),
        OPERATORS.empty(),
    )
    assert list(done["group"]) == ["memory"] * 3


def test_on_a_cpu_a_kernel_is_its_operator(rules: RuleSet) -> None:
    ops = operators((0, -1, "aten::linear"), (1, 0, "aten::addmm"), (2, -1, "aten::mul", "T5LayerNorm"))
    done = rules.classify_kernels(
        kernels(
            ("aten::addmm", 1, "kernel", "cpu"),
            ("aten::mul", 2, "kernel", "cpu"),
            ("aten::_softmax", -1, "kernel", "rank0/cpu"),
            ("softmax_of_mine", -1, "kernel", "cpu"),
        ),
        rules.classify_operators(ops),
    )
    assert list(done["group"]) == ["matmul", "normalization", "softmax", "softmax"]
    assert list(done["rule"])[:3] == [
        "operators.toml:matmul",
        "modules.toml:norm T5LayerNorm",
        "operators.toml:softmax",
    ]


def test_tables_keep_their_schema_order_and_other_columns(rules: RuleSet) -> None:
    ops = operators((0, -1, "aten::mm"), (1, -1, "zzz::unknown"))
    kerns = kernels((SGEMM, 0), (ADD, 1))
    done_ops = rules.classify_operators(ops)
    done = rules.classify_kernels(kerns, done_ops)
    assert OPERATORS.problems(done_ops) == [] and KERNELS.problems(done) == []
    assert list(done.columns) == KERNELS.names
    pd.testing.assert_frame_equal(
        done.drop(columns=["group", "class", "rule"]), kerns.drop(columns=["group", "class", "rule"])
    )
    assert list(done["group"].cat.categories) == list(GROUPS)
    assert list(done["class"].cat.categories) == list(CLASSES)
    assert list(kerns["group"]) == ["", ""], "the frame that was handed in is left alone"


def test_empty_tables(rules: RuleSet) -> None:
    done_ops = rules.classify_operators(OPERATORS.empty())
    done = rules.classify_kernels(KERNELS.empty(), done_ops)
    assert len(done) == 0 and len(done_ops) == 0
    assert KERNELS.problems(done) == [] and OPERATORS.problems(done_ops) == []


def test_deep_chains_inherit(rules: RuleSet) -> None:
    depth = 300
    ops = operators((0, -1, "aten::softmax"), *((number, number - 1, "mylib::x") for number in range(1, depth)))
    assert set(rules.classify_operators(ops)["group"]) == {"softmax"}


def test_a_recording_is_classified_whole() -> None:
    recording = Recording(operators((0, -1, "aten::mm")), kernels((SGEMM, 0)), STEPS.empty(), RUNTIME.empty())
    done = classify(recording)
    assert list(done.operators["class"]) == ["gemm"]
    assert list(done.kernels["rule"]) == ["kernels.toml:gemm"]


def test_many_rows_agree_with_each_row_alone(rules: RuleSet) -> None:
    """Verdicts do not depend on what else is in the table."""
    generator = np.random.default_rng(0)
    names = ["aten::mm", "aten::mul", "aten::softmax", "mylib::x", "Optimizer.step#SGD.step", "aten::copy_"]
    modules = ["", "LlamaRMSNorm", "Linear"]
    size = 200
    parents = [-1, *(int(generator.integers(-1, number)) for number in range(1, size))]
    ops = operators(
        *((n, parents[n], names[generator.integers(6)], modules[generator.integers(3)]) for n in range(size))
    )
    kerns = kernels(
        *(
            ([SGEMM, ADD, COPY, MEAN, "odd"][generator.integers(5)], int(generator.integers(-1, size)))
            for _ in range(400)
        )
    )
    done_ops = rules.classify_operators(ops)
    together = rules.classify_kernels(kerns, done_ops)
    for row in range(0, 400, 7):
        chain = []
        at = int(kerns["op_id"].iloc[row])
        while at >= 0:
            chain.append(at)
            at = parents[at]
        alone_ops = rules.classify_operators(ops.iloc[sorted(chain)])
        alone = rules.classify_kernels(kerns.iloc[[row]], alone_ops)
        assert alone["group"].iloc[0] == together["group"].iloc[row]
        assert alone["rule"].iloc[0] == together["rule"].iloc[row]
