"""The GEMM study: which calls a recording holds, that each is called as it was, and what is said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profilers.analysis import flops as formulas
from profilers.analysis.calls import Call
from profilers.analysis.gemm_study import STUDY, Case, account, cases, study, sweep
from profilers.analysis.gemms import gemms
from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks
from profilers.analysis.prepare import prepare
from profilers.collectors import gemm_inputs as made_inputs
from profilers.collectors import gemm_study as worker
from profilers.readers import read
from profilers.tables import Recording
from tui.cli.commands import gemms as command
from tui.cli.errors import CommandError

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A convolution, two linear layers, attention and a batched product on the CPU, as PyTorch's own profiler sees them."""
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    conv = torch.nn.Conv2d(4, 8, 3, stride=2, padding=1)
    first, second = torch.nn.Linear(64, 32), torch.nn.Linear(32, 16, bias=False)
    image, rows = torch.randn(2, 4, 16, 16), torch.randn(24, 64)
    q = torch.randn(1, 2, 8, 16)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(3):
            conv(image)
            second(first(rows))
            torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            torch.bmm(q[0], q[0].transpose(1, 2))
    path = tmp_path_factory.mktemp("study") / "trace.json"
    recorded.export_chrome_trace(str(path))
    return prepare(read(path))


def timeable(recording: Recording) -> list[Case]:
    return [case for case in cases(recording) if not case.reason]


def test_every_distinct_call_is_found_with_its_time(model: Recording) -> None:
    found = timeable(model)
    table = gemms(model, Options())
    shaped = table[table["shape"] != ""]  # the rest are wrappers (aten::linear over aten::addmm) with their own time
    assert sum(case.model_us for case in found) == pytest.approx(shaped["time_us"].sum())
    assert {case.label for case in found} == set(shaped["shape"])
    assert all(case.calls == 3 for case in found) and len(found) == 5
    assert all(0 < case.call_us <= case.model_us for case in found)
    assert [case.model_us for case in found] == sorted((case.model_us for case in found), reverse=True)


def test_what_is_no_call_of_a_known_size_says_why(model: Recording) -> None:
    """All GEMM and attention time has a row; the rest here is what the host spends around the operators that work."""
    everything, table = cases(model), gemms(model, Options())
    assert sum(case.model_us for case in everything) == pytest.approx(table["time_us"].sum())
    rest = [case for case in everything if case.reason]
    assert {case.name for case in rest} == set(table[table["shape"] == ""]["op"])
    assert "aten::linear" in {case.name for case in rest}
    assert {case.reason for case in rest} == {"not timed: wrapper"}
    last = account(study(rest, [{"reason": case.reason} for case in rest], None))[-1]
    assert last.startswith(f"  {len(rest)} not timed: wrapper, what these do themselves") and last.endswith("(100.0 %)")


def made_of(case: Case) -> made_inputs.Replay:
    call = Call.parse(case.name, case.shapes, case.dtypes, case.values)
    device = worker.Device("cpu")
    return made_inputs.replay(call, case.question(), made_inputs.Maker(torch, device.device))


def test_calls_are_made_as_recorded(model: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "CPU_CACHE", 2**16)
    device = worker.Device("cpu")
    seen: dict[str, Any] = {}
    for case in timeable(model):
        replay = made_of(case)
        made, named = replay.inputs()
        seen[case.name.removeprefix("aten::")] = replay.op(*made, **named)
        answer = worker.answer(device, case.question())
        assert answer["us"] > 0 and answer["times"] >= worker.LEAST_TIMES and answer["sets"] >= 2, answer
    shapes = {name: tuple((out[0] if isinstance(out, tuple) else out).shape) for name, out in seen.items()}
    assert shapes["addmm"] == (24, 32) and shapes["mm"] == (24, 16) and shapes["bmm"] == (2, 8, 8)
    convolution = next(shape for name, shape in shapes.items() if "conv" in name)
    assert convolution == (2, 8, 8, 8)  # stride and padding as recorded


def recorded(run: Any, folder: Path) -> Recording:
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    return prepare(read(folder / "trace.json"))


