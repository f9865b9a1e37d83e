"""Detection and segmentation from one image: DETR, RT-DETR, MaskFormer, SegFormer, SAM.

``config``: ``model``, ``arch``, ``image`` (pixels a side, or [height, width]), ``labels``.
The matching of predictions to boxes is not part of a training step here: the loss is the sum of the predictions
(SegFormer has its own: cross-entropy on every pixel).
"""

from __future__ import annotations

from typing import Any

import torch

from apps import steps
from apps.hf.create import config_for, model_for
from apps.hf.vision import pixels
from apps.workload import Built, Request


def detr(request: Request) -> Built:
    """Class scores and boxes of DETR from images and an all-ones pixel mask."""
    model = _model(request)
    images = pixels(request)
    mask = torch.ones(images.shape[0], *images.shape[2:], dtype=torch.long, device=request.device)

    def forward() -> Any:
        out = model(pixel_values=images, pixel_mask=mask)
        return out.logits, out.pred_boxes

    return steps.built(request, model, forward, item_name="images")


def rt_detr(request: Request) -> Built:
    """Class scores and boxes of RT-DETR."""
    model = _model(request)
    images = pixels(request)

    def forward() -> Any:
        out = model(pixel_values=images)
        return out.logits, out.pred_boxes

    return steps.built(request, model, forward, item_name="images")


def maskformer(request: Request) -> Built:
    """Class scores and masks of MaskFormer from images and an all-ones pixel mask."""
    model = _model(request)
    images = pixels(request)
    mask = torch.ones(images.shape[0], *images.shape[2:], dtype=torch.long, device=request.device)

    def forward() -> Any:
        out = model(pixel_values=images, pixel_mask=mask)
        return out.class_queries_logits, out.masks_queries_logits

    return steps.built(request, model, forward, item_name="images")


def segformer(request: Request) -> Built:
    """Scores of every class at a quarter of the resolution; training enlarges them and takes cross-entropy."""
    model = _model(request)
    images = pixels(request)
    target = steps.integers(request, request.config["labels"], images.shape[0], *images.shape[2:])

    def forward() -> Any:
        return model(pixel_values=images, **({"labels": target} if request.mode == "train" else {}))

    return steps.built(request, model, forward, loss=lambda outputs: outputs.loss, item_name="images")


def sam(request: Request) -> Built:
    """Masks of SAM for one point an image: image encoder, prompt encoder and mask decoder."""
    config = config_for(request.config["model"], request.config.get("arch", {}))
    model = model_for(request, config)
    images = pixels(request)
    side = images.shape[-1]
    points = torch.full((request.batch, 1, 1, 2), side / 2, device=request.device, dtype=steps.dtype_of(request))
    labels = torch.ones(request.batch, 1, 1, dtype=torch.long, device=request.device)

    def forward() -> Any:
        out = model(pixel_values=images, input_points=points, input_labels=labels)
        return out.pred_masks, out.iou_scores

    return steps.built(request, model, forward, item_name="images")


def _model(request: Request) -> Any:
    arch = request.config.get("arch", {})
    return model_for(request, config_for(request.config["model"], arch, num_labels=request.config["labels"]))
