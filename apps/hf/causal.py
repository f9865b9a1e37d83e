"""Decoder-only language models: forward, training, prefill and decode.

``config``: ``model`` (a transformers class), ``arch`` (arguments of its configuration), ``experts`` (implementation of
mixture-of-experts layers, transformers' names).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache

from apps import steps
from apps.hf.create import cache_argument, config_for, is_sparse, model_for
from apps.workload import Built, Request


def build(request: Request) -> Built:
    """``infer``: all logits of ``batch`` x ``seq`` tokens, with the defaults of the model (most fill a cache). ``train``: next-token cross-entropy.
    ``prefill``: fills a cache with ``seq`` tokens, logits of the last one. ``decode``: one token after ``seq`` cached ones.
    """
    config = config_for(request.config["model"], request.config.get("arch", {}))
    if experts := request.config.get("experts"):
        config._experts_implementation = experts
    model = model_for(request, config)
    seq = request.seq or 1
    tokens = steps.integers(request, config.vocab_size, request.batch, seq)
    notes: list[str] = []
    if is_sparse(config):
        notes.append(f"experts: {config._experts_implementation}")
    items, item_name = request.batch, "sequences"
    if request.mode == "train":

        def forward() -> Any:
            return model(input_ids=tokens, labels=tokens, use_cache=False)
    elif request.mode == "infer":

        def forward() -> Any:
            return model(input_ids=tokens)
    elif request.mode == "prefill":

        def forward() -> Any:
            return model(input_ids=tokens, logits_to_keep=1, **cache_argument(model, DynamicCache(config=config)))
    else:
        forward = _decode(request, model, config, tokens)
        items, item_name = request.batch, "tokens"
        notes.append("cache: transformers' DynamicCache, put back after every step")
    return steps.built(
        request,
        model,
        forward,
        loss=lambda outputs: outputs.loss,
        items=items,
        item_name=item_name,
        notes=tuple(notes),
    )


def _decode(request: Request, model: Any, config: Any, tokens: torch.Tensor) -> Any:
    cache = DynamicCache(config=config)
    held = cache_argument(model, cache)
    model.eval()
    with torch.inference_mode():
        steps.on_meta(request, lambda: model(input_ids=tokens, logits_to_keep=1, **held))()
    last = tokens[:, -1:]
    return steps.same_cache(cache, lambda: model(input_ids=last, **held))


def layers(request: Request) -> Built:
    """Decoder layers alone, on a random activation of ``batch`` x ``seq`` x hidden: no embedding, no head.
    ``train``: the sum of the outputs."""
    config = config_for(request.config["model"], request.config.get("arch", {}))
    model = model_for(request, config)
    activation = steps.normal(request, request.batch, request.seq or 1, config.hidden_size)
    return steps.built(
        request,
        model,
        lambda: model(inputs_embeds=activation, use_cache=False).last_hidden_state,
        item_name="sequences",
        notes=(f"experts: {config._experts_implementation}",) if is_sparse(config) else (),
    )
