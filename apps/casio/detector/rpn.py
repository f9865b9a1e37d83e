"""Region proposal network (Ren et al. 2015) over a feature pyramid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps.casio.detector import boxes
from apps.casio.detector.assign import assign, sample
from apps.casio.detector.nms import batched_nms

RATIOS = (0.5, 1.0, 2.0)
UNIT = (1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Limits:
    """Candidates taken from each level before suppression, and proposals kept of an image after it."""

    before: int = 2000
    after: int = 1000
    overlap: float = 0.7


class Guesses(NamedTuple):
    """Per level: logits (images, anchors) and offsets (images, anchors, 4), float32, and the anchors (anchors, 4)."""

    logits: list[Tensor]
    offsets: list[Tensor]
    anchors: list[Tensor]


class ProposalNetwork(nn.Module):
    """Objectness and box offsets of three anchors at every place of every level."""

    def __init__(self, width: int, strides: Sequence[int] = (4, 8, 16, 32, 64), scale: float = 8.0) -> None:
        super().__init__()
        self.strides, self.scale = strides, scale
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.objectness = nn.Conv2d(width, len(RATIOS), 1)
        self.offsets = nn.Conv2d(width, 4 * len(RATIOS), 1)
        for conv in (self.conv, self.objectness, self.offsets):
            nn.init.normal_(conv.weight, std=0.01)
            nn.init.zeros_(conv.bias)

    def forward(self, levels: list[Tensor]) -> Guesses:
        """From feature maps (images, width, height, width), finest first."""
        logits, offsets = [], []
        for features in levels:
            shared = F.relu(self.conv(features), inplace=True)
            logits.append(self.objectness(shared).permute(0, 2, 3, 1).flatten(1).float())
            offsets.append(self.offsets(shared).permute(0, 2, 3, 1).reshape(len(features), -1, 4).float())
        shapes = [(f.shape[2], f.shape[3]) for f in levels]
        return Guesses(logits, offsets, boxes.anchors(shapes, self.strides, self.scale, RATIOS, levels[0].device))

    @torch.no_grad()
    def proposals(self, guesses: Guesses, images: Sequence[tuple[int, int]], limits: Limits) -> list[Tensor]:
        """Boxes (at most ``limits.after``, 4) of each image, best first; ``images`` (height, width) without padding."""
        result = []
        for i, image in enumerate(images):
            scores, found, level = [], [], []
            for number, (logit, offset, anchor) in enumerate(zip(*guesses, strict=True)):
                score, order = torch.sigmoid(logit[i]).sort(descending=True)
                order = order[: limits.before]
                scores.append(score[: limits.before])
                found.append(boxes.decode(offset[i][order], anchor[order], UNIT))
                level.append(torch.full_like(order, number))
            box, score, group = boxes.clip(torch.cat(found), *image), torch.cat(scores), torch.cat(level)
            sound = ((box[:, 2] > box[:, 0]) & (box[:, 3] > box[:, 1])).nonzero().squeeze(1)
            box, score, group = box[sound], score[sound], group[sound]
            result.append(box[batched_nms(box, score, group, limits.overlap)[: limits.after]])
        return result

    def loss(self, guesses: Guesses, truth: list[Tensor], count: int) -> Tensor:
        """Cross-entropy of objectness and smooth L1 of offsets over ``count`` anchors an image, level by level."""
        every = torch.cat(guesses.anchors)
        sizes = [len(a) for a in guesses.anchors]
        labels, weights, targets, total = [], [], [], 0
        for box in truth:
            chosen = sample(every, assign(every, box, 0.7, 0.3, least=0.3), count, 0.5)
            label = torch.zeros(len(every), device=every.device)
            weight = torch.zeros_like(label)
            target = torch.zeros_like(every)
            label[chosen.positive_index] = 1.0
            weight[chosen.positive_index] = weight[chosen.negative_index] = 1.0
            target[chosen.positive_index] = boxes.encode(box[chosen.owner], chosen.positives, UNIT)
            labels.append(label.split(sizes))
            weights.append(weight.split(sizes))
            targets.append(target.split(sizes))
            total += len(chosen.positive_index) + len(chosen.negative_index)
        loss = every.new_zeros(())
        for i, (logit, offset) in enumerate(zip(guesses.logits, guesses.offsets, strict=True)):
            label, weight = torch.stack([x[i] for x in labels]), torch.stack([x[i] for x in weights])
            target = torch.stack([x[i] for x in targets])
            objectness = F.binary_cross_entropy_with_logits(logit, label, weight, reduction="sum")
            distance = F.smooth_l1_loss(offset, target, reduction="none", beta=1 / 9).sum(dim=-1)
            loss = loss + (objectness + (distance * label).sum()) / max(total, 1)
        return loss
