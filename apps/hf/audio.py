"""Speech models: Whisper (log-mel frames to tokens) and wav2vec 2.0 (raw samples to letters)."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache

from apps import steps
from apps.hf.create import cache_argument, config_for, model_for
from apps.workload import Built, Request


def whisper(request: Request) -> Built:
    """``infer``: encoder over 30 s of mel frames, decoder over ``seq`` tokens. ``train``: next-token cross-entropy.
    ``decode``: one token of the decoder after ``seq`` cached ones, the encoder's keys and values cached too."""
    config = config_for(request.config["model"], request.config.get("arch", {}))
    model = model_for(request, config)
    # Two frames of 10 ms become one position of the encoder.
    frames = steps.normal(request, request.batch, config.num_mel_bins, 2 * config.max_source_positions)
    tokens = steps.integers(request, config.vocab_size, request.batch, request.seq or 1)
    if request.mode == "decode":
        forward = _decode(request, model, config, frames, tokens)
    elif request.mode == "train":

        def forward() -> Any:
            return model(input_features=frames, labels=tokens, use_cache=False)
    else:

        def forward() -> Any:
            return model(input_features=frames, decoder_input_ids=tokens)

    decoding = request.mode == "decode"
    return steps.built(
        request,
        model,
        forward,
        loss=lambda outputs: outputs.loss,
        item_name="tokens" if decoding else "clips",
        notes=("cache: transformers' DynamicCache, put back after every step",) if decoding else (),
    )


def _decode(request: Request, model: Any, config: Any, frames: torch.Tensor, tokens: torch.Tensor) -> Any:
    cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    held = cache_argument(model, cache)
    model.eval()
    with torch.inference_mode():
        encoded = model.get_encoder()(frames)
        steps.on_meta(request, lambda: model(encoder_outputs=encoded, decoder_input_ids=tokens, **held))()
    last = tokens[:, -1:]
    # Only the decoder's own attention appends; the cross-attention reads what is cached.
    return steps.same_cache(
        cache.self_attention_cache, lambda: model(encoder_outputs=encoded, decoder_input_ids=last, **held)
    )


def wav2vec2(request: Request) -> Built:
    """Letter scores for ``seq`` samples at 16 kHz. ``train``: CTC loss against random letters, one for four frames."""
    config = config_for(request.config["model"], request.config.get("arch", {}))
    notes: tuple[str, ...] = ()
    if request.device == "meta" and request.mode == "train":
        config.apply_spec_augment = False
        notes = ("masking of time spans left out: its size depends on random data",)
    model = model_for(request, config)
    samples = steps.normal(request, request.batch, request.seq or 1)
    frames = int(model._get_feat_extract_output_lengths(request.seq or 1))
    length = max(1, frames // 4)
    # The first letter of the alphabet is the CTC blank.
    letters = 1 + steps.integers(request, config.vocab_size - 1, request.batch, length)

    def ctc(outputs: Any) -> torch.Tensor:
        scores = torch.nn.functional.log_softmax(outputs.logits, dim=-1, dtype=torch.float32).transpose(0, 1)
        sizes = [scores.shape[0]] * request.batch, [length] * request.batch
        return torch.nn.functional.ctc_loss(scores, letters, *sizes, zero_infinity=True)

    return steps.built(request, model, lambda: model(input_values=samples), loss=ctc, item_name="clips", notes=notes)
