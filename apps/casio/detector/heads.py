"""What a two-stage detector does with each region: class and box, and a mask."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps.casio.detector import boxes
from apps.casio.detector.assign import Sample
from apps.casio.detector.nms import batched_nms

DEVIATIONS = (0.1, 0.1, 0.2, 0.2)


class BoxHead(nn.Module):
    """Two fully connected layers, then class logits and box offsets of each class.

    ``background`` is the index of the class for nothing: the last one (``classes``) or the first (0).
    """

    def __init__(self, width: int, size: int, hidden: int, classes: int, background: int, regressed: int) -> None:
        super().__init__()
        self.background = background
        self.fc1, self.fc2 = nn.Linear(width * size * size, hidden), nn.Linear(hidden, hidden)
        self.classes, self.offsets = nn.Linear(hidden, classes), nn.Linear(hidden, 4 * regressed)
        for layer in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.offsets.weight, std=0.001)
        nn.init.zeros_(self.offsets.bias)

    def forward(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (regions, classes) and offsets (regions, regressed classes, 4), float32."""
        x = F.relu(self.fc1(regions.flatten(1)))
        x = F.relu(self.fc2(x))
        return self.classes(x).float(), self.offsets(x).float().view(len(x), -1, 4)

    def loss(
        self, logits: Tensor, offsets: Tensor, samples: list[Sample], truth: list[Tensor], labels: list[Tensor]
    ) -> Tensor:
        """Cross-entropy of the classes plus L1 of the positives' offsets to their own class, per region."""
        classes, target, positive, start = [], [], [], 0
        for chosen, box, label in zip(samples, truth, labels, strict=True):
            own = label[chosen.owner]
            nothing = own.new_full((len(chosen.negatives),), self.background)
            classes.append(torch.cat([own, nothing]))
            target.append(boxes.encode(box[chosen.owner], chosen.positives, DEVIATIONS))
            positive.append(torch.arange(start, start + len(own), device=own.device))
            start += len(own) + len(nothing)
        which, row = torch.cat(classes), torch.cat(positive)
        distance = (offsets[row, which[row]] - torch.cat(target)).abs().sum()
        return F.cross_entropy(logits, which) + distance / max(start, 1)


@torch.no_grad()
def detections(
    logits: Tensor,
    offsets: Tensor,
    proposals: Tensor,
    image: tuple[int, int],
    least: float = 0.05,
    overlap: float = 0.5,
    most: int = 100,
) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (n, 4), scores and classes of one image; class 0 is background and left out. Scores of at least ``least``
    only, suppression within each class, the ``most`` best."""
    scores = torch.softmax(logits, dim=-1)
    found = boxes.clip(boxes.decode(offsets, proposals[:, None], DEVIATIONS), *image)
    classes = torch.arange(logits.shape[1], device=logits.device).expand_as(scores)
    box, score, cls = found[:, 1:].reshape(-1, 4), scores[:, 1:].flatten(), classes[:, 1:].flatten()
    likely = torch.where(score > least)[0]
    box, score, cls = box[likely], score[likely], cls[likely]
    size = box[:, 2:] - box[:, :2]
    sound = torch.where((size >= 1e-2).all(dim=1))[0]
    box, score, cls = box[sound], score[sound], cls[sound]
    kept = batched_nms(box, score, cls, overlap)[:most]
    return box[kept], score[kept], cls[kept]


class MaskHead(nn.Module):
    """Four 3x3 convolutions, a transposed one that doubles the side, one mask a class."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.masks = nn.Conv2d(width, classes, 1)
        for conv in (*self.convs, self.up, self.masks):
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(conv.bias)

    def forward(self, regions: Tensor) -> Tensor:
        """Logits (regions, classes, 2 * size, 2 * size)."""
        for conv in self.convs:
            regions = F.relu(conv(regions), inplace=True)
        return self.masks(F.relu(self.up(regions), inplace=True))  # type: ignore[no-any-return]


@torch.no_grad()
def paste(masks: Tensor, box: Tensor, image: tuple[int, int]) -> Tensor:
    """Masks (n, side, side) of probabilities drawn into their boxes: (n, height, width), all boxes at once by sampling
    on a grid."""
    height, width = image
    x = (torch.arange(width, device=box.device) + 0.5 - box[:, 0:1]) / (box[:, 2:3] - box[:, 0:1]) * 2 - 1
    y = (torch.arange(height, device=box.device) + 0.5 - box[:, 1:2]) / (box[:, 3:4] - box[:, 1:2]) * 2 - 1
    grid = torch.stack([x[:, None, :].expand(-1, height, -1), y[:, :, None].expand(-1, -1, width)], dim=-1)
    return F.grid_sample(masks[:, None].float(), grid, align_corners=False)[:, 0]
