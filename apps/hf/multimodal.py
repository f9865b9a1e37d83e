"""Models of pictures and text together: SigLIP (two encoders) and Qwen3-VL (a language model that sees)."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache

from apps import steps
from apps.catalogue import BadRequest
from apps.hf.create import cache_argument, config_for, model_for
from apps.hf.vision import pixels
from apps.workload import Built, Request


def siglip(request: Request) -> Built:
    """``batch`` pictures against ``batch`` texts of ``seq`` tokens. ``train``: the pairwise sigmoid loss."""
    config = config_for(request.config["model"], request.config.get("arch", {}))
    model = model_for(request, config)
    images = pixels(request)
    tokens = steps.integers(request, config.text_config.vocab_size, request.batch, request.seq or 1)

    def forward() -> Any:
        return model(input_ids=tokens, pixel_values=images, return_loss=request.mode == "train")

    return steps.built(request, model, forward, loss=lambda outputs: outputs.loss, item_name="pairs")


def qwen3_vl(request: Request) -> Built:
    """One picture, then text, ``seq`` tokens together; modes as in :func:`apps.hf.causal.build`.

    ``config``: ``image`` is the picture's side in pixels; every 2 x 2 patches become one token.
    Raises :class:`BadRequest` when the picture alone does not fit in ``seq``.
    """
    config = config_for(request.config["model"], request.config.get("arch", {}))
    model = model_for(request, config)
    vision = config.vision_config
    side = request.config["image"] // vision.patch_size
    visual = (side // vision.spatial_merge_size) ** 2
    text = (request.seq or 1) - visual
    if text < 1:
        raise BadRequest(
            f"{request.workload}: seq {request.seq} is out of range; the picture alone takes {visual} tokens"
        )
    # Ordinary tokens only: special ones would ask for further pictures.
    words = min(config.image_token_id, config.video_token_id, config.vision_start_token_id)
    # The model reads tokens and grid on the host, so on the meta device they stay where they have values.
    host = "cpu" if request.device == "meta" else request.device
    seen = torch.full((request.batch, visual), config.image_token_id, device=host)
    tokens = torch.cat((seen, torch.randint(words, (request.batch, text), device=host)), dim=1)
    width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    patches = steps.normal(request, request.batch * side * side, width)
    kinds = [[1] * visual + [0] * text] * request.batch
    picture: dict[str, Any] = {
        "pixel_values": patches,
        "image_grid_thw": torch.tensor([[1, side, side]] * request.batch, device=host),
        "mm_token_type_ids": torch.tensor(kinds, dtype=torch.int32, device=host),
    }
    decoding = request.mode == "decode"
    if decoding:
        forward = _decode(request, model, config, tokens, picture)
    elif request.mode == "train":

        def forward() -> Any:
            return model(input_ids=tokens, labels=tokens, use_cache=False, **picture)
    elif request.mode == "prefill":

        def forward() -> Any:
            cache = cache_argument(model, DynamicCache(config=config.text_config))
            return model(input_ids=tokens, logits_to_keep=1, **cache, **picture)
    else:

        def forward() -> Any:
            return model(input_ids=tokens, **picture)

    notes: tuple[str, ...] = (f"{visual} of {request.seq} tokens are the picture",)
    if decoding:
        notes += ("cache: transformers' DynamicCache, put back after every step",)
    return steps.built(
        request,
        model,
        forward,
        loss=lambda outputs: outputs.loss,
        item_name="tokens" if decoding else "sequences",
        notes=notes,
    )


def _decode(request: Request, model: Any, config: Any, tokens: torch.Tensor, picture: dict[str, Any]) -> Any:
    cache = DynamicCache(config=config.text_config)
    held = cache_argument(model, cache)
    model.eval()
    with torch.inference_mode():
        steps.on_meta(request, lambda: model(input_ids=tokens, logits_to_keep=1, **held, **picture))()
    last = tokens[:, -1:]
    return steps.same_cache(cache, lambda: model(input_ids=last, **held))
