"""Quantizing a built model in place: what changes, what does not, and what is said of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from profilers.collectors.backends import quantize  # noqa: E402
from profilers.collectors.backends.base import Job, captured_call  # noqa: E402
from profilers.collectors.failures import UsageError  # noqa: E402
from profilers.collectors.protocol import Progress  # noqa: E402
from profilers.collectors.spec import Spec  # noqa: E402


def job(module: object, step=lambda: None, **changes: object) -> Job:
    built = SimpleNamespace(module=module)
    return Job(built, step, Spec(name="q", workload="w", **changes), Path(), torch.device("cpu"), Progress())  # type: ignore[arg-type]


def mixed() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 36, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    ).eval()


def test_pytorchs_own_dynamic_quantization_where_torchao_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao", None)
    model, x = mixed(), torch.randn(4, 3, 8, 8)
    before = model(x)
    made = job(model)
    quantize.apply(made, "int8dyn")
    assert type(model[2]).__module__.startswith("torch.ao.nn.quantized")
    assert isinstance(model[0], torch.nn.Conv2d)
    error = (model(x) - before).norm() / before.norm()
    assert 0 < error < 0.05
    note = next(note for note in made.progress.notes if note.startswith("int8dyn by torch.ao"))
    assert "2 of 2 linear layers quantized; 1 convolutions stay as they are" in note
    sizes = next(note for note in made.progress.notes if note.startswith("weights:"))
    assert sizes == "weights: 0.1 MB before, 0.0 MB after quantizing"


def test_torchao_int8_weights():
    pytest.importorskip("torchao")
    model, x = mixed(), torch.randn(4, 3, 8, 8)
    before = model(x)
    size = quantize.size_bytes(model)
    quantize.apply(job(model), "int8wo")
    with torch.inference_mode():
        error = (model(x) - before).norm() / before.norm()
    assert 0 < error < 0.02
    # A quarter of the weights' bytes; a scale and a zero point a row.
    weights = 4 * (64 * 288 + 640)
    assert size - quantize.size_bytes(model) == weights - weights // 4 - 5 * (64 + 10)


def test_conv1d_becomes_a_linear_layer_of_the_same_result():
    utils = pytest.importorskip("transformers.pytorch_utils")
    torch.manual_seed(0)
    model = torch.nn.Sequential(utils.Conv1D(12, 8), torch.nn.GELU(), utils.Conv1D(8, 12))
    x = torch.randn(2, 5, 8)
    before = model(x)
    assert quantize.straighten(model) == 2 and quantize.straighten(model) == 0
    assert all(isinstance(model[index], torch.nn.Linear) for index in (0, 2))
    torch.testing.assert_close(model(x), before)


@pytest.mark.parametrize(
    ("module", "quant", "says"),
    [
        (None, "int8dyn", "no module to quantize"),
        (torch.nn.Conv2d(1, 1, 1), "int8dyn", "no linear layer to quantize"),
    ],
)
def test_nothing_to_quantize(module, quant, says):
    with pytest.raises(UsageError, match=says):
        quantize.apply(job(module), quant)


def test_int4_on_a_cpu_is_one_line_or_it_works():
    pytest.importorskip("torchao")
    model = torch.nn.Sequential(torch.nn.Linear(256, 128)).to(torch.bfloat16)
    made = job(model, dtype="bf16")
    try:
        quantize.apply(made, "int4wo")
    except UsageError as error:
        assert "int4" in str(error) and "\n" not in str(error)
    else:
        assert any("1 of 1 linear layers" in note for note in made.progress.notes)


def test_the_call_of_a_step_is_captured():
    model = torch.nn.Linear(4, 4)
    x, y = torch.randn(2, 4), torch.randn(3, 4)
    once = job(model, lambda: model(x))
    (args, kwargs) = captured_call(once, model)
    assert args[0] is x and kwargs == {} and once.progress.notes == ()
    twice = job(model, lambda: (model(x), model(input=y)))
    (args, kwargs) = captured_call(twice, model)
    assert args == () and kwargs["input"] is y and "2 times" in twice.progress.notes[0]
    assert captured_call(job(model), model) is None
    assert not model._forward_pre_hooks
