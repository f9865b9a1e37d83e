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
    """``infer``: all logits of ``batch`` x ``seq`` tokens, with the model's defaults (most fill a cache).
    ``train``: next-token cross-entropy.
    ``prefill``: fills a cache with ``seq`` tokens, logits of the last one. ``decode``: one token after ``seq`` cached ones.
    """
    config = config_for(request.config["model"], request.config.get("arch", {}))
    if experts := request.config.get("experts"):
        config._experts_implementation = experts
    return run(request, model_for(request, config), config)


def run(request: Request, model: Any, config: Any, notes: tuple[str, ...] = ()) -> Built:
    """The modes of :func:`build` on a model that is there already; ``config`` is its text configuration."""
    tokens = steps.integers(request, config.vocab_size, request.batch, request.seq or 1)
    if is_sparse(config):
        notes += (f"experts: {config._experts_implementation}",)
    item_name = "sequences"
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
        item_name = "tokens"
        notes += ("cache: transformers' DynamicCache, put back after every step",)
    return steps.built(
        request,
        model,
        forward,
        loss=lambda outputs: outputs.loss,
        item_name=item_name,
        notes=notes,
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