def backward() -> None:
    q = torch.randn(1, 4, 8, 16, requires_grad=True)
    kv = torch.randn(1, 4, 12, 16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(q, kv, kv, scale=0.5).sum().backward()
    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    torch.nn.Conv2d(4, 8, 3, stride=2)(torch.randn(2, 4, 9, 9, requires_grad=True)).sum().backward()
    x = torch.randn(5, 8, requires_grad=True)
    torch.nn.Linear(8, 16)(x).pow(2).sum().backward()


def small_numbers() -> None:
    a = torch.randint(-9, 9, (32, 16), dtype=torch.int8)
    torch._int_mm(a, torch.randint(-9, 9, (24, 16), dtype=torch.int8).t())
    torch._weight_int8pack_mm(torch.randn(4, 16).bfloat16(), a, torch.ones(32).bfloat16())


def groups() -> None:
    rows, experts = torch.randn(32, 16).bfloat16(), torch.randn(4, 16, 24).bfloat16()
    torch._grouped_mm(rows, experts, offs=torch.tensor([4, 8, 30, 32], dtype=torch.int32))
    torch.baddbmm(torch.randn(4, 6, 10), torch.randn(4, 6, 8), torch.randn(4, 8, 10))
    torch.mv(torch.randn(6, 8), torch.randn(8))


EXPECTED = {
    backward: {
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        "aten::convolution_backward",
        "aten::addmm",
        "aten::mm",
    },
    small_numbers: {"aten::_int_mm", "aten::_weight_int8pack_mm"},
    groups: {"aten::baddbmm"},
}


@pytest.mark.parametrize("run", EXPECTED, ids=lambda run: run.__name__)
@pytest.mark.filterwarnings("ignore")
def test_gradients_small_numbers_and_groups(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of a real run is made again with results of the recorded call's size, or says why it is not."""
    monkeypatch.setattr(worker, "CPU_CACHE", 2**10)
    recording = recorded(run, tmp_path)
    found = timeable(recording)
    names = {case.name for case in found}
    missing = {name for name in EXPECTED[run] if name not in names}
    assert not missing
    device = worker.Device("cpu")
    answers = [worker.answer(device, case.question()) for case in found]
    for case, answer in zip(found, answers, strict=True):
        assert answer.get("us", 0) > 0, (case.name, answer)
    frame = study(found, answers, None)
    assert account(frame)[0].startswith(f"{len(found)} of {len(found)} rows are timed: 100.0 %")
    everything = cases(recording)
    assert sum(case.model_us for case in everything) == pytest.approx(gemms(recording, Options())["time_us"].sum())


@pytest.mark.filterwarnings("ignore")
def test_an_attention_gradient_is_that_of_its_own_forward(tmp_path: Path) -> None:
    """The same gradients as autograd has for the inputs that were made: nothing of the call is made up."""
    for case in timeable(recorded(backward, tmp_path)):
        if not case.name.endswith("attention_for_cpu_backward"):
            continue
        replay = made_of(case)
        (grad, q, k, v, *_, dropout, causal), named = replay.inputs()
        assert dropout == 0.0
        own = [one.clone().requires_grad_() for one in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*own, is_causal=causal, scale=named["scale"])
        for found, wanted in zip(
            replay.op(grad, q, k, v, *_, dropout, causal, **named), torch.autograd.grad(out, own, grad), strict=True
        ):
            torch.testing.assert_close(found, wanted)


HEADS_FIRST, SEQUENCE_FIRST, ROWS = [2, 4, 8, 16], [2, 8, 4, 16], [2, 4, 8]
GPU_BACKWARD: dict[str, tuple[list[Any], list[str]]] = {
    "_scaled_dot_product_flash_attention_backward": (
        [*[HEADS_FIRST] * 5, ROWS, *[[]] * 9],
        ["", "", "", "", "", "", "", "", "8", "8", "0.", "False", "", "", ""],
    ),
    "_scaled_dot_product_efficient_attention_backward": (
        [*[HEADS_FIRST] * 4, [], HEADS_FIRST, ROWS, *[[]] * 6],
        ["", "", "", "", "", "", "", "", "", "0.", "[True, True, True, False]", "False", ""],
    ),
    "_scaled_dot_product_cudnn_attention_backward": (
        [*[HEADS_FIRST] * 5, ROWS, *[[]] * 10],
        ["", "", "", "", "", "", "", "", "", "", "", "8", "8", "0.", "False", ""],
    ),
    "_flash_attention_backward": (
        [*[SEQUENCE_FIRST] * 5, ROWS, *[[]] * 11],
        ["", "", "", "", "", "", "", "", "8", "8", "0.", "False", "", "", "", "", ""],
    ),
    "_efficient_attention_backward": (
        [*[SEQUENCE_FIRST] * 4, [], SEQUENCE_FIRST, *[[]] * 4, ROWS, *[[]] * 9],
        ["", "", "", "", "", "", "", "", "8", "8", "", "0.", "", "", "0", "False", "", "", "", ""],
    ),
}


@pytest.mark.parametrize("name", GPU_BACKWARD)
def test_the_gpus_attention_backward_by_shapes_alone(name: str) -> None:
    """What no CPU runs, on PyTorch's meta device: the forward pass is called, and its results are what backward takes."""
    shapes, values = GPU_BACKWARD[name]
    operator = getattr(torch.ops.aten, name).default
    arguments = [argument.name for argument in operator._schema.arguments]
    kinds = [
        "" if not shape else "float" if argument == "logsumexp" else "c10::BFloat16"
        for shape, argument in zip(shapes, arguments, strict=True)
    ]
    call = Call.parse(f"aten::{name}", json.dumps(shapes), json.dumps(kinds), json.dumps(values))
    maker = made_inputs.Maker(torch, torch.device("meta"))
    replay = made_inputs.replay(call, {"name": f"aten::{name}"}, maker)
    made, named = replay.inputs()
    found = [tuple(one.shape) for one in replay.op(*made, **named)[:3]]
    assert found == [tuple(shapes[1])] * 3
    assert made[arguments.index("logsumexp")].dtype == torch.float32


def test_grouped_products_have_groups_of_equal_size() -> None:
    shapes, kinds = "[[32,16],[4,16,24],[4],[],[]]", '["c10::BFloat16","c10::BFloat16","int","",""]'
    case = Case("aten::_grouped_mm", shapes, kinds, "", "", "bf16", 1.0, 1.0)
    made, named = made_of(case).inputs()
    assert made[2].tolist() == [8, 16, 24, 32] and made[1].stride(-2) == 1
    assert made_of(case).op(*made, **named).shape == (32, 24)
    device = worker.Device("cpu")
    assert worker.answer(device, case.question())["note"] == "groups of equal size"


@pytest.mark.parametrize("scales", ["[],[]", "[32,1],[1,24]"])
def test_fp8_products_have_scales_that_change_nothing(scales: str) -> None:
    """Scales of the whole or of each row; whether this machine can compute it, it says itself."""
    shapes = f"[[32,16],[16,24],{scales},[],[],[],[]]"
    kinds = '["c10::Float8_e4m3fn","c10::Float8_e4m3fn","float","float","","","Scalar","Scalar"]'
    values = '["","","","","","","15","False"]'
    case = Case("aten::_scaled_mm", shapes, kinds, values, "", "fp8", 1.0, 1.0)
    made, named = made_of(case).inputs()
    assert made[1].stride() == (1, 16) and (made[2] == 1).all() and (made[3] == 1).all()
    try:
        out = made_of(case).op(*made, **named)
    except (RuntimeError, NotImplementedError, ValueError):
        assert worker.answer(worker.Device("cpu"), case.question())["reason"].startswith("not timed: ")
        return
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), made[0].float() @ made[1].float(), atol=0.02, rtol=0.02)
    assert worker.answer(worker.Device("cpu"), case.question())["us"] > 0


