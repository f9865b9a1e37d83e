"""Boxes as (n, 4) float32 tensors of left, top, right, bottom in pixels: anchors, overlap, encoding, clipping."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Widths and heights change by at most this factor in one decoding (1000 / 16, the usual bound).
LARGEST_LOG_RATIO = math.log(1000 / 16)


def area(boxes: Tensor) -> Tensor:
    """(n,) square pixels."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def iou(one: Tensor, other: Tensor) -> Tensor:
    """(n, m) intersection over union."""
    low = torch.maximum(one[:, None, :2], other[None, :, :2])
    high = torch.minimum(one[:, None, 2:], other[None, :, 2:])
    overlap = (high - low).clamp(min=0).prod(dim=-1)
    union = area(one)[:, None] + area(other)[None, :] - overlap
    return overlap / union.clamp(min=1e-6)


def anchors(
    shapes: Sequence[tuple[int, int]],
    strides: Sequence[int],
    scale: float,
    ratios: Sequence[float],
    device: str | torch.device,
) -> list[Tensor]:
    """Anchors of each level (height * width * ratios, 4), ratio fastest. ``scale`` times the stride is an anchor's
    side; ``ratios`` are height over width at equal area."""
    root = torch.tensor(ratios, device=device).sqrt()
    levels = []
    for (height, width), stride in zip(shapes, strides, strict=True):
        half_w, half_h = stride * scale / root / 2, stride * scale * root / 2
        base = torch.stack([-half_w, -half_h, half_w, half_h], dim=1)
        y, x = torch.meshgrid(
            torch.arange(height, device=device) * stride, torch.arange(width, device=device) * stride, indexing="ij"
        )
        corners = torch.stack([x, y, x, y], dim=-1).view(-1, 1, 4)
        levels.append((corners + base).view(-1, 4))
    return levels


def _centres(boxes: Tensor) -> tuple[Tensor, Tensor]:
    size = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + 0.5 * size, size


def encode(boxes: Tensor, reference: Tensor, deviations: Sequence[float]) -> Tensor:
    """(n, 4) offsets from the reference boxes to ``boxes``: centre shift in reference sizes, log of the size's ratio,
    each over its deviation."""
    centre, size = _centres(boxes)
    reference_centre, reference_size = _centres(reference)
    offsets = torch.cat([(centre - reference_centre) / reference_size, torch.log(size / reference_size)], dim=-1)
    return offsets / offsets.new_tensor(deviations)


def decode(offsets: Tensor, reference: Tensor, deviations: Sequence[float]) -> Tensor:
    """The inverse of :func:`encode`; ``offsets`` (..., 4) and ``reference`` broadcast."""
    offsets = offsets * offsets.new_tensor(deviations)
    centre, size = _centres(reference)
    centre = centre + offsets[..., :2] * size
    size = size * torch.exp(offsets[..., 2:].clamp(max=LARGEST_LOG_RATIO))
    return torch.cat([centre - 0.5 * size, centre + 0.5 * size], dim=-1)


def clip(boxes: Tensor, height: int, width: int) -> Tensor:
    """Boxes (..., 4) cut to the image."""
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return torch.stack([x[..., 0], y[..., 0], x[..., 1], y[..., 1]], dim=-1)
