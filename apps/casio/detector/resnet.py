"""Residual networks as feature extractors (He et al. 2015), with the norm left open: detectors freeze it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Norm = Callable[[int], nn.Module]

# With random weights each block would double the activations' variance (trained statistics keep it in range), which is
# too much for half precision. A quarter on each branch's last frozen scale keeps sixteen blocks within a factor of e.
BRANCH_SCALE = 0.25


class EvalBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose statistics are fixed in training too, while its scale and shift are learned."""

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


class FrozenBatchNorm2d(nn.Module):
    """Batch norm with everything fixed, as two element-wise operators over precomputed scale and shift."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("weight", "running_var"):
            self.register_buffer(name, torch.ones(width))
        for name in ("bias", "running_mean"):
            self.register_buffer(name, torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.view(1, -1, 1, 1) * (self.running_var.view(1, -1, 1, 1) + 1e-5).rsqrt()
        return x * scale + (self.bias.view(1, -1, 1, 1) - self.running_mean.view(1, -1, 1, 1) * scale)


class Basic(nn.Module):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), norm(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), norm(width)
        self.shortcut = shortcut(inputs, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x), inplace=True)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 convolutions; four times ``width`` comes out."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), norm(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), norm(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), norm(4 * width)
        self.shortcut = shortcut(inputs, 4 * width, stride, norm)
        if not isinstance(self.bn3, nn.BatchNorm2d) or isinstance(self.bn3, EvalBatchNorm2d):
            nn.init.constant_(self.bn3.weight, BRANCH_SCALE)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x), inplace=True)


def shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module:
    """Identity, or a strided 1x1 convolution with norm where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))


class Features(nn.Module):
    """Stem and stages. ``blocks`` per stage; stage i has ``width * 2**i`` inside; ``strides`` per stage."""

    def __init__(
        self,
        block: type[Basic] | type[Bottleneck],
        blocks: Sequence[int],
        width: int = 64,
        norm: Norm = nn.BatchNorm2d,
        strides: Sequence[int] = (1, 2, 2, 2),
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), norm(width)
        self.stages, self.widths, inputs = nn.ModuleList(), [], width
        for i, (count, stride) in enumerate(zip(blocks, strides, strict=False)):
            stage = []
            for j in range(count):
                stage.append(block(inputs, width * 2**i, stride if j == 0 else 1, norm))
                inputs = width * 2**i * block.expansion
            self.stages.append(nn.Sequential(*stage))
            self.widths.append(inputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def freeze(self, stages: int) -> None:
        """Train neither the stem nor the first stages."""
        for part in (self.conv1, self.bn1, *self.stages[:stages]):
            part.requires_grad_(False)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Output of every stage."""
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.max_pool2d(x, 3, 2, 1)
        outputs = []
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return outputs
