"""SSD with ResNet-34: single-stage detection as MLPerf takes it (Liu et al. 2016).

Inference sees 1,200 pixels (15,130 default boxes: the heads themselves have a stride of 3) and includes decoding and
suppression per class; training sees 300 pixels (8,732 boxes) and, as in the 1,000-kernels study, sums the outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apps import steps
from apps.casio.common import make, sum_notes
from apps.casio.detector import boxes, resnet
from apps.casio.detector.nms import nms
from apps.workload import Built, Request

# Default boxes at each place of the six maps, and the sides (of 300 pixels) that they are made from.
PER_PLACE = (4, 6, 6, 6, 4, 4)
SIDES = (21, 45, 99, 153, 207, 261, 315)
RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
DEVIATIONS = (0.1, 0.1, 0.2, 0.2)


@dataclass(frozen=True)
class Config:
    """``infer`` and ``train``: side of the image in each mode."""

    infer: int = 1200
    train: int = 300
    classes: int = 81
    blocks: tuple[int, ...] = (3, 4, 6)
    stem: int = 64
    widths: tuple[int, ...] = (256, 512, 512, 256, 256, 256)
    middle: tuple[int, ...] = (256, 256, 128, 128, 128)
    most: int = 200


def build(request: Request) -> Built:
    """``batch`` images a step."""
    config = Config(**request.config)
    training = request.mode == "train"
    model = make(request, lambda: SSD(config, large=not training))
    side = config.train if training else config.infer
    images = steps.normal(request, request.batch, 3, side, side)
    if training:
        return steps.built(request, model, lambda: model(images), item_name="images", notes=sum_notes(request))
    notes = (
        "random weights let many more boxes pass the score threshold than trained ones would",
        "decoding and suppression per image and class are part of the step; their sizes depend on the data",
    )
    return steps.built(request, model, lambda: model.detect(images), item_name="images", notes=notes)


class SSD(nn.Module):
    """``large``: the 1,200 pixel form."""

    def __init__(self, config: Config, large: bool) -> None:
        super().__init__()
        self.config = config
        self.backbone = resnet.Features(resnet.Basic, config.blocks, config.stem, strides=(1, 2, 1))
        widths, stride = config.widths, 3 if large else 1
        shape = ((2, 1), (2, 1), (2, 1), (2 if large else 1, 0), (1, 0))
        self.extra = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(inputs, middle, 1),
                nn.ReLU(inplace=True),
                nn.Conv2d(middle, outputs, 3, stride=step, padding=padding),
                nn.ReLU(inplace=True),
            )
            for inputs, middle, outputs, (step, padding) in zip(
                widths[:-1], config.middle, widths[1:], shape, strict=True
            )
        )
        self.offsets = nn.ModuleList(
            nn.Conv2d(width, 4 * n, 3, stride=stride, padding=1) for width, n in zip(widths, PER_PLACE, strict=True)
        )
        self.scores = nn.ModuleList(
            nn.Conv2d(width, config.classes * n, 3, stride=stride, padding=1)
            for width, n in zip(widths, PER_PLACE, strict=True)
        )
        for module in (*self.extra.modules(), *self.offsets, *self.scores):
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Offsets (images, 4, boxes) and logits (images, classes, boxes)."""
        offsets, scores, _ = self._heads(images)
        return offsets, scores

    def _heads(self, images: Tensor) -> tuple[Tensor, Tensor, list[int]]:
        maps = [self.backbone(images)[-1]]
        for block in self.extra:
            maps.append(block(maps[-1]))
        offsets, scores, sides = [], [], []
        for features, offset, score in zip(maps, self.offsets, self.scores, strict=True):
            found = offset(features)
            sides.append(found.shape[-1])
            offsets.append(found.view(len(images), 4, -1))
            scores.append(score(features).view(len(images), self.config.classes, -1))
        return torch.cat(offsets, dim=2), torch.cat(scores, dim=2), sides

    def detect(self, images: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Boxes (n, 4), scores and classes of each image: per class those over 0.05, at most 200, suppressed at 0.5;
        then the 200 best over all classes."""
        offsets, logits, sides = self._heads(images)
        reference = default_boxes(sides, images.shape[-1], images.device)
        found = boxes.decode(offsets.transpose(1, 2).float(), reference, DEVIATIONS)
        probability = torch.softmax(logits.transpose(1, 2).float(), dim=-1)
        results = []
        for box, scores in zip(found, probability, strict=True):
            kept_boxes, kept_scores, kept_classes = [], [], []
            for cls in range(1, self.config.classes):
                likely = torch.where(scores[:, cls] > 0.05)[0]
                if not len(likely):
                    continue
                score, order = scores[likely, cls].sort(descending=True)
                score, candidates = score[: self.config.most], box[likely[order[: self.config.most]]]
                chosen = nms(candidates, score, 0.5)
                kept_boxes.append(candidates[chosen])
                kept_scores.append(score[chosen])
                kept_classes.append(torch.full_like(chosen, cls))
            if not kept_boxes:
                results.append((box[:0], scores[:0, 0], torch.zeros(0, dtype=torch.int64, device=box.device)))
                continue
            every = torch.cat(kept_scores)
            best = every.sort(descending=True)[1][: self.config.most]
            results.append((torch.cat(kept_boxes)[best], every[best], torch.cat(kept_classes)[best]))
        return results


def default_boxes(sides: list[int], image: int, device: torch.device) -> Tensor:
    """(boxes, 4) in pixels of the image, in the order of the heads: map, shape, place."""
    levels = []
    for i, (side, ratios) in enumerate(zip(sides, RATIOS, strict=True)):
        small, large = SIDES[i] * image / 300, SIDES[i + 1] * image / 300
        shapes = [(small, small), (math.sqrt(small * large),) * 2]
        for ratio in ratios:
            wide, high = small * math.sqrt(ratio), small / math.sqrt(ratio)
            shapes += [(wide, high), (high, wide)]
        half = torch.tensor(shapes, device=device) / 2
        places = (torch.arange(side, device=device) + 0.5) * (image / side)
        y, x = torch.meshgrid(places, places, indexing="ij")
        centre = torch.stack([x, y], dim=-1).view(1, -1, 2)
        levels.append(torch.cat([centre - half[:, None], centre + half[:, None]], dim=-1).view(-1, 4))
    return torch.cat(levels)
