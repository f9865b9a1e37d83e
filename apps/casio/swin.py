"""Swin Transformer V2, training (Liu et al. 2022): attention in shifted windows with cosine similarity, a learned
position bias over log-spaced offsets, and norms after each branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps import steps
from apps.casio.common import make, sum_notes
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    """``pretrained`` windows scale the offsets of the position bias, one a stage; 0 means the window itself."""

    image: int = 192
    width: int = 128
    depths: tuple[int, ...] = (2, 2, 18, 2)
    heads: tuple[int, ...] = (4, 8, 16, 32)
    window: int = 12
    pretrained: tuple[int, ...] = (0, 0, 0, 0)
    classes: int = 1000
    bias_hidden: int = 512
    drop_path: float = 0.2


def build(request: Request) -> Built:
    """``batch`` images a step. As in the study a training step on a GPU ends with a synchronization."""
    config = Config(**request.config)
    model = make(request, lambda: SwinV2(config))
    images = steps.normal(request, request.batch, 3, config.image, config.image)
    workload = steps.built(request, model, lambda: model(images), item_name="images", notes=sum_notes(request))
    if request.mode == "train" and request.device.startswith("cuda"):
        workload.step = _synchronized(workload.step)
        workload.notes += ("each step ends with a device synchronization, as in the study",)
    return workload


def _synchronized(step: Callable[[], object]) -> Callable[[], None]:
    def whole() -> None:
        step()
        torch.cuda.synchronize()

    return whole


def to_windows(x: Tensor, window: int) -> Tensor:
    """(batch, height, width, channels) to (batch * windows, window * window, channels)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // window, window, width // window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window * window, channels)


def from_windows(windows: Tensor, window: int, side: int) -> Tensor:
    """The way back from :func:`to_windows` for square images of ``side``."""
    across, channels = side // window, windows.shape[-1]
    x = windows.view(-1, across, across, window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, side, side, channels)


def drop_path(x: Tensor, rate: float, training: bool) -> Tensor:
    """Drop the whole branch of some samples, scaling up the others."""
    if rate == 0.0 or not training:
        return x
    keep = 1 - rate
    return x * x.new_empty(len(x), *[1] * (x.ndim - 1)).bernoulli_(keep).div_(keep)


class WindowAttention(nn.Module):
    """Cosine attention inside windows; the bias comes from a small network over relative offsets."""

    offsets: Tensor
    index: Tensor

    def __init__(self, width: int, heads: int, window: int, pretrained: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = nn.Parameter(torch.full((heads, 1, 1), math.log(10.0)))
        self.bias = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, heads, bias=False))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        # Keys have no bias: it would not change cosine similarity's ranking.
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.out = nn.Linear(width, width)
        reach = torch.arange(-(window - 1), window, dtype=torch.float32)
        table = torch.stack(torch.meshgrid(reach, reach, indexing="ij"), dim=-1) * 8 / ((pretrained or window) - 1)
        self.register_buffer("offsets", torch.sign(table) * torch.log2(table.abs() + 1.0) / 3.0, persistent=False)
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = places[:, :, None] - places[:, None, :] + window - 1
        self.register_buffer("index", apart[0] * (2 * window - 1) + apart[1], persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """``x`` (batch * windows, tokens, channels); ``mask`` (windows, tokens, tokens), 0 or -100."""
        rows, tokens, width = x.shape
        bias = torch.cat([self.q_bias, torch.zeros_like(self.v_bias), self.v_bias])
        qkv = F.linear(x, self.qkv.weight, bias).view(rows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * torch.clamp(self.scale, max=math.log(100.0)).exp()
        table = self.bias(self.offsets).view(-1, self.heads)
        position = table[self.index.view(-1)].view(tokens, tokens, self.heads).permute(2, 0, 1).contiguous()
        scores = scores + 16 * torch.sigmoid(position)
        if mask is not None:
            windows = len(mask)
            scores = scores.view(-1, windows, self.heads, tokens, tokens) + mask[:, None]
            scores = scores.view(-1, self.heads, tokens, tokens)
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(rows, tokens, width))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Window attention and MLP on (batch, side * side, channels), each normed after and added."""

    mask: Tensor | None

    def __init__(self, config: Config, stage: int, side: int, shifted: bool, rate: float) -> None:
        super().__init__()
        width, window = config.width * 2**stage, min(config.window, side)
        self.side, self.window, self.rate = side, window, rate
        # One window that holds the whole image has nothing to shift.
        self.shift = window // 2 if shifted and side > window else 0
        self.attention = WindowAttention(
            width, config.heads[stage], window, config.pretrained[stage], config.bias_hidden
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("mask", shift_mask(side, window, self.shift) if self.shift else None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        grid = x.view(batch, self.side, self.side, width)
        if self.shift:
            grid = torch.roll(grid, (-self.shift, -self.shift), dims=(1, 2))
        windows = self.attention(to_windows(grid, self.window), self.mask)
        grid = from_windows(windows, self.window, self.side)
        if self.shift:
            grid = torch.roll(grid, (self.shift, self.shift), dims=(1, 2))
        x = x + drop_path(self.norm1(grid.view(batch, tokens, width)), self.rate, self.training)
        return x + drop_path(self.norm2(self.mlp(x)), self.rate, self.training)


def shift_mask(side: int, window: int, shift: int) -> Tensor:
    """(windows, tokens, tokens): -100 between tokens that the roll brought together from opposite edges, else 0."""
    region = torch.zeros(side, dtype=torch.long)
    region[side - window : side - shift], region[side - shift :] = 1, 2
    labels = (region[:, None] * 3 + region[None, :]).float().view(1, side, side, 1)
    flat = to_windows(labels, window).squeeze(-1)
    return torch.where(flat[:, None] == flat[:, :, None], 0.0, -100.0)


class Merge(nn.Module):
    """Four neighbours into one token of twice the width."""

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)
        self.norm = nn.LayerNorm(2 * width)

    def forward(self, x: Tensor) -> Tensor:
        grid = x.view(len(x), self.side, self.side, -1)
        corners = [grid[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.norm(self.reduction(torch.cat(corners, dim=-1).flatten(1, 2)))  # type: ignore[no-any-return]


class SwinV2(nn.Module):
    """Images (batch, 3, side, side) to class logits."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        side = config.image // 4
        self.patches, self.patch_norm = nn.Conv2d(3, config.width, 4, stride=4), nn.LayerNorm(config.width)
        rates = iter(torch.linspace(0, config.drop_path, sum(config.depths), device="cpu").tolist())
        stages: list[nn.Module] = []
        for stage, depth in enumerate(config.depths):
            stages += [Block(config, stage, side, i % 2 == 1, next(rates)) for i in range(depth)]
            if stage < len(config.depths) - 1:
                stages.append(Merge(config.width * 2**stage, side))
                side //= 2
        self.stages = nn.Sequential(*stages)
        last = config.width * 2 ** (len(config.depths) - 1)
        self.norm, self.head = nn.LayerNorm(last), nn.Linear(last, config.classes)
        self.apply(_init)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch_norm(self.patches(images).flatten(2).transpose(1, 2))
        x = self.norm(self.stages(x))
        return self.head(F.adaptive_avg_pool1d(x.transpose(1, 2), 1).flatten(1))  # type: ignore[no-any-return]


def _init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, Block):
        # Each branch starts at zero by its norm.
        nn.init.zeros_(module.norm1.weight)
        nn.init.zeros_(module.norm2.weight)
