"""Which candidate box belongs to which true box, and which candidates are trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from apps.casio.detector.boxes import iou

IGNORED, BACKGROUND = -1, 0


def assign(candidates: Tensor, truth: Tensor, positive: float, negative: float, least: float | None = None) -> Tensor:
    """(candidates,) int64: 1 + index of the true box, 0 background, -1 neither.

    Overlap of at least ``positive`` belongs to the best true box, below ``negative`` is background. With ``least`` the
    candidates that overlap a true box best, and at least so much, are given to it too; as in the original this goes box
    by box and reads each one's overlap on the host.
    """
    overlap = iou(truth, candidates)
    best, which = overlap.max(dim=0)
    assigned = torch.full_like(which, IGNORED)
    assigned[best < negative] = BACKGROUND
    sure = best >= positive
    assigned[sure] = which[sure] + 1
    if least is not None:
        nearest = overlap.max(dim=1)[0]
        for i in range(len(truth)):
            if nearest[i] >= least:
                assigned[overlap[i] == nearest[i]] = i + 1
    return assigned


@dataclass(frozen=True)
class Sample:
    """Boxes to train on, positives first. ``owner`` (positives,): index of each positive's true box."""

    positives: Tensor
    negatives: Tensor
    owner: Tensor
    positive_index: Tensor
    negative_index: Tensor

    @property
    def boxes(self) -> Tensor:
        return torch.cat([self.positives, self.negatives])


def sample(
    candidates: Tensor,
    assigned: Tensor,
    count: int,
    share: float,
    negatives_per_positive: float | None = None,
    balanced: bool = False,
) -> Sample:
    """At random ``count`` candidates, at most ``share`` of them positive, the rest background as far as there is any.

    ``balanced``: an equal number of positives for every true box. The counts are read on the host, as in the original.
    """
    positive = torch.where(assigned > 0)[0]
    wanted = int(count * share)
    if len(positive) > wanted:
        positive = _balanced(positive, assigned, wanted) if balanced else _some(positive, wanted)
    negative = torch.where(assigned == BACKGROUND)[0]
    wanted = count - len(positive)
    if negatives_per_positive is not None:
        wanted = min(wanted, int(negatives_per_positive * max(len(positive), 1)))
    if len(negative) > wanted:
        negative = _some(negative, wanted)
    return Sample(candidates[positive], candidates[negative], assigned[positive] - 1, positive, negative)


def _some(items: Tensor, count: int) -> Tensor:
    return items[torch.randperm(len(items), device=items.device)[:count]]


def _balanced(positive: Tensor, assigned: Tensor, wanted: int) -> Tensor:
    owners = assigned[positive]
    distinct = torch.unique(owners)
    each = round(wanted / len(distinct)) + 1
    chosen = [_some(positive[owners == owner], each) for owner in distinct]
    picked = torch.cat(chosen)
    if len(picked) > wanted:
        return _some(picked, wanted)
    rest = positive[~torch.isin(positive, picked)]
    return torch.cat([picked, _some(rest, wanted - len(picked))])
