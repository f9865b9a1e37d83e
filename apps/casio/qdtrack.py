"""QDTrack: detection and tracking from pairs of frames, training (Pang et al. 2021).

Faster R-CNN on a key frame (first stage frozen, batch-norm statistics fixed), and an embedding head that must tell the
same object in a reference frame from everything else: many positives a row, hard negatives. Assignment, sampling,
suppression and indexing are many small operators with sizes that depend on the data, and the host waits for them often,
as in the original.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps import steps
from apps.casio.common import make
from apps.casio.detector import resnet
from apps.casio.detector.assign import Sample, assign, sample
from apps.casio.detector.fpn import FeaturePyramid
from apps.casio.detector.heads import BoxHead
from apps.casio.detector.roi_align import LevelledRoIAlign, with_image
from apps.casio.detector.rpn import Limits, ProposalNetwork
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    """``objects`` true boxes a frame (random)."""

    height: int = 736
    width: int = 1280
    objects: int = 12
    classes: int = 8
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    stem: int = 64
    channels: int = 256
    hidden: int = 1024
    embedding: int = 256
    regions: int = 512
    tracked: int = 256
    anchors: int = 256
    before: int = 2000
    after: int = 1000


@dataclass
class Frame:
    """A batch of images (images, 3, height, width) with the true boxes (objects, 4) and classes (objects,) of each."""

    images: Tensor
    truth: list[Tensor]
    labels: list[Tensor]


def build(request: Request) -> Built:
    """``batch`` pairs of frames a step; SGD with the first steps of the original's linear warm-up."""
    config = Config(**request.config)
    model = make(request, lambda: QDTrack(config))
    key, reference, match = make_pair(config, request)

    def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        sgd = torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=1e-4)
        warm_up = torch.optim.lr_scheduler.LinearLR(sgd, start_factor=1e-3, total_iters=1000)
        sgd.register_step_post_hook(lambda *_: warm_up.step())
        return sgd

    notes = (
        "random frames and boxes; RoIAlign and suppression in plain PyTorch",
        "two RoIAlign samples along a bin (the original takes more in large boxes)",
        "sizes depend on the data, and the host reads counts and overlaps as the original does",
    )
    return steps.built(
        request,
        model,
        lambda: model.losses(key, reference, match),
        loss=lambda losses: sum(losses.values()),
        optimizer=optimizer,
        item_name="pairs",
        notes=notes,
    )


def make_pair(config: Config, request: Request) -> tuple[Frame, Frame, list[Tensor]]:
    """Key and reference frames, and per pair the reference's index of each key object, -1 where it is gone (one is)."""

    def boxes() -> Tensor:
        side = torch.rand(config.objects, 2) * 0.3 + 0.05
        corner = torch.rand(config.objects, 2) * (1 - side)
        return torch.cat([corner, corner + side], dim=1) * torch.tensor([config.width, config.height] * 2)

    truths, moved, labels, matches = [], [], [], []
    for _ in range(request.batch):
        box = boxes()
        shift = (torch.rand(config.objects, 1, 2) - 0.5) * 0.02 * torch.tensor([config.width, config.height])
        limit = torch.tensor([config.width, config.height] * 2)
        truths.append(box)
        moved.append((box + shift.expand(-1, 2, -1).reshape(-1, 4)).clamp(min=0).minimum(limit))
        labels.append(torch.randint(config.classes, (config.objects,)))
        match = torch.arange(config.objects)
        match[0] = -1
        matches.append(match)

    def frame(truth: list[Tensor]) -> Frame:
        images = steps.normal(request, request.batch, 3, config.height, config.width)
        return Frame(images, [t.to(request.device) for t in truth], [x.to(request.device) for x in labels])

    return frame(truths), frame(moved), [m.to(request.device) for m in matches]


