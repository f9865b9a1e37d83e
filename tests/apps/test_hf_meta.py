"""On the meta device: the published parameter counts, whole models without memory, and the memory estimate."""

from __future__ import annotations

import pytest
import torch

from apps import fit
from apps.catalogue import BadRequest, Entry, entries, lookup
from apps.hf.create import FastFill
from apps.meta import OnMeta, PeakMemory

torch.set_num_threads(1)

#: Millions of parameters as the papers, model cards or other implementations give them.
PUBLISHED = {
    "gpt2": 124.4,
    "bert-base": 109.5,
    "resnet-50": 25.56,
    "vit-b-16": 86.57,
    "swin-t": 28.29,
    "llama-1b": 1236,
    "vit-l-16": 304.3,
    "vit-h-14": 632.0,
    "swin-s": 49.61,
    "swin-b": 87.77,
    "detr": 41.5,
    "maskformer": 101.8,
    "segformer": 3.75,
    "gpt2-large": 774.0,
    "gpt2-xl": 1557.6,
    "llama-2-7b": 6738,
    "mixtral-8x7b": 46_703,
    "llama-3.1-8b": 8030,
    "qwen3-0.6b": 596.0,
    "qwen3-4b": 4022,
    "qwen3-30b-a3b": 30_532,
    "gpt-oss-20b": 20_915,
    "gemma-3-1b": 999.9,
    "mamba2-780m": 780.2,
    "modernbert-base": 149.7,
    "minilm-l6": 22.71,
    "whisper-large-v3": 1543.5,
    "wav2vec2-base": 94.4,
    "sam-vit-b": 93.74,
    "dinov3-vit-b": 85.66,
    "rt-detr-r50": 42.9,
    "siglip-base": 203.2,
    "qwen3-vl-2b": 2127.5,
    "sd15-unet": 859.5,
}
HF = [entry for entry in entries() if entry.builder.startswith(("apps.hf.", "apps.diffusion"))]


@pytest.mark.parametrize("entry", HF, ids=lambda e: e.name)
def test_full_size_has_the_published_parameters(entry: Entry) -> None:
    if missing := entry.missing():
        pytest.skip(missing)
    mode = next(m for m in entry.modes if m != "decode")
    built = entry.load()(entry.request(mode=mode, device="meta"))
    assert {p.device.type for p in built.module.parameters()} == {"meta"}
    assert built.parameters == pytest.approx(entry.parameters, rel=0.01)
    if entry.name in PUBLISHED:
        assert built.parameters == pytest.approx(PUBLISHED[entry.name] * 1e6, rel=0.01)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("llama-2-7b", "infer"),
        ("mixtral-8x7b", "decode"),
        ("swin-t", "train"),
        ("qwen3-vl-2b", "infer"),
        ("detr", "infer"),
    ],
)
def test_full_size_steps_on_meta(name: str, mode: str) -> None:
    entry = lookup(name)
    entry.load()(entry.request(mode=mode, device="meta")).step()


def test_attention_on_meta_is_one_operator() -> None:
    entry = lookup("gpt2")
    built = entry.load()(entry.request(device="meta"))
    with torch.profiler.profile() as profile:
        built.step()
    calls = {e.key: e.count for e in profile.key_averages()}
    assert calls["aten::_scaled_dot_product_flash_attention"] == 12
    assert "aten::_softmax" not in calls


def test_conditions_on_meta_data_are_counted() -> None:
    mode = OnMeta()
    with mode:
        flag = bool(torch.ones(3, device="meta").isinf().any())
    assert flag and mode.assumed == 1
    with OnMeta(), pytest.raises(RuntimeError):
        torch.ones(1, device="meta").item()


