"""Operators of real models on this machine: none is left without a group. Models are tiny and random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from profilers.rules.load import load_rules
from profilers.tables import OPERATORS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY = 64


def _tokens() -> Any:
    return torch.randint(0, VOCABULARY, (2, 12))


def _gpt2() -> tuple[Any, Callable[[], dict[str, Any]]]:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, n_positions=32)
    return transformers.GPT2LMHeadModel(config), lambda: {"input_ids": (ids := _tokens()), "labels": ids}


def _mixtral() -> tuple[Any, Callable[[], dict[str, Any]]]:
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
    )
    return transformers.MixtralForCausalLM(config), lambda: {"input_ids": (ids := _tokens()), "labels": ids}


def _swin() -> tuple[Any, Callable[[], dict[str, Any]]]:
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4
    )
    model = transformers.SwinForImageClassification(config)
    return model, lambda: {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 1])}


def _resnet() -> tuple[Any, Callable[[], dict[str, Any]]]:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    model = transformers.ResNetForImageClassification(config)
    return model, lambda: {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}


def _operators(model: Any, inputs: Callable[[], dict[str, Any]], train: bool) -> pd.DataFrame:
    """One profiled step as a table of operators with parents and self times."""
    optimizer = torch.optim.AdamW(model.parameters()) if train else None

    def step() -> None:
        if optimizer is None:
            with torch.no_grad():
                model(**inputs())
            return
        optimizer.zero_grad()
        model(**inputs()).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    model.train(train)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step()
    events = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CPU]
    rows = {id(event): number for number, event in enumerate(events)}
    return OPERATORS.conform(
        pd.DataFrame(
            {
                "op_id": range(len(events)),
                "parent_id": [rows.get(id(event.cpu_parent), -1) for event in events],
                "name": [event.name for event in events],
                "self_ns": [int(event.self_cpu_time_total * 1000) for event in events],
            }
        )
    )


@pytest.mark.parametrize("train", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("build", [_gpt2, _mixtral, _swin, _resnet], ids=lambda build: build.__name__.strip("_"))
def test_every_operator_has_a_group(build: Callable[[], tuple[Any, Callable[[], dict[str, Any]]]], train: bool) -> None:
    torch.manual_seed(0)
    model, inputs = build()
    done = load_rules().classify_operators(_operators(model, inputs, train))
    time = done.groupby("group", observed=True)["self_ns"].sum()
    assert len(done) > 50 and time.sum() > 0
    unknown = done.loc[done["class"] == "unclassified", ["name", "self_ns"]]
    assert unknown["self_ns"].sum() < 0.02 * time.sum(), sorted(unknown["name"].unique())
    assert set(time.index) & {"matmul", "convolution", "grouped-matmul"}
    if train:
        assert {"optimizer", "loss"} <= set(time.index)
        step = done.loc[done["name"] == "Optimizer.step#AdamW.step", "op_id"]
        below = done[done["parent_id"].isin(step)]
        assert len(below) and set(below["group"]) == {"optimizer"}


def test_the_registry_of_this_torch_is_covered() -> None:
    """Nearly every operator that this torch knows has a group; what has none are TorchScript's string and list methods."""
    rules = load_rules()
    names = sorted({schema.name for schema in torch._C._jit_get_all_schemas()})
    ours = [name for name in names if name.startswith(("aten::", "quantized::", "mkldnn::", "c10d::", "symm_mem::"))]
    unknown = [name for name in ours if not rules.operator(name).rule]
    assert len(ours) > 1500
    assert len(unknown) < 0.06 * len(ours), unknown
