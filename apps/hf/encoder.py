"""Text encoders with a masked-language-model head."""

from __future__ import annotations

from apps import steps
from apps.hf.create import config_for, model_for
from apps.workload import Built, Request


def build(request: Request) -> Built:
    """``batch`` x ``seq`` tokens without padding. ``train``: cross-entropy on every position."""
    config = config_for(request.config["model"], request.config.get("arch", {}))
    model = model_for(request, config)
    tokens = steps.integers(request, config.vocab_size, request.batch, request.seq or 1)
    labels = tokens if request.mode == "train" else None
    return steps.built(
        request,
        model,
        lambda: model(input_ids=tokens, **({} if labels is None else {"labels": labels})),
        loss=lambda outputs: outputs.loss if "loss" in outputs else steps.sum_of(outputs),
        item_name="sequences",
    )
