"""TabNet on the forest-cover table, the forward pass alone with training-mode statistics (Arik and Pfister 2021).

Six decision steps; each has four dense layers of 8 with ghost batch norm and a gated linear unit, and a sparsemax mask
over the 54 features. Hardly any arithmetic, many tiny kernels. As in the study nothing is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps import steps
from apps.casio.common import make
from apps.workload import Built, Request


class BadBatch(ValueError):
    """The batch cannot be split into the virtual batches of ghost batch norm."""


@dataclass(frozen=True)
class Config:
    features: int = 54
    classes: int = 7
    feature_dim: int = 4
    output_dim: int = 2
    decisions: int = 6
    relaxation: float = 1.5
    virtual_batch: int = 4
    sparsity: float = 1e-4


def build(request: Request) -> Built:
    """The loss of a batch of table rows. Raises :class:`BadBatch` unless the batch is a multiple of the virtual one."""
    config = Config(**request.config)
    if request.batch % config.virtual_batch:
        raise BadBatch(f"tabnet: batch {request.batch} is no multiple of its virtual batch {config.virtual_batch}")
    model = make(request, lambda: TabNet(config))
    rows = steps.normal(request, request.batch, config.features)
    labels = steps.integers(request, config.classes, request.batch)
    notes = ("forward pass with the batch's own statistics (no running ones are kept); no optimizer, as in the study",)
    return steps.built(request, model, lambda: model.loss(rows, labels), item_name="rows", notes=notes)


class GhostBatchNorm(nn.Module):
    """Batch norm over groups of ``virtual_batch`` rows (-1: the whole batch), operator by operator."""

    def __init__(self, width: int, virtual_batch: int = -1) -> None:
        super().__init__()
        self.virtual_batch = virtual_batch
        self.gamma, self.beta = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        rows = len(x) if self.virtual_batch < 0 else self.virtual_batch
        groups = x.view(-1, rows, x.shape[-1])
        mean = groups.mean(dim=1, keepdim=True)
        variance = (groups - mean).square().mean(dim=1, keepdim=True)
        groups = (groups - mean) * torch.rsqrt(variance + 1e-3)
        return groups.view_as(x) * self.gamma + self.beta


def sparsemax(z: Tensor) -> Tensor:
    """The nearest point of the probability simplex to each row of ``z`` (Martins and Astudillo 2016), in float32."""
    z32 = z.float()
    ranked, _ = torch.sort(z32, dim=-1, descending=True)
    total = torch.cumsum(ranked, dim=-1)
    rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=torch.float32)
    support = (1 + rank * ranked > total).sum(dim=-1, keepdim=True)
    threshold = (torch.gather(total, -1, support - 1) - 1) / support
    return (z32 - threshold).clamp(min=0).to(z.dtype)


class Unit(nn.Module):
    """Batch norm and gate of one dense layer; the layer itself may be shared between steps."""

    def __init__(self, dense: nn.Linear, config: Config) -> None:
        super().__init__()
        self.dense = dense
        self.norm = GhostBatchNorm(2 * config.feature_dim, config.virtual_batch)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.norm(self.dense(x)), dim=-1)


class TabNet(nn.Module):
    """Logits, and the entropy of the masks that the loss adds."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        wide, narrow = 2 * config.feature_dim, config.feature_dim
        self.first = GhostBatchNorm(config.features)
        shared = [nn.Linear(config.features, wide, bias=False), nn.Linear(narrow, wide, bias=False)]
        self.units = nn.ModuleList()
        for _ in range(config.decisions):
            own = [nn.Linear(narrow, wide, bias=False) for _ in range(2)]
            self.units.append(nn.ModuleList(Unit(dense, config) for dense in (*shared, *own)))
        masks = range(config.decisions - 1)
        coefficients = config.feature_dim - config.output_dim
        self.mask_dense = nn.ModuleList(nn.Linear(coefficients, config.features, bias=False) for _ in masks)
        self.mask_norm = nn.ModuleList(GhostBatchNorm(config.features, config.virtual_batch) for _ in masks)
        self.logits = nn.Linear(config.output_dim, config.classes, bias=False)

    def loss(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy plus the weighted entropy of the masks, float32 scalar."""
        logits, entropy = self(rows)
        return F.cross_entropy(logits.float(), labels) + self.config.sparsity * entropy.float()

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Class logits (batch, classes) and the mean entropy of the masks."""
        config = self.config
        features = masked = self.first(rows)
        prior = torch.ones_like(features)
        total = torch.zeros(len(rows), config.output_dim, device=rows.device, dtype=rows.dtype)
        used = torch.zeros_like(features)
        mask = torch.zeros_like(features)
        entropy = torch.zeros((), device=rows.device, dtype=rows.dtype)
        for i, units in enumerate(self.units):
            x = units[0](masked)
            for unit in units[1:]:
                x = (unit(x) + x) * 0.5**0.5
            if i > 0:
                decision = torch.relu(x[:, : config.output_dim])
                total = total + decision
                used = used + mask * decision.sum(dim=1, keepdim=True) / (config.decisions - 1)
            if i < config.decisions - 1:
                mask = self.mask_norm[i](self.mask_dense[i](x[:, config.output_dim :])) * prior
                mask = sparsemax(mask)
                prior = prior * (config.relaxation - mask)
                entropy = entropy - (mask * torch.log(mask + 1e-5)).sum(dim=1).mean() / (config.decisions - 1)
                masked = mask * features
        self.importance = used
        return self.logits(total), entropy
