"""Kernels divided over the operators inside them: closed forms, sums, and what is said where nothing is known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from profilers.analysis.fusion import FUSION, Inside, decode, fusion, merge, rates, split
from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks
from profilers.analysis.registry import TABLES
from profilers.rules.taxonomy import CLASSES
from profilers.runs.windows import join
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Device, Origin, Recording

PEAKS = Peaks("a device", fp32=1.0, memory_gb_s=100.0)
"""1 TFLOP/s and 100 GB/s: ten operations a byte."""


def inside(name: str, *shapes: list[int], dtype: str = "float") -> Inside:
    return Inside(
        f"aten::{name}", json.dumps(list(shapes)), json.dumps([dtype] * len(shapes)), json.dumps([""] * len(shapes))
    )


MM = inside("mm", [64, 1000], [1000, 64])
GELU = inside("gelu", [64, 64])
VIEW = inside("view", [64, 64], [])


def test_a_product_and_its_activation():
    """2 x 64 x 64 x 1000 operations at 1 TFLOP/s against 2 x 64 x 64 x 4 bytes at 100 GB/s."""
    made = split((MM, VIEW, GELU), PEAKS)
    product, activation = 2 * 64 * 64 * 1000 / 1e12, 2 * 64 * 64 * 4 / 100e9
    assert made.weights == pytest.approx((product / (product + activation), 0, activation / (product + activation)))
    assert made.any_gemm == "gemm" and made.source == "shapes over peaks"
    assert sum(made.by_class().values()) == pytest.approx(1)
    assert made.inside() == f"mm {100 * made.weights[0]:.0f} %, gelu {100 * made.weights[2]:.0f} %, view"


def test_elementwise_chains_divide_by_bytes():
    """An addition reads two tensors and writes one, an activation reads one and writes one."""
    made = split((inside("add", [32, 32], [32, 32]), inside("relu", [32, 32])), PEAKS)
    assert made.weights == pytest.approx((3 / 5, 2 / 5))
    assert made.any_gemm == "nongemm"
    assert split((inside("add", [32, 32], [32, 32]), inside("relu", [32, 32])), None).weights == pytest.approx(
        (0.6, 0.4)
    )


def test_copies_move_and_constants_do_not():
    made = split(
        (inside("clone", [8, 8]), inside("permute", [8, 8]), inside("full", []), inside("relu", [8, 8])), PEAKS
    )
    assert made.weights == pytest.approx((0.5, 0, 0, 0.5))


def test_where_nothing_can_be_priced_parts_are_equal():
    made = split((Inside("aten::add"), Inside("aten::gelu"), Inside("aten::mul"), Inside("aten::sin")), PEAKS)
    assert made.weights == pytest.approx([0.25] * 4) and made.source == "equal parts"


def test_an_operator_of_no_known_size_gets_the_mean_of_the_others():
    made = split((inside("relu", [10, 10]), inside("sigmoid", [10, 10]), Inside("aten::mystery")), PEAKS)
    assert made.weights == pytest.approx([1 / 3] * 3)


def recording(known: dict[str, list[Inside]], kernels: list[tuple[str, int]]) -> Recording:
    """A recording of one device: kernels of (name, ns), end to end."""
    lengths = np.array([length for _, length in kernels], np.int64)
    frame = KERNELS.conform(
        pd.DataFrame(
            {
                "kind": "kernel",
                "name": [name for name, _ in kernels],
                "device": "cuda:0",
                "start_ns": np.cumsum(lengths) - lengths,
                "dur_ns": lengths,
                "class": ["gemm" if "gemm" in name else "nongemm" for name, _ in kernels],
                "group": ["matmul" if "gemm" in name else "elementwise" for name, _ in kernels],
            }
        )
    )
    text = json.dumps({name: [as_dict(one) for one in ops] for name, ops in known.items()})
    return Recording(
        OPERATORS.empty(),
        frame,
        STEPS.empty(),
        RUNTIME.empty(),
        (Device("cuda:0", "a device"),),
        Origin("kineto", extra={FUSION: text}),
    )


def as_dict(one: Inside) -> dict[str, str]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


OPTIONS = Options(peaks={"cuda:0": PEAKS})


def test_the_table_sums_to_the_kernels_time():
    made = recording(
        {"triton_a": [MM, VIEW, GELU], "triton_b": [GELU, inside("add", [64, 64], [64, 64])], "triton_c": [GELU]},
        [("triton_a", 1000), ("triton_b", 300), ("triton_a", 3001), ("triton_c", 100), ("sgemm", 599)],
    )
    frame = TABLES["fusion"].compute(made, OPTIONS)
    assert frame["kernel"].tolist() == ["triton_a", "triton_b"]
    assert frame["calls"].tolist() == [2, 1] and frame["time_us"].tolist() == [4.001, 0.3]
    assert frame["pct"].tolist() == pytest.approx([100 * 4001 / 5000, 100 * 300 / 5000])
    assert frame["operators"].tolist() == [3, 2]
    assert frame["class_any_gemm"].tolist() == ["gemm", "nongemm"]
    parts = frame[[f"{name}_us" for name in CLASSES]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(frame["time_us"].to_numpy(), rel=1e-12)
    assert frame["nongemm_us"][0] > 0 and frame["gemm_us"][1] == 0


def test_fusion_rate():
    made = recording(
        {"triton_a": [MM, VIEW, GELU], "triton_b": [GELU, inside("add", [64, 64], [64, 64])]},
        [("triton_a", 10), ("triton_b", 10), ("triton_b", 10), ("copy", 10), ("sgemm", 10)],
    )
    frame = TABLES["fusion_rate"].compute(made, OPTIONS)
    # One activation beside the product, twice two element-wise operators in one kernel, one copy alone.
    assert dict(zip(frame["how"], frame["operators"], strict=True)) == {
        "fused with a GEMM": 1,
        "fused with non-GEMM": 4,
        "alone": 1,
    }
    assert frame["pct"].sum() == pytest.approx(100)


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"k": 3}', '{"k": [{"input_shapes": "[]"}]}'])
def test_no_provenance_no_row(text):
    made = recording({}, [("copy", 10)])
    made = made.replace(origin=replace(made.origin, extra={FUSION: text}))
    assert decode(text) == {} and not len(fusion(made)) and not len(rates(made))


def test_kernels_compiled_between_windows_are_known_to_all():
    first, second = recording({"a": [GELU, MM]}, [("a", 5)]), recording({"a": [GELU], "b": [MM, GELU]}, [("b", 5)])
    joined = join([first, second])
    known = decode(joined.origin.extra[FUSION])
    assert {name: len(ops) for name, ops in known.items()} == {"a": 2, "b": 2}
    assert merge(["", ""]) == ""


@pytest.mark.parametrize(
    ("one", "quantizes"),
    [
        (Inside("prims::convert_element_type", "[[8],[]]", '["float","Scalar"]', '["","torch.int8"]'), True),
        (Inside("prims::convert_element_type", "[[8],[]]", '["signed char","Scalar"]', '["","torch.float32"]'), True),
        (Inside("aten::_to_copy", "[[8],[]]", '["float","Scalar"]', '["","torch.bfloat16"]'), False),
        (Inside("aten::relu", "[[8]]", '["signed char"]', '[""]'), False),
        (Inside("onnx::DynamicQuantizeLinear", "[[8]]", '["float"]', '["[8]"]'), True),
    ],
)
def test_kernels_that_quantize_are_marked(one, quantizes):
    made = recording({"k": [one, GELU]}, [("k", 10)])
    assert TABLES["fusion"].compute(made, OPTIONS)["quantizes"].tolist() == [quantizes]
