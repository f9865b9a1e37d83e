"""The user's own models: a callable in a file, a local model folder, a Hugging Face id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from apps import user
from apps.catalogue import BadRequest
from apps.workload import Request

torch.set_num_threads(1)

FILE = """
import torch
from apps.workload import Built
import neighbour

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

def pair():
    return Net(), torch.ones(3, 4)

def keywords(request):
    return Net(), {"input": torch.ones(request.batch, 4)}

def attribute():
    net = Net()
    net.example_inputs = (torch.ones(5, 4),)
    return net

def factory():
    def step():
        neighbour.calls.append(1)
    return step

def step():
    neighbour.calls.append(2)

def built(request):
    return Built(step=lambda: None, items=7)

def bare():
    return Net()

def many(a, b):
    return None

module = (Net(), torch.ones(2, 4))
number = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "neighbour.py").write_text("calls = []\n")
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.delitem(__import__("sys").modules, "neighbour", raising=False)
    return tmp_path / "mine.py"


def test_names_of_callables() -> None:
    assert user.is_callable_name("a/b.py:make") and user.is_callable_name("b.py:x")
    assert not user.is_callable_name("train.py") and not user.is_callable_name("org/model:tag")


@pytest.mark.parametrize(
    ("name", "items"), [("pair", 3), ("keywords", 2), ("attribute", 5), ("built", 7), ("module", 2), ("Net", None)]
)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_a_callable_may_give(file: Path, name: str, items: int | None, mode: str) -> None:
    request = Request(f"{file}:{name}", mode=mode, batch=2)
    if items is None:
        with pytest.raises(BadRequest, match="without inputs"):
            user.from_file(request)
        return
    built = user.from_file(request)
    assert built.items == items
    before = [p.detach().clone() for p in built.module.parameters()] if built.module else []
    built.step()
    if built.module is not None:
        assert built.parameters == 10
        moved = any(not torch.equal(a, b) for a, b in zip(before, built.module.parameters(), strict=True))
        assert moved == (mode == "train")


def test_precision_and_meta_device(file: Path) -> None:
    half = user.from_file(Request(f"{file}:pair", dtype="bf16"))
    assert half.module.weight.dtype == torch.bfloat16
    half.step()
    meta = user.from_file(Request(f"{file}:pair", device="meta"))
    assert meta.module.weight.device.type == "meta"
    meta.step()


@pytest.mark.parametrize(("name", "calls"), [("factory", [1, 1]), ("step", [2, 2, 2])])
def test_step_functions(file: Path, name: str, calls: list[int]) -> None:
    built = user.from_file(Request(f"{file}:{name}"))
    built.step()
    built.step()
    import neighbour  # type: ignore[import-not-found]

    assert neighbour.calls == calls


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "it has .*pair"),
        ("many", "takes 2 arguments"),
        ("bare", "return \\(module, inputs\\)"),
        ("number", "int"),
    ],
)
def test_what_it_may_not_be(file: Path, name: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        user.from_file(Request(f"{file}:{name}"))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="there is no file"):
        user.from_file(Request(f"{tmp_path}/none.py:x"))


GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 64, "n_positions": 64}
CONFIGS = {
    "gpt2": GPT2 | {"bos_token_id": 0, "eos_token_id": 0},
    "bert": {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 64,
    },
    "vit": {
        "model_type": "vit",
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": 32,
        "patch_size": 8,
    },
    "t5": {
        "model_type": "t5",
        "d_model": 32,
        "d_ff": 32,
        "num_layers": 1,
        "num_heads": 2,
        "d_kv": 16,
        "vocab_size": 64,
    },
}


def folder(tmp_path: Path, name: str) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    return tmp_path


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_with_a_configuration_is_enough(tmp_path: Path, name: str, mode: str) -> None:
    built = user.from_hub(Request(str(folder(tmp_path, name)), mode=mode, seq=None))
    built.step()
    assert "random weights" in built.notes[0]


def test_a_language_model_of_the_hub_decodes(tmp_path: Path) -> None:
    built = user.from_hub(Request(str(folder(tmp_path, "gpt2")), mode="decode", seq=16))
    built.step()
    assert built.item_name == "tokens"
    with pytest.raises(BadRequest, match="1 to 64"):
        user.from_hub(Request(str(tmp_path), seq=100))


def test_modes_that_a_model_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="choose mode infer or train"):
        user.from_hub(Request(str(folder(tmp_path, "vit")), mode="decode"))


def test_pretrained_weights_come_from_the_folder(tmp_path: Path) -> None:
    first = user.from_hub(Request(str(folder(tmp_path, "gpt2")), seed=3))
    with pytest.raises(BadRequest, match="no weights found"):
        user.from_hub(Request(str(tmp_path)), weights="pretrained")
    first.module.save_pretrained(tmp_path)
    again = user.from_hub(Request(str(tmp_path), seed=4), weights="pretrained")
    assert torch.equal(first.module.transformer.wte.weight, again.module.transformer.wte.weight)
    again.step()


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"config\.json"):
        user.from_hub(Request(str(tmp_path)))
    with pytest.raises(BadRequest, match="--download"):
        user.from_hub(Request("some-org/some-model-that-is-nowhere"))
    with pytest.raises(BadRequest, match="random or pretrained"):
        user.from_hub(Request("x/y"), weights="best")
