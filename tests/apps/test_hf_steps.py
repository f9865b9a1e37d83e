"""Every workload built on transformers or diffusers steps on the CPU in its tiny size, in each of its modes."""

from __future__ import annotations

import gc

import pytest
import torch

from apps.catalogue import BadRequest, Entry, entries, lookup

torch.set_num_threads(1)

CASES = [
    pytest.param(entry, mode, id=f"{entry.name}-{mode}")
    for entry in entries()
    if entry.builder.startswith(("apps.hf.", "apps.diffusion"))
    for mode in entry.modes
]


@pytest.mark.parametrize(("entry", "mode"), CASES)
def test_tiny_steps(entry: Entry, mode: str) -> None:
    if missing := entry.missing():
        pytest.skip(missing)
    request = entry.request(size="tiny", mode=mode)
    built = entry.load()(request)
    assert built.module is not None and built.parameters < 1_000_000
    assert (built.items, built.item_name) == (request.batch, "tokens" if mode == "decode" else entry.items)
    before = [p.detach().clone() for p in built.module.parameters()]
    built.step()
    moved = sum(not torch.equal(a, b) for a, b in zip(before, built.module.parameters(), strict=True))
    if mode == "train":
        # Parts that a step does not reach (a padding row, a mask token) may stay; the body moves.
        assert moved > 0.6 * len(before)
        assert all(p.isfinite().all() for p in built.module.parameters())
    else:
        assert moved == 0
    built.step()
    gc.collect()


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_precision_and_attention_reach_the_model(dtype: str, attention: str) -> None:
    entry = lookup("gpt2")
    built = entry.load()(entry.request(size="tiny", dtype=dtype, attention=attention))
    assert {str(p.dtype) for p in built.module.parameters()} == {
        f"torch.{'bfloat16' if dtype == 'bf16' else 'float16'}"
    }
    with torch.profiler.profile() as profile:
        built.step()
    fused = any("scaled_dot_product" in e.key for e in profile.key_averages())
    assert fused == (attention == "sdpa")


def test_the_same_seed_gives_the_same_weights_and_inputs() -> None:
    entry = lookup("bert-base")
    one, two, other = (entry.load()(entry.request(size="tiny", seed=s)).module for s in (1, 1, 2))
    state = [m.state_dict() for m in (one, two, other)]
    assert all(torch.equal(a, state[1][k]) for k, a in state[0].items())
    assert not all(torch.equal(a, state[2][k]) for k, a in state[0].items())


@pytest.mark.parametrize(
    "name", ["gpt2", "gpt-oss-20b", "gemma-3-1b", "mamba2-780m", "whisper-large-v3", "qwen3-vl-2b"]
)
def test_every_decode_step_is_the_same_work(name: str) -> None:
    entry = lookup(name)
    built = entry.load()(entry.request(size="tiny", mode="decode"))
    shapes = []
    for _ in range(3):
        with torch.profiler.profile(record_shapes=True) as profile:
            built.step()
        shapes.append([(e.name, str(e.input_shapes)) for e in profile.events() if e.name.startswith("aten::")])
    assert shapes[1] == shapes[2] and len(shapes[1]) > 20


def test_decode_reads_the_whole_cache_and_prefill_makes_it() -> None:
    entry = lookup("llama-1b")

    def lengths(mode: str) -> set[int]:
        built = entry.load()(entry.request(size="tiny", mode=mode, seq=24))
        with torch.profiler.profile(record_shapes=True) as profile:
            built.step()
        calls = [e for e in profile.events() if e.name == "aten::scaled_dot_product_attention"]
        assert len(calls) == 2
        return {(c.input_shapes[0][2], c.input_shapes[1][2]) for c in calls}

    assert lengths("decode") == {(1, 25)}
    assert lengths("prefill") == {(24, 24)}


def test_mixtures_of_experts_say_how_they_are_run() -> None:
    entry = lookup("mixtral-8x7b")
    built = entry.load()(entry.request(size="tiny"))
    assert any(note.startswith("experts: ") for note in built.notes)


OPERATORS = {
    "gpt2": {"aten::addmm", "aten::native_layer_norm", "aten::tanh", "aten::embedding"},
    "llama-1b": {"aten::mm", "aten::rsqrt", "aten::silu", "aten::neg", "aten::cat"},
    "resnet-50": {"aten::convolution", "aten::native_batch_norm", "aten::max_pool2d_with_indices"},
    "swin-t": {"aten::roll", "aten::native_layer_norm", "aten::gelu"},
    "segformer": {"aten::convolution", "aten::upsample_bilinear2d"},
    "mixtral-8x7b": {"aten::topk", "aten::_grouped_mm", "aten::histc"},
    "rt-detr-r50": {"aten::grid_sampler_2d", "aten::topk", "aten::gather"},
    "mamba2-780m": {"aten::cumsum", "aten::exp", "aten::softplus", "aten::_convolution"},
    "wav2vec2-base": {"aten::convolution", "aten::native_group_norm"},
}


@pytest.mark.parametrize("name", OPERATORS)
def test_tiny_keeps_the_operator_mix(name: str) -> None:
    entry = lookup(name)
    built = entry.load()(entry.request(size="tiny"))
    with torch.profiler.profile() as profile:
        built.step()
    missing = OPERATORS[name] - {e.key for e in profile.key_averages()}
    assert not missing


def test_a_picture_needs_room_in_the_sequence() -> None:
    entry = lookup("qwen3-vl-2b")
    with pytest.raises(BadRequest, match="the picture alone takes 16 tokens"):
        entry.load()(entry.request(size="tiny", seq=16))
