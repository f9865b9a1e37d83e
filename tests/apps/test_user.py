"""The user's own models: a callable in a file, a local model folder, a Hugging Face id."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from apps import user
from apps.catalogue import BadRequest
from apps.workload import Request

torch.set_num_threads(1)


def linear() -> torch.nn.Linear:
    return torch.nn.Linear(4, 2)


def with_example(inputs: object) -> torch.nn.Linear:
    net = linear()
    net.example_inputs = inputs  # type: ignore[assignment]
    return net


@pytest.mark.parametrize(
    ("made", "items"),
    [
        (lambda: (linear(), torch.ones(3, 4)), 3),
        (lambda: (linear(), {"input": torch.ones(2, 4)}), 2),
        (lambda: with_example((torch.ones(5, 4),)), 5),
        (lambda: with_example(lambda: torch.ones(6, 4)), 6),
    ],
    ids=["pair", "keywords", "attribute", "method"],
)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_a_callable_may_give(made: Callable[[], object], items: int, mode: str) -> None:
    built = user.from_module(Request("mine.py:make", mode=mode), made())
    assert built is not None and built.module is not None
    assert (built.items, built.parameters) == (items, 10)
    before = [p.detach().clone() for p in built.module.parameters()]
    built.step()
    moved = any(not torch.equal(a, b) for a, b in zip(before, built.module.parameters(), strict=True))
    assert moved == (mode == "train")


def test_precision_and_meta_device() -> None:
    half = user.from_module(Request("mine.py:pair", dtype="bf16"), (linear(), torch.ones(3, 4)))
    assert half is not None and half.module is not None
    assert half.module.weight.dtype == torch.bfloat16
    half.step()
    meta = user.from_module(Request("mine.py:pair", device="meta"), (linear(), torch.ones(3, 4)))
    assert meta is not None and meta.module is not None
    assert meta.module.weight.device.type == "meta"  # type: ignore[union-attr]
    meta.step()


def test_what_is_no_module_is_left_to_the_caller() -> None:
    for made in (None, 3, (1.0, 2.0), (linear(),), lambda: None):
        assert user.from_module(Request("mine.py:make"), made) is None
    with pytest.raises(BadRequest, match=r"return \(module, inputs\)"):
        user.from_module(Request("mine.py:bare"), linear())


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