def test_peak_memory_follows_storages() -> None:
    kilo = 1000
    with PeakMemory() as memory:
        first = torch.empty(kilo, dtype=torch.uint8)
        view = first[10:]
        second = torch.empty(3 * kilo, dtype=torch.uint8)
        del second
        third = torch.empty(kilo, dtype=torch.uint8)
        del first
    assert memory.live == 2 * kilo and memory.peak == 4 * kilo
    del view, third
    assert memory.live == 0


@pytest.mark.parametrize(("name", "mode"), [("gpt2", "train"), ("resnet-50", "train"), ("llama-1b", "infer")])
def test_estimate_agrees_with_the_allocator(name: str, mode: str) -> None:
    """The peak on meta against the peak that the profiler's allocator records see in the same step on the CPU."""
    entry = lookup(name)
    attention = "eager" if mode == "train" else "sdpa"
    request = entry.request(size="tiny", mode=mode, batch=16, attention=attention)
    estimated = fit.estimate(entry, request)
    built = entry.load()(request)
    built.step()
    with torch.profiler.profile(profile_memory=True) as profile:
        built.step()
    live = worst = 0
    for record in profile.profiler.kineto_results.events():
        if record.name() == "[memory]":
            live += record.nbytes()
            worst = max(worst, live)
    assert estimated.peak - estimated.resident == pytest.approx(worst, rel=0.15)


def test_stored_memory_is_what_is_estimated() -> None:
    for name in ("gpt2", "resnet-50", "minilm-l6"):
        entry = lookup(name)
        for mode, stored in entry.memory_gb.items():
            found = fit.estimate(entry, entry.request(mode=mode, device="cuda")).total / 1e9
            assert found == pytest.approx(stored, rel=0.1), (name, mode)


def test_a_batch_that_does_not_fit_is_refused_with_one_that_does() -> None:
    entry, free = lookup("minilm-l6"), 4_000_000_000
    with pytest.raises(fit.DoesNotFit) as error:
        fit.check(entry, entry.request(device="cuda", mode="train", batch=4096), free)
    text = str(error.value)
    assert "4.0 GB are free" in text and "\n" not in text
    batch = int(text.rsplit("batch ", 1)[1].split()[0])
    total = {
        b: fit.estimate(entry, entry.request(device="cuda", mode="train", batch=b)).total for b in (batch, batch * 2)
    }
    assert total[batch] <= free < total[batch * 2] and total[batch] > 0.8 * free


def test_a_model_that_fits_in_no_batch_says_so() -> None:
    entry = lookup("llama-2-7b")
    with pytest.raises(fit.DoesNotFit, match="no batch fits: try size tiny"):
        fit.check(entry, entry.request(device="cuda"), 8_000_000_000)
    assert fit.check(entry, entry.request(device="cuda"), 80_000_000_000) == pytest.approx(16.1e9, rel=0.1)


def test_sizes_that_depend_on_data_take_the_stored_figure() -> None:
    entry = lookup("faster-rcnn")
    request = entry.request(device="cuda")
    with pytest.raises(BadRequest, match="not estimated"):
        fit.estimate(entry, request)
    assert fit.check(entry, request, 10**12) == pytest.approx(entry.memory_gb["infer"] * 1e9)
    with pytest.raises(fit.DoesNotFit, match="batch"):
        fit.check(entry, request, 10**9)


def test_fast_fill_draws_what_was_asked_for() -> None:
    with FastFill():
        big = torch.empty(1200, 2000).normal_(std=0.02)
        cut = torch.nn.init.trunc_normal_(torch.empty(1200, 2000), std=0.02, a=-0.04, b=0.04)
        small = torch.empty(100).uniform_(2, 3)
    assert big.std().item() == pytest.approx(0.02, rel=0.01) and abs(big.mean().item()) < 1e-3
    assert cut.abs().max() <= 0.04 and cut.std().item() == pytest.approx(0.0176, rel=0.02)
    assert 2 <= small.min() < small.max() <= 3
    assert not torch.equal(big[0], big[1])
    assert big.view(-1)[0] == big.view(-1)[FastFill.BLOCK]
