"""DLRM: recommendation from dense features and categories (Naumov et al. 2019), with the 1,000-kernels study's sizes:
26 tables of one row each, so that the look-ups cost their launches and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apps import steps
from apps.casio.common import make, sum_notes
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    dense: int = 13
    bottom: tuple[int, ...] = (512, 256, 128)
    tables: int = 26
    rows: int = 1
    top: tuple[int, ...] = (1024, 1024, 512, 256, 1)


def build(request: Request) -> Built:
    """``batch`` samples a step, one look-up in each table."""
    config = Config(**request.config)
    model = make(request, lambda: DLRM(config))
    dense = steps.normal(request, request.batch, config.dense)
    indices = [steps.integers(request, config.rows, request.batch) for _ in range(config.tables)]
    bags = torch.arange(request.batch, device=request.device)
    return steps.built(request, model, lambda: model(dense, indices, bags), notes=sum_notes(request))


def mlp(inputs: int, widths: Sequence[int], last: type[nn.Module]) -> nn.Sequential:
    """Linear layers with ReLU between them and ``last`` at the end."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise((inputs, *widths)):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last())


class DLRM(nn.Module):
    """Bottom MLP, embeddings, dot products of every pair, top MLP."""

    pair_rows: Tensor
    pair_columns: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, vectors = config.bottom[-1], config.tables + 1
        self.bottom = mlp(config.dense, config.bottom, nn.ReLU)
        self.tables = nn.ModuleList(nn.EmbeddingBag(config.rows, width, mode="sum") for _ in range(config.tables))
        self.top = mlp(width + vectors * (vectors - 1) // 2, config.top, nn.Sigmoid)
        pairs = [(i, j) for i in range(vectors) for j in range(i)]
        self.register_buffer("pair_rows", torch.tensor([i for i, _ in pairs]), persistent=False)
        self.register_buffer("pair_columns", torch.tensor([j for _, j in pairs]), persistent=False)

    def forward(self, dense: Tensor, indices: list[Tensor], bags: Tensor) -> Tensor:
        """(batch, 1): probability of a click. ``bags``: where each sample's look-ups start."""
        x = self.bottom(dense)
        vectors = [x] + [table(index, bags) for table, index in zip(self.tables, indices, strict=True)]
        stacked = torch.cat(vectors, dim=1).view(len(x), len(vectors), -1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        pairs = products[:, self.pair_rows, self.pair_columns]
        return self.top(torch.cat([x, pairs], dim=1))  # type: ignore[no-any-return]
