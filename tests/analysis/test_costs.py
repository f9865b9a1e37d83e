"""FLOPs, bytes and items from recorded shapes: against closed forms and against PyTorch's own counter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables_maker import operator, recording

from profilers.analysis.calls import Call, short_dtype, size_of
from profilers.analysis.costs import costs, labels
from profilers.analysis.flops import work
from profilers.analysis.traffic import traffic
from profilers.readers import kineto


def _call(name: str, shapes: list[Any], dtypes: list[str] | str = "float", values: list[str] | None = None) -> Call:
    kinds = [dtypes if shape else "Scalar" for shape in shapes] if isinstance(dtypes, str) else dtypes
    return Call.parse(f"aten::{name}", json.dumps(shapes), json.dumps(kinds), json.dumps(values or []))


def _op(
    op_id: int, name: str, shapes: list[Any], parent: int = -1, depth: int = 0, values: Any = None
) -> dict[str, Any]:
    return operator(
        op_id,
        op_id * 10,
        5,
        name,
        parent,
        depth,
        input_shapes=json.dumps(shapes),
        input_dtypes=json.dumps(["float" if shape else "Scalar" for shape in shapes]),
        input_values=json.dumps(values) if values else "",
    )


@pytest.mark.parametrize(
    ("name", "shapes", "values", "flops"),
    [
        ("mm", [[3, 5], [5, 7]], None, 2 * 3 * 5 * 7),
        ("addmm", [[7], [3, 5], [5, 7], [], []], None, 2 * 3 * 5 * 7),
        ("bmm", [[2, 3, 5], [2, 5, 7]], None, 2 * 2 * 3 * 5 * 7),
        ("baddbmm", [[2, 3, 7], [2, 3, 5], [2, 5, 7]], None, 2 * 2 * 3 * 5 * 7),
        ("linear", [[4, 3, 5], [7, 5], [7]], None, 2 * 12 * 5 * 7),
        ("matmul", [[2, 1, 3, 5], [4, 5, 7]], None, 2 * 8 * 3 * 5 * 7),
        ("matmul", [[5], [5, 7]], None, 2 * 5 * 7),
        ("mv", [[3, 5], [5]], None, 2 * 3 * 5),
        ("_int_mm", [[3, 5], [5, 7]], None, 2 * 3 * 5 * 7),
        ("_scaled_mm", [[3, 5], [5, 7], [1], [1]], None, 2 * 3 * 5 * 7),
        ("_grouped_mm", [[30, 5], [4, 5, 7], [4]], None, 2 * 30 * 5 * 7),
        ("_weight_int8pack_mm", [[3, 5], [7, 5], [7]], None, 2 * 3 * 5 * 7),
        (
            "scaled_dot_product_attention",
            [[2, 8, 10, 16], [2, 2, 12, 16], [2, 2, 12, 16]],
            None,
            4 * 2 * 8 * 10 * 12 * 16,
        ),
        ("_flash_attention_forward", [[2, 10, 8, 16], [2, 12, 8, 16], [2, 12, 8, 16]], None, 4 * 2 * 8 * 10 * 12 * 16),
        (
            "mkldnn_convolution",
            [[2, 4, 9, 9], [6, 2, 3, 3], [6], [], [], [], []],
            ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "2"],
            2 * 2 * 25 * 6 * 2 * 9,
        ),
        (
            "cudnn_convolution",
            [[2, 4, 9, 9], [6, 4, 3, 3], [], [], [], []],
            ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"],
            2 * 2 * 25 * 6 * 4 * 9,
        ),
    ],
)
def test_closed_forms(name: str, shapes: list[Any], values: list[str] | None, flops: float) -> None:
    found = work(_call(name, shapes, values=values))
    assert found is not None and found.flops == flops


@pytest.mark.parametrize(
    ("name", "shapes", "values"),
    [
        ("mm", [[3, 5], [6, 7]], None),
        ("mm", [[3, 5]], None),
        ("conv2d", [[2, 4, 9, 9], [6, 4, 3, 3], []], None),
        ("convolution_backward", [[2, 6, 5, 5], [2, 4, 9, 9], [6, 4, 3, 3]], None),
        ("scaled_dot_product_attention", [[2, 3, 10, 16], [2, 2, 12, 16], [2, 2, 12, 16]], None),
        ("relu", [[3, 5]], None),
    ],
)
def test_what_is_not_known_is_not_guessed(name: str, shapes: list[Any], values: list[str] | None) -> None:
    assert work(_call(name, shapes, values=values)) is None


def test_damaged_text_is_no_shape() -> None:
    assert work(Call.parse("aten::mm", "[[3,", '["float"', "")) is None
    assert work(Call.parse("aten::mm", '{"a": 1}', "7", "[[")) is None


def test_the_weight_gradient_of_a_grouped_convolution_is_divided_by_its_groups() -> None:
    shapes = [[2, 8, 5, 5], [2, 8, 5, 5], [8, 1, 3, 3], *[[]] * 8]
    values = ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "8", "[True, True, False]"]
    found = work(_call("convolution_backward", shapes, values=values))
    assert found is not None and found.flops == 2 * (2 * 2 * 25 * 8 * 9)


def test_the_leaf_decides_and_each_operation_counts_once() -> None:
    made = recording(
        operators=[
            _op(0, "aten::linear", [[3, 5], [7, 5], [7]]),
            _op(1, "aten::addmm", [[7], [3, 5], [5, 7], [], []], 0, 1),
            _op(2, "aten::linear", [[3, 5], [7, 5], [7]]),
            _op(3, "aten::t", [[7, 5]], 2, 1),
        ]
    ).operators
    priced = costs(made)
    assert np.isnan(priced.flops[0]) and priced.flops[1] == 210 and priced.flops[2] == 210 and np.isnan(priced.flops[3])
    assert priced.bytes[0] == 0 and priced.bytes[1] == 4 * (7 + 15 + 35 + 21)
    assert priced.items.tolist() == [0, 35, 35, 0]
    texts, dtypes, which = labels(made)
    assert texts[which[1]] == "m=3 n=7 k=5" and dtypes[which[1]] == "fp32"


def test_a_copy_inside_an_operator_does_not_hide_the_multiply() -> None:
    made = recording(
        operators=[
            _op(0, "aten::addmm", [[7], [3, 5], [5, 7], [], []]),
            _op(1, "aten::copy_", [[3, 70], [3, 70], []], 0, 1),
        ]
    ).operators
    assert costs(made).bytes[0] == 4 * (7 + 15 + 35 + 21)


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "moved"),
    [
        ("add", [[4, 8], [8], []], "float", 4 * (32 + 8 + 32)),
        ("add_", [[4, 8], [4, 8], []], "c10::BFloat16", 2 * 96),
        ("eq", [[4, 8], [4, 8]], "float", 4 * 64 + 32),
        ("copy_", [[4, 8], [4, 8], []], ["c10::Half", "float", "Scalar"], 32 * 6),
        ("view", [[4, 8], []], "float", 0),
        ("sum", [[4, 8], []], "double", 8 * 32),
        ("fill_", [[4, 8], []], "float", 4 * 32),
        ("cat", [[[4, 8], [4, 8]], []], ["TensorList", "Scalar"], 2 * 4 * 64),
        (
            "embedding",
            [[1000, 8], [4], [], [], []],
            ["float", "long int", "Scalar", "Scalar", "Scalar"],
            2 * 4 * 32 + 32,
        ),
        (
            "layer_norm",
            [[4, 8], [], [8], [8], [], []],
            ["float", "ScalarList", "float", "float", "Scalar", "Scalar"],
            4 * 80,
        ),
        ("mm", [[3, 5], [5, 7]], "c10::Half", 2 * (15 + 35 + 21)),
    ],
)
def test_bytes_moved_at_least_once(name: str, shapes: list[Any], dtypes: Any, moved: float) -> None:
    call = _call(name, shapes, dtypes)
    found = traffic(call, work(call), 4)
    assert found is not None and found[0] == moved


def test_a_size_that_depends_on_data_is_not_known() -> None:
    call = _call("index", [[100, 8], []], ["float", ""])
    assert traffic(call, None, 4) is None


def test_types() -> None:
    assert [short_dtype(t) for t in ("c10::BFloat16", "float", "c10::Float8_e4m3fn", "signed char")] == [
        "bf16",
        "fp32",
        "fp8",
        "int8",
    ]
    assert size_of("c10::Half") == 2 and size_of("long int") == 8 and size_of("Scalar") is None


def test_no_operators_cost_nothing() -> None:
    assert costs(recording().operators).flops.size == 0


class TestAgainstTorch:
    """The recorded shapes of a real run, priced here, against ``torch.utils.flop_counter``."""

    @staticmethod
    def _recorded(run: Any, folder: Path) -> float:
        torch = pytest.importorskip("torch")
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            run(torch)
        profiler.export_chrome_trace(str(folder / "trace.json"))
        return float(np.nansum(costs(kineto.read(folder / "trace.json").operators).flops))

    @staticmethod
    def _counted(run: Any) -> float:
        torch = pytest.importorskip("torch")
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            run(torch)
        return float(counter.get_total_flops())

    @staticmethod
    def _net(torch: Any) -> None:
        torch.manual_seed(0)
        nn = torch.nn
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 8, (3, 5), dilation=(2, 1)),
            nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1),
            nn.Flatten(),
        )
        x = torch.randn(2, 3, 20, 22)
        hidden = net(x)
        out = nn.Linear(hidden.shape[1], 5)(hidden)
        out.sum().backward()

    @staticmethod
    def _products(torch: Any) -> None:
        a, b = torch.randn(4, 6, 8, requires_grad=True), torch.randn(4, 8, 10)
        torch.baddbmm(torch.randn(4, 6, 10), a, b).sum().backward()
        torch.addmm(torch.randn(3), torch.randn(5, 7), torch.randn(7, 3))
        torch.nn.functional.conv1d(torch.randn(2, 4, 30), torch.randn(6, 2, 5), groups=2, padding=2)
        torch.nn.functional.conv3d(torch.randn(1, 2, 8, 8, 8), torch.randn(3, 2, 3, 3, 3))

    @pytest.mark.parametrize("which", ["_net", "_products"])
    def test_training_and_products(self, which: str, tmp_path: Path) -> None:
        run = getattr(self, which)
        assert self._recorded(run, tmp_path) == self._counted(run) > 0

    def test_attention_on_the_cpu_which_the_counter_does_not_know(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

        def run(torch: Any) -> None:
            q, k, v = (torch.randn(2, 4, n, 16, requires_grad=True) for n in (10, 12, 12))
            torch.nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()

        q, k = (2, 4, 10, 16), (2, 4, 12, 16)
        assert self._recorded(run, tmp_path) == sdpa_flop_count(q, k, k) + sdpa_backward_flop_count(q, q, k, k)

    def test_scaled_products_and_every_attention_backward(self) -> None:
        """The formulas of the counter for what no CPU runs, on the same shapes; causal or not costs the same there."""
        torch = pytest.importorskip("torch")
        from torch.utils.flop_counter import flop_registry

        aten = torch.ops.aten
        found = work(_call("_scaled_mm", [[32, 16], [16, 24], [], []]))
        assert found is not None and found.flops == flop_registry[aten._scaled_mm]((32, 16), (16, 24), None, None)
        q, k, v = (2, 8, 10, 16), (2, 8, 12, 16), (2, 8, 12, 24)
        grad = (2, 8, 10, 24)
        for name in ("flash", "efficient", "cudnn"):
            name = f"_scaled_dot_product_{name}_attention_backward"
            found = work(_call(name, [list(shape) for shape in (grad, q, k, v, grad)]))
            out = tuple(torch.empty(shape, device="meta") for shape in (q, k, v))
            wanted = flop_registry[getattr(aten, name)](grad, q, k, v, out_val=out)
            assert found is not None and found.flops == wanted > 0, name

    @pytest.mark.filterwarnings("ignore")
    def test_what_the_counter_does_not_know_counts_like_its_plain_product(self, tmp_path: Path) -> None:
        """Integer products and groups of rows: as many operations as the same product in floats, group by group."""

        def small(torch: Any) -> None:
            a = torch.zeros(32, 16, dtype=torch.int8)
            torch._int_mm(a, torch.zeros(16, 24, dtype=torch.int8))
            torch._weight_int8pack_mm(torch.zeros(4, 16).bfloat16(), a, torch.ones(32).bfloat16())
            ends = torch.tensor([4, 8, 30, 32], dtype=torch.int32)
            torch._grouped_mm(torch.zeros(32, 16).bfloat16(), torch.zeros(4, 16, 24).bfloat16(), offs=ends)

        def plainly(torch: Any) -> None:
            torch.zeros(32, 16) @ torch.zeros(16, 24)
            torch.zeros(4, 16) @ torch.zeros(16, 32)
            for rows in (4, 4, 22, 2):
                torch.zeros(rows, 16) @ torch.zeros(16, 24)

        assert self._recorded(small, tmp_path) == self._counted(plainly) > 0

    @pytest.mark.parametrize("transposed", [False, True])
    def test_convolution_backward_formula(self, transposed: bool) -> None:
        torch = pytest.importorskip("torch")
        from torch.utils.flop_counter import conv_backward_flop

        x, w = (2, 4, 9, 9), ((4, 6, 3, 3) if transposed else (6, 4, 3, 3))
        grad = (2, 6, 19, 19) if transposed else (2, 6, 4, 4)
        for mask in ([True, True, False], [False, True, True], [True, False, False]):
            values = ["", "", "", "[0]", "[2, 2]", "[0, 0]", "[1, 1]", str(transposed), "[0, 0]", "1", str(mask)]
            shapes = [list(grad), list(x), list(w), *[[]] * 8]
            found = work(_call("convolution_backward", shapes, values=values))
            out = (torch.empty(x, device="meta"), torch.empty(w, device="meta"), None)
            expected = conv_backward_flop(
                grad, x, w, None, (2, 2), (0, 0), (1, 1), transposed, (0, 0), 1, mask, out_val=out
            )
            assert found is not None and found.flops == expected


def test_a_packed_weight_is_sized_by_the_output_it_allocates() -> None:
    layer = {
        "input_shapes": "[[4,64],[],[]]",
        "input_dtypes": '["float","","Scalar"]',
        "input_values": '["","","True"]',
    }
    sizes = {"input_shapes": "[[],[],[]]", "input_dtypes": '["ScalarList","Scalar",""]'}
    made = recording(
        operators=[
            operator(0, 0, 100, "quantized::linear_dynamic", **layer),
            operator(1, 5, 2, "aten::empty", 0, 1, input_values='["[4, 32]","6",""]', **sizes),
            operator(2, 9, 2, "aten::empty", 0, 1, input_values='["[4, 99]","3",""]', **sizes),
            operator(3, 200, 90, "quantized::linear_dynamic", **layer),
            operator(4, 205, 2, "aten::empty", 3, 1, input_values='["[7]","6",""]', **sizes),
        ]
    ).operators
    priced = costs(made)
    assert priced.flops[0] == 2 * 4 * 32 * 64 and np.isnan(priced.bytes[0]) and priced.items[0] == 128
    assert np.isnan(priced.flops[3])
