"""Feature pyramid (Lin et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F


class FeaturePyramid(nn.Module):
    """Lateral 1x1 convolutions, nearest-neighbour sums from the top down, 3x3 convolutions, a last level by pooling."""

    def __init__(self, widths: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(width, outputs, 1) for width in widths)
        self.output = nn.ModuleList(nn.Conv2d(outputs, outputs, 3, padding=1) for _ in widths)
        for conv in (*self.lateral, *self.output):
            nn.init.kaiming_uniform_(conv.weight, a=1)
            nn.init.zeros_(conv.bias)

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """One level more than ``features``, finest first, all of the same width."""
        merged = [conv(x) for conv, x in zip(self.lateral, features, strict=True)]
        for i in range(len(merged) - 1, 0, -1):
            merged[i - 1] = merged[i - 1] + F.interpolate(merged[i], size=merged[i - 1].shape[-2:], mode="nearest")
        levels = [conv(x) for conv, x in zip(self.output, merged, strict=True)]
        return [*levels, F.max_pool2d(levels[-1], 1, stride=2)]
