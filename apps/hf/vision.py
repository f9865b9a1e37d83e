"""Image models: classification, and dense or set prediction from one square or rectangular image tensor.

``config``: ``model``, ``arch``, ``image`` (pixels a side, or [height, width]), ``labels`` (number of classes).
"""

from __future__ import annotations

from typing import Any

from apps import steps
from apps.hf.create import config_for, model_for
from apps.workload import Built, Request


def build(request: Request) -> Built:
    """A classifier. ``train``: cross-entropy with random labels."""
    labels = request.config["labels"]
    config = config_for(request.config["model"], request.config.get("arch", {}), num_labels=labels)
    model = model_for(request, config)
    images = pixels(request)
    target = steps.integers(request, labels, request.batch)

    def forward() -> Any:
        return model(pixel_values=images, **({"labels": target} if request.mode == "train" else {}))

    return steps.built(request, model, forward, loss=lambda outputs: outputs.loss, item_name="images")


def pixels(request: Request, channels: int = 3) -> Any:
    """Random images of the configured size: ``batch`` x channels x height x width."""
    side = request.config["image"]
    height, width = side if isinstance(side, list) else (side, side)
    return steps.normal(request, request.batch, channels, height, width)


def encode(request: Request) -> Built:
    """An encoder of images without a head. ``train``: the sum of its outputs."""
    model = model_for(request, config_for(request.config["model"], request.config.get("arch", {})))
    images = pixels(request)
    return steps.built(request, model, lambda: model(pixel_values=images), item_name="images")
