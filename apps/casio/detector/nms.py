"""Non-maximum suppression in plain PyTorch, exact."""

from __future__ import annotations

import torch
from torch import Tensor

from apps.casio.detector.boxes import iou

# Above this many boxes one matrix of all pairs costs more than going group by group.
ONE_MATRIX = {"cpu": 1000, "cuda": 5000}


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Indices of the kept boxes, best score first: a box goes when a better kept one overlaps it by more than
    ``threshold``.

    The greedy result without its serial loop: start with every box kept and let the kept ones suppress the worse ones,
    over and over until nothing changes. After k rounds the first k boxes are as in the greedy order, so it ends there,
    in practice after a few rounds. Each round asks the device whether something changed, so it synchronizes.
    """
    order = torch.argsort(scores, descending=True)
    suppresses = torch.triu(iou(boxes[order], boxes[order]) > threshold, diagonal=1)
    kept = torch.ones_like(order, dtype=torch.bool)
    while True:
        following = ~(suppresses & kept[:, None]).any(dim=0)
        if torch.equal(following, kept):
            return order[kept]
        kept = following


def batched_nms(boxes: Tensor, scores: Tensor, groups: Tensor, threshold: float) -> Tensor:
    """:func:`nms` within each group (class or level), ``groups`` (n,) int64; best score first over all groups.

    Few boxes: one pass, with each group moved to a place of its own. Many: one pass a group.
    """
    if not len(boxes):
        return torch.zeros(0, dtype=torch.int64, device=boxes.device)
    if len(boxes) <= ONE_MATRIX.get(boxes.device.type, 5000):
        apart = groups.to(boxes.dtype) * (boxes.max() - boxes.min() + 1)
        return nms(boxes + apart[:, None], scores, threshold)
    keep = torch.zeros_like(groups, dtype=torch.bool)
    for group in torch.unique(groups):
        members = torch.where(groups == group)[0]
        keep[members[nms(boxes[members], scores[members], threshold)]] = True
    kept = torch.where(keep)[0]
    return kept[torch.argsort(scores[kept], descending=True)]
