"""3D U-Net: segmentation of volumes with instance norm (Cicek et al. 2016; MLPerf's kidney tumour model)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apps import steps
from apps.casio.common import make, sum_notes
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    side: int = 128
    widths: tuple[int, ...] = (32, 64, 128, 256, 320)
    classes: int = 3


def build(request: Request) -> Built:
    """``batch`` cubes of one channel a step."""
    config = Config(**request.config)
    model = make(request, lambda: UNet3D(config))
    volume = steps.normal(request, request.batch, 1, config.side, config.side, config.side)
    return steps.built(request, model, lambda: model(volume), item_name="volumes", notes=sum_notes(request))


def pair(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Two 3x3x3 convolutions, each with instance norm and ReLU; the first has the stride."""
    layers: list[nn.Module] = []
    for a, step in ((inputs, stride), (outputs, 1)):
        layers += [nn.Conv3d(a, outputs, 3, step, 1, bias=False), nn.InstanceNorm3d(outputs, affine=True), nn.ReLU()]
    return nn.Sequential(*layers)


class Up(nn.Module):
    """Double the side, join what came down on this level, two convolutions."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up, self.convs = nn.ConvTranspose3d(inputs, outputs, 2, stride=2), pair(2 * outputs, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.convs(torch.cat([self.up(x), skip], dim=1))  # type: ignore[no-any-return]


class UNet3D(nn.Module):
    """Volume (batch, 1, side, side, side) to logits (batch, classes, side, side, side)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        widths = config.widths
        self.first = pair(1, widths[0])
        self.down = nn.ModuleList(pair(a, b, stride=2) for a, b in itertools.pairwise((*widths, widths[-1])))
        upward = (widths[-1], *reversed(widths))
        self.up = nn.ModuleList(Up(a, b) for a, b in itertools.pairwise(upward))
        self.last = nn.Conv3d(widths[0], config.classes, 1)

    def forward(self, volume: Tensor) -> Tensor:
        levels = [self.first(volume)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up in self.up:
            x = up(x, levels.pop())
        return self.last(x)  # type: ignore[no-any-return]
