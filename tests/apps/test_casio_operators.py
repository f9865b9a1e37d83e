"""The operators that each application is known for, counted in one profiled tiny step."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from apps import catalogue


def operators(name: str, mode: str | None = None, size: str = "tiny") -> Counter[str]:
    torch.set_num_threads(1)
    entry = catalogue.lookup(name)
    built = entry.load()(entry.request(size=size, mode=mode))
    built.step()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        built.step()
    return Counter({e.key: e.count for e in recorded.key_averages()})


@pytest.mark.parametrize(
    ("name", "mode", "wanted"),
    [
        (
            "meshgraphnets-cfd",
            None,
            "_unique2 index_add_ _index_put_impl_ cat native_layer_norm linalg_vector_norm one_hot",
        ),
        ("meshgraphnets-cloth", None, "_unique2 index_add_ where randn_like threshold_backward"),
        ("muzero", "train", "convolution native_batch_norm avg_pool2d index_put_ scatter repeat log elu min max"),
        ("nerf", "train", "searchsorted gather sort cumprod cumsum sin cos exp sigmoid rand_like"),
        ("pinn-navier-stokes", None, "tanh tanh_backward mm addmm"),
        ("pinn-allen-cahn", None, "tanh tanh_backward pow"),
        (
            "qdtrack",
            None,
            "sort topk nonzero randperm index index_select index_put_ triu argsort equal sigmoid "
            "native_group_norm upsample_nearest2d logsumexp binary_cross_entropy_with_logits smooth_l1_loss",
        ),
        ("swinv2-b", "train", "roll native_layer_norm softmax gelu linalg_vector_norm bernoulli_ clamp"),
        ("tabnet", None, "sort cumsum gather glu log rsqrt clamp"),
        ("tacotron2", None, "lstm embedding bmm softmax stft tanh masked_fill_ convolution item bernoulli_"),
        ("wavenet", None, "pad reshape transpose convolution one_hot sigmoid tanh sign log1p"),
        ("gpt3-layer", "train", "bmm softmax masked_fill tanh pow native_layer_norm"),
        ("ssd-resnet34", "infer", "sort softmax triu where cat max_pool2d"),
        ("dlrm", "train", "embedding_bag bmm index sigmoid"),
        ("3d-unet", "train", "instance_norm cat convolution"),
        ("rnn-t", "infer", "lstm item argmax embedding"),
        ("rnn-t", "train", "lstm expand cat embedding_dense_backward"),
    ],
)
def test_known_operators_occur(name: str, mode: str | None, wanted: str) -> None:
    counted = operators(name, mode)
    missing = [w for w in wanted.split() if not counted[f"aten::{w}"]]
    assert missing == []


def test_tabnet_trains_nothing() -> None:
    counted = operators("tabnet")
    assert not [name for name in counted if "Optimizer" in name or "Backward" in name or "_foreach" in name]
    # Six steps, the last without a mask: five sparsemaxes.
    assert counted["aten::sort"] == counted["aten::cumsum"] == 5


def test_wavenet_moves_time_into_the_batch_and_back() -> None:
    counted = operators("wavenet")
    dilated = 2 * 2 * 5  # stacks, filter and gate, dilations above one
    assert counted["aten::pad"] >= dilated
    moves = counted["aten::transpose"] + counted["aten::reshape"] + counted["aten::constant_pad_nd"]
    assert moves > 3 * counted["aten::convolution"]


def test_optimizers_are_those_of_the_study() -> None:
    assert any("Adam" in name for name in operators("nerf", "train"))
    assert any("SGD" in name for name in operators("muzero", "train"))
    assert not any("Optimizer" in name for name in operators("muzero", "infer"))


def test_tacotron_loops_over_frames() -> None:
    counted = operators("tacotron2")
    assert counted["aten::lstm_cell"] == 2 * 20
