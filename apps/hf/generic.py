"""Any model that transformers knows, from its configuration: the inputs are guessed from what kind of model it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto as auto

from apps import steps
from apps.catalogue import BadRequest
from apps.hf import causal
from apps.hf.create import model_for
from apps.workload import Built, Request

#: Tried in this order when a configuration names no class of its own.
_TASKS = (
    auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES,
    auto.MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES,
    auto.MODEL_FOR_CTC_MAPPING_NAMES,
    auto.MODEL_MAPPING_NAMES,
)
SAMPLES = 16_000
TOKENS = 128


def class_for(config: Any) -> str:
    """Name of the model class of a configuration: the one it names, else the first task that has one for its type.
    Raises :class:`BadRequest` when transformers has none."""
    for name in getattr(config, "architectures", None) or ():
        if hasattr(transformers, name):
            return str(name)
    for task in _TASKS:
        found = task.get(config.model_type)
        if found:
            return found if isinstance(found, str) else str(found[0])
    raise BadRequest(f"transformers has no model class for {config.model_type!r}")


def build(request: Request, config: Any, pretrained: str | None = None, local_only: bool = True) -> Built:
    """A step of this configuration's model, with random weights, or those of ``pretrained`` (safetensors only).

    Text is ``batch`` x ``seq`` (128 tokens by default), pictures have the configuration's size, sound is ``seq``
    samples (one second by default). ``train`` takes the model's loss where tokens are also the labels, else the sum of
    the outputs. Modes ``prefill`` and ``decode`` are for decoder-only language models.
    Raises :class:`BadRequest` where the inputs cannot be guessed.
    """
    name = class_for(config)
    if pretrained is None:
        model = model_for(request, config, name)
        notes: tuple[str, ...] = (f"{name}, random weights",)
    else:
        cls = getattr(transformers, name)
        options: dict[str, Any] = {"attn_implementation": "eager"} if request.attention == "eager" else {}
        model = cls.from_pretrained(
            pretrained, dtype=steps.dtype_of(request), local_files_only=local_only, use_safetensors=True, **options
        ).to(request.device)
        notes = (f"{name}, weights of {pretrained}",)
    text = config.get_text_config()
    if auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type) == name and not config.is_encoder_decoder:
        return causal.run(_with_seq(request, text), model, text, notes)
    if request.mode in ("prefill", "decode"):
        raise BadRequest(f"{request.workload}: {name} is not a decoder-only language model; choose mode infer or train")
    inputs, items = _inputs(request, model, config, text)
    if text is not config and "input_ids" in inputs:
        notes += ("text only",)

    def loss(outputs: Any) -> torch.Tensor:
        return outputs.loss if outputs.get("loss") is not None else steps.sum_of(outputs)

    return steps.built(request, model, lambda: model(**inputs), loss=loss, item_name=items, notes=notes)


def _with_seq(request: Request, text: Any) -> Request:
    limit = getattr(text, "max_position_embeddings", None)
    seq = request.seq or min(TOKENS, limit or TOKENS)
    if limit and seq > limit:
        raise BadRequest(f"{request.workload}: seq {seq} is out of range; choose 1 to {limit}")
    return replace(request, seq=seq)


def _inputs(request: Request, model: Any, config: Any, text: Any) -> tuple[dict[str, Any], str]:
    kind = model.main_input_name
    if kind == "input_ids":
        request = _with_seq(request, text)
        tokens = steps.integers(request, text.vocab_size, request.batch, request.seq or 1)
        inputs = {"input_ids": tokens}
        if config.is_encoder_decoder:
            inputs["decoder_input_ids"] = tokens
        return inputs, "sequences"
    if kind == "pixel_values":
        vision = getattr(config, "vision_config", config)
        side = getattr(vision, "image_size", None) or 224
        height, width = side if isinstance(side, (list, tuple)) else (side, side)
        channels = getattr(vision, "num_channels", 3)
        return {"pixel_values": steps.normal(request, request.batch, channels, height, width)}, "images"
    if kind == "input_values":
        return {"input_values": steps.normal(request, request.batch, request.seq or SAMPLES)}, "clips"
    if kind == "input_features" and hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):
        features = steps.normal(request, request.batch, config.num_mel_bins, 2 * config.max_source_positions)
        start = torch.zeros(request.batch, 1, dtype=torch.long, device=request.device)
        return {"input_features": features, "decoder_input_ids": start}, "clips"
    raise BadRequest(
        f"{request.workload}: inputs of {type(model).__name__} ({kind}) are not known here; "
        "write a small file.py:callable that returns (module, inputs)"
    )