def test_layers_with_packed_weights(tmp_path: Path) -> None:
    """Two layers with one recorded call, apart by the output that they allocate."""
    pytest.importorskip("torch.ao.quantization")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layers = torch.nn.ModuleList([torch.nn.Linear(16, 32), torch.nn.Linear(16, 48)])
        layers = torch.ao.quantization.quantize_dynamic(layers, {torch.nn.Linear}, torch.qint8)
        x = torch.randn(4, 16)
        found = timeable(recorded(lambda: [layer(x) for layer in layers], tmp_path))
    assert sorted(case.label for case in found) == ["m=4 n=32 k=16", "m=4 n=48 k=16"]
    device = worker.Device("cpu")
    for case in found:
        made, named = made_of(case).inputs()
        assert made_of(case).op(*made, **named).shape == (4, int(case.label.split()[1][2:]))
        assert worker.answer(device, case.question())["us"] > 0


def test_inputs_rotate_through_more_than_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "CPU_CACHE", 10 * 3 * 64 * 64 * 4)
    case = sweep("cpu", "fp32")[0]
    assert case.label == "m=64 n=64 k=64"
    answer = worker.answer(worker.Device("cpu"), case.question())
    # Two matrices of 16 KiB a set; the cache of 480 KiB twice: 30 sets.
    assert answer["sets"] == 30


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "why"),
    [
        ("aten::resize_", "[[2,2]]", '["float"]', "not an operator"),
        ("my::mm", "[[2,2],[2,2]]", '["float","float"]', "not an operator"),
        ("aten::__class__", "[[2,2]]", '["float"]', "not an operator"),
        ("aten::mm", "[[2,2]]", '["float"]', "mat2 is not recorded"),
        ("aten::mm", "[[2,2],[2,2]]", '["c10::Float8","c10::Float8"]', "inputs of type float8"),
        ("aten::mm", "[[2,3],[2,3]]", '["float","float"]', "cannot be multiplied"),
        ("aten::convolution", "[[1,2,4,4],[2,2,3,3],[2]]", '["float","float","float"]', "is not recorded"),
        ("aten::mm", "[[2,2],[2,2]]", '["int","int"]', "inputs of type int"),
        ("aten::_scaled_mm", "[[16,16],[16,16],[],[]]", '["float","float","float","float"]', "not timed: "),
        ("quantized::linear_dynamic", "[[2,2],[],[]]", '["float","","Scalar"]', "packed weight is not known"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "[[1,2,4,8]]", '["float"]', "is not recorded"),
        (
            "aten::_flash_attention_backward",
            "[[4,2,8],[4,2,8],[4,2,8],[4,2,8],[4,2,8],[2,4],[3],[3]]",
            '["float","float","float","float","float","float","int","int"]',
            "sequences of several lengths",
        ),
        ("aten::mm", "[[900000000000,9],[9,9]]", '["float","float"]', "not timed"),
    ],
)
def test_what_cannot_be_called_says_why(name: str, shapes: str, dtypes: str, why: str) -> None:
    question = {"name": name, "shapes": shapes, "dtypes": dtypes, "values": "", "dtype": "fp32"}
    answer = worker.answer(worker.Device("cpu"), question)
    assert why in answer["reason"] and "\n" not in answer["reason"] and "us" not in answer