class TrackHead(nn.Module):
    """Four convolutions with group norm, one hidden layer, an embedding of each region."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.channels
        layers: list[nn.Module] = []
        for _ in range(4):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.GroupNorm(32, width), nn.ReLU()]
        self.convs = nn.Sequential(*layers)
        self.fc, self.embed = nn.Linear(width * 49, config.hidden), nn.Linear(config.hidden, config.embedding)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.normal_(self.embed.weight, std=0.01)
        for layer in (self.fc, self.embed):
            nn.init.zeros_(layer.bias)

    def forward(self, regions: Tensor) -> Tensor:
        """(regions, embedding)."""
        return self.embed(F.relu(self.fc(self.convs(regions).flatten(1))))  # type: ignore[no-any-return]


class QDTrack(nn.Module):
    """Detector and track head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.backbone = resnet.Features(resnet.Bottleneck, config.blocks, config.stem, norm=resnet.EvalBatchNorm2d)
        self.backbone.freeze(stages=1)
        self.pyramid = FeaturePyramid(self.backbone.widths, config.channels)
        self.rpn = ProposalNetwork(config.channels)
        self.align = LevelledRoIAlign((4, 8, 16, 32), 7)
        self.box = BoxHead(
            config.channels, 7, config.hidden, config.classes + 1, background=config.classes, regressed=config.classes
        )
        self.track = TrackHead(config)

    def losses(self, key: Frame, reference: Frame, match: list[Tensor]) -> dict[str, Tensor]:
        """Proposal, detection and track losses of a batch of pairs."""
        config = self.config
        sizes = [(config.height, config.width)] * len(match)
        levels = self.pyramid(self.backbone(key.images))
        guesses = self.rpn(levels)
        rpn_loss = self.rpn.loss(guesses, key.truth, config.anchors)
        proposals = self.rpn.proposals(guesses, sizes, Limits(config.before, config.after))
        other_levels = self.pyramid(self.backbone(reference.images))
        with torch.no_grad():
            other_guesses = self.rpn(other_levels)
        fewer = Limits(config.after, config.after)
        other = self.rpn.proposals(other_guesses, sizes, fewer)

        regions = [self._for_detection(p, t) for p, t in zip(proposals, key.truth, strict=True)]
        logits, offsets = self.box(self.align(levels, with_image([r.boxes for r in regions])))
        keys = [self._for_tracking(p, t) for p, t in zip(proposals, key.truth, strict=True)]
        others = [self._for_tracking(p, t) for p, t in zip(other, reference.truth, strict=True)]
        key_embedding = self.track(self.align(levels, with_image([k.positives for k in keys])))
        other_embedding = self.track(self.align(other_levels, with_image([o.boxes for o in others])))
        track, auxiliary = self._track_losses(key_embedding, other_embedding, keys, others, match)
        return {
            "rpn": rpn_loss,
            "detection": self.box.loss(logits, offsets, regions, key.truth, key.labels),
            "track": track,
            "auxiliary": auxiliary,
        }

    def _for_detection(self, proposals: Tensor, truth: Tensor) -> Sample:
        candidates = torch.cat([truth, proposals])
        return sample(candidates, assign(candidates, truth, 0.5, 0.5), self.config.regions, 0.25)

    def _for_tracking(self, proposals: Tensor, truth: Tensor) -> Sample:
        candidates = torch.cat([truth, proposals])
        assigned = assign(candidates, truth, 0.7, 0.3)
        return sample(candidates, assigned, self.config.tracked, 0.5, negatives_per_positive=3, balanced=True)

    def _track_losses(
        self, key: Tensor, other: Tensor, keys: list[Sample], others: list[Sample], match: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        contrast, auxiliary = [], []
        pairs = zip(
            key.split([len(k.positives) for k in keys]), other.split([len(o.boxes) for o in others]), strict=True
        )
        for (mine, theirs), k, o, matched in zip(pairs, keys, others, match, strict=True):
            target = torch.zeros(len(mine), len(theirs), dtype=torch.bool, device=mine.device)
            target[:, : len(o.owner)] = matched[k.owner][:, None] == o.owner[None]
            contrast.append(multi_positive_loss((mine @ theirs.T).float(), target))
            cosine = F.normalize(mine, dim=1) @ F.normalize(theirs, dim=1).T
            auxiliary.append(hard_negative_loss(cosine.float(), target))
        return 0.25 * torch.stack(contrast).mean(), torch.stack(auxiliary).mean()


def multi_positive_loss(similarity: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy with several positives a row: log(1 + sum over every positive p and negative n of exp(n - p)), the
    mean over rows that have a positive. ``similarity`` and ``target`` (bool) are (rows, columns)."""
    columns = similarity.shape[1]
    positive = similarity.masked_fill(~target, torch.inf).repeat_interleave(columns, dim=1)
    negative = similarity.masked_fill(target, -torch.inf).repeat(1, columns)
    loss = torch.logsumexp(F.pad(negative - positive, (0, 1)), dim=1)
    weight = target.any(dim=1).float()
    return (loss * weight).sum() / weight.sum().clamp(min=1)


def hard_negative_loss(cosine: Tensor, target: Tensor, per_positive: int = 3, margin: float = 0.1) -> Tensor:
    """Squared distance of similarities to 1 (positives) or to below the margin (negatives), the mean over the positives
    and the hardest negatives, ``per_positive`` of them each. The number of positives is read on the host."""
    goal = target.float()
    shifted = torch.where(target, cosine, cosine - margin).clamp(0, 1)
    cost = (shifted - goal).square()
    positives = int(target.sum())
    negatives = target.numel() - positives
    weight = torch.ones_like(goal)
    if negatives > positives * per_positive:
        places = torch.nonzero(~target)
        hardest = cost[places[:, 0], places[:, 1]].detach().topk(positives * per_positive)[1]
        kept = torch.zeros_like(target)
        kept[places[hardest, 0], places[hardest, 1]] = True
        weight[~target & ~kept] = 0.0
    return (cost * weight).sum() / (weight > 0).sum().clamp(min=1)
