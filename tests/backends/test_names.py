"""What a backend or a quantization may be called, and what is said of one that cannot be."""

from __future__ import annotations

import pytest

from profilers.collectors.backends import names


@pytest.mark.parametrize(
    ("text", "family", "mode", "written"),
    [
        ("eager", "eager", "default", "eager"),
        ("compile", "inductor", "default", "inductor"),
        ("Inductor:max-autotune", "inductor", "max-autotune", "inductor:max-autotune"),
        ("ort:cuda", "onnxruntime", "cuda", "onnxruntime:cuda"),
        ("trt", "tensorrt", "default", "tensorrt"),
    ],
)
def test_names_and_modes(text, family, mode, written):
    found = names.parse(text)
    assert (found.family, found.mode, str(found)) == (family, mode, written)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("inductr", "did you mean inductor"),
        ("tvm", "there are eager, inductor, onnxruntime, tensorrt"),
        ("inductor:fast", "inductor has no mode 'fast'"),
        ("inductor:max-autotun", "did you mean max-autotune"),
        ("eager:", "eager has no mode ''"),
    ],
)
def test_unknown_backends_name_what_there_is(text, says):
    with pytest.raises(names.UnknownName, match=says) as raised:
        names.parse(text)
    assert "\n" not in str(raised.value)


def test_quantizations():
    assert names.parse_quant("NF4") == "nf4"
    assert names.parse_quant("none") == "" == names.parse_quant("")
    with pytest.raises(names.UnknownName, match="did you mean int8wo"):
        names.parse_quant("int8w")


@pytest.mark.parametrize(
    ("backend", "quant", "mode", "device", "says"),
    [
        ("onnxruntime", "", "train", "cpu", "inference only"),
        ("onnxruntime", "nf4", "infer", "cpu", "not for onnxruntime"),
        ("onnxruntime:cuda", "", "infer", "cpu", "needs a GPU"),
        ("tensorrt", "", "infer", "cpu", "needs a GPU"),
        ("tensorrt", "int8dyn", "infer", "cuda:0", "not for tensorrt"),
        ("eager", "int8wo", "train", "cpu", "for inference"),
        ("eager", "fp8", "infer", "cpu", "compute capability 8.9"),
    ],
)
def test_what_does_not_go_together(backend, quant, mode, device, says):
    said = names.unfit(names.parse(backend), quant, mode, device)
    assert says in said and "\n" not in said


def test_what_does_go_together():
    for backend, quant, mode in (
        ("inductor", "int8dyn", "infer"),
        ("onnxruntime", "int8dyn", "infer"),
        ("inductor", "", "train"),
    ):
        assert names.unfit(names.parse(backend), quant, mode, "cpu") == ""
    assert names.unfit(names.parse("tensorrt"), "", "infer", "cuda:1") == ""


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setattr(names, "find_spec", lambda name: None if name in ("onnxscript", "bitsandbytes") else object())
    assert names.missing(names.parse("onnxruntime"), "") == (
        "--backend onnxruntime needs onnxscript: pip install 'kernelscope[ort]'"
    )
    assert "kernelscope[quant]" in names.missing(names.parse("eager"), "nf4")
    assert names.missing(names.parse("eager"), "int8wo") == ""
    # PyTorch itself stands in for torchao here, and ONNX Runtime quantizes with its own tools.
    monkeypatch.setattr(names, "find_spec", lambda name: None if name == "torchao" else object())
    assert names.missing(names.parse("eager"), "int8dyn") == ""
    assert names.missing(names.parse("onnxruntime"), "int8dyn") == ""


def test_whose_profile_a_window_is():
    assert names.own_profile("onnxruntime", "cpu") and names.own_profile("ort:cpu", "cuda:0")
    assert not names.own_profile("onnxruntime", "cuda:0")
    assert names.own_profile("trt:layers", "cuda:0") == "tensorrt" and not names.own_profile("tensorrt", "cuda:0")
    assert not names.own_profile("inductor", "cpu") and not names.own_profile("no such thing", "cpu")


def test_every_spelled_name_is_understood():
    spelled = names.spelled()
    assert {"eager", "inductor", "inductor:reduce-overhead", "tensorrt:layers"} <= set(spelled)
    assert [str(names.parse(text)) for text in spelled] == list(spelled)