def test_kernels_of_equal_calls() -> None:
    assert worker.per_call([1.0, 2.0, 3.0, 4.0], 2) == [3.0, 7.0]
    for lengths in ([], [1.0, 2.0, 3.0]):
        with pytest.raises(worker.NotReplayed, match="kernels were recorded for 2 calls"):
            worker.per_call(lengths, 2)


def test_the_table_by_hand() -> None:
    case = Case(
        "aten::mm",
        "[[1000,1000],[1000,1000]]",
        '["float","float"]',
        "",
        "m=1000 n=1000 k=1000",
        "fp32",
        2e9,
        12e6,
        4,
        800.0,
        200.0,
    )
    peaks = Peaks("x", fp32=40.0, memory_gb_s=1000.0)
    frame = study([case, case], [{"us": 100.0, "times": 40, "sets": 8}, {"reason": "not timed: no"}], peaks)
    assert list(frame.columns) == [column.name for column in STUDY.columns]
    row = frame.iloc[0]
    assert (row["model_us"], row["alone_us"], row["ratio"]) == (200.0, 100.0, 2.0)
    assert (row["tflops_per_s"], row["pct_of_peak"]) == pytest.approx((20.0, 50.0))
    assert row["intensity"] == pytest.approx(2e9 / 12e6) and row["bound"] == "compute"
    assert np.isnan(frame.iloc[1]["alone_us"]) and frame.iloc[1]["measured"] == "not timed: no"
    assert frame["time_us"].tolist() == [800.0, 800.0] and frame["pct"].tolist() == [50.0, 50.0]
    assert account(frame) == [
        "1 of 2 rows are timed: 50.0 % of GEMM and attention kernel time",
        "  1 not timed: no (50.0 %)",
    ]


def test_the_background_is_every_combination() -> None:
    made = sweep("cpu", "bf16")
    assert len(made) == 27 and len({case.label for case in made}) == 27 and all(case.calls == 0 for case in made)
    assert sweep("cpu", "int8") == []
    for case in made:
        work = formulas.work(Call.parse(case.name, case.shapes, case.dtypes, ""))
        assert work is not None and work.flops == case.flops


def test_the_command(model: Recording, tmp_path: Path) -> None:
    from profilers.runs.folder import RunFolder
    from profilers.runs.spec import Spec

    root = tmp_path / "runs"
    run = RunFolder.create(root, Spec(name="tiny", workload="tiny", device="cpu"))
    run.write_window(1, model)
    argv = [sys.executable, "-P", "-m", "tui.cli", "--runs", str(root), "gemms", run.id, "--device", "cpu"]
    done = subprocess.run([*argv, "--top", "2", "--format", "json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    timed = [row for row in rows if row["alone_us"]]
    assert len(timed) == 2 and all(row["alone_us"] > 0 and row["calls"] == 3 for row in timed)
    assert sum(row["measured"] == "not timed: --top 2" for row in rows) == 3
    assert sum(row["pct"] for row in rows) == pytest.approx(100)
    assert "timing the 2 of 5 distinct calls" in done.stderr and f"2 of {len(rows)} rows are timed: " in done.stderr
    wrong = subprocess.run([*argv, "--top", "0"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1


def test_a_timing_process_that_dies_is_one_line() -> None:
    with pytest.raises(CommandError, match="timing ended after 0 of 1"):
        command.timed("cuda:99", sweep("cpu", "fp32")[:1])
