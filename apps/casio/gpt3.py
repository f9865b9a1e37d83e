"""One transformer layer of GPT-3 175B, training (Brown et al. 2020).

The input is a random activation; there is no embedding and no head. Attention is written out (scores, causal mask,
softmax, dropout), and GELU is the tanh form as separate operators, as in the study's minGPT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps import steps
from apps.casio.common import make, sum_notes
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    width: int = 12288
    heads: int = 96
    dropout: float = 0.1


def build(request: Request) -> Built:
    """``batch`` x ``seq`` activations through the layer; seq is 2,048 in the study."""
    config, seq = Config(**request.config), request.seq or 2048
    model = make(request, lambda: Block(config, seq))
    x = steps.normal(request, request.batch, seq, config.width)
    return steps.built(request, model, lambda: model(x), item_name="sequences", notes=sum_notes(request))


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    mask: Tensor

    def __init__(self, config: Config, seq: int) -> None:
        super().__init__()
        width = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.tril(torch.ones(seq, seq, dtype=torch.bool)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._drop(self.out(self._attention(self.norm1(x))))
        return x + self._drop(self.down(gelu(self.up(self.norm2(x)))))

    def _attention(self, x: Tensor) -> Tensor:
        batch, seq, width = x.shape
        q, k, v = (t.view(batch, seq, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
        scores = scores.masked_fill(self.mask[:seq, :seq] == 0, -torch.inf)
        weights = self._drop(torch.softmax(scores, dim=-1))
        return (weights @ v).transpose(1, 2).contiguous().view(batch, seq, width)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def gelu(x: Tensor) -> Tensor:
    """The tanh form of GELU, operator by operator."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
