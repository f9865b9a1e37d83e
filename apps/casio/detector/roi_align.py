"""RoIAlign in plain PyTorch (He et al. 2017): gathers of four neighbours, weighted and averaged."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from apps.casio.detector.boxes import area


def roi_align(features: Tensor, rois: Tensor, size: int, scale: float, ratio: int = 2, aligned: bool = True) -> Tensor:
    """(rois, channels, size, size) from features (images, channels, height, width).

    ``rois`` (n, 5): image index, then the box in pixels of the image, which ``scale`` brings to the feature map. Each
    bin is the mean of ``ratio`` x ``ratio`` bilinear samples; samples more than one pixel outside count as zero.
    ``aligned`` moves boxes by half a pixel, so that pixel centres lie at whole coordinates.
    """
    channels, height, width = features.shape[1:]
    box = rois[:, 1:].float() * scale - (0.5 if aligned else 0.0)
    extent = box[:, 2:] - box[:, :2]
    if not aligned:
        extent = extent.clamp(min=1.0)
    steps = (torch.arange(size * ratio, device=rois.device) + 0.5) / (size * ratio)
    x_low, x_high, x_share, x_inside = _neighbours(box[:, 0:1] + extent[:, 0:1] * steps, width)
    y_low, y_high, y_share, y_inside = _neighbours(box[:, 1:2] + extent[:, 1:2] * steps, height)
    inside = (y_inside[:, :, None] & x_inside[:, None, :]).float()
    # Channels last, so that one gathered row is one pixel.
    pixels = features.permute(0, 2, 3, 1).reshape(-1, channels)
    image = rois[:, 0].long()[:, None, None] * height
    total: Tensor | None = None
    for y, y_weight in ((y_low, 1 - y_share), (y_high, y_share)):
        for x, x_weight in ((x_low, 1 - x_share), (x_high, x_share)):
            index = (image + y[:, :, None]) * width + x[:, None, :]
            weight = (y_weight[:, :, None] * x_weight[:, None, :] * inside).to(features.dtype)
            part = pixels.index_select(0, index.view(-1)).view(*index.shape, channels) * weight[..., None]
            total = part if total is None else total + part
    bins = total.view(len(rois), size, ratio, size, ratio, channels)  # type: ignore[union-attr]
    return bins.mean(dim=(2, 4)).permute(0, 3, 1, 2)


def _neighbours(place: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The two pixels about each coordinate, the share of the higher one, and whether it is inside at all."""
    inside = (place >= -1.0) & (place <= limit)
    place = place.clamp(0.0, limit - 1.0)
    low = place.floor().long()
    return low, (low + 1).clamp(max=limit - 1), place - low, inside


class LevelledRoIAlign(nn.Module):
    """RoIAlign on the pyramid level that fits each box: 224 pixels a side on the third, a factor of two a level."""

    def __init__(self, strides: Sequence[int], size: int, aligned: bool = True) -> None:
        super().__init__()
        self.strides, self.size, self.aligned = strides, size, aligned

    def forward(self, levels: list[Tensor], rois: Tensor) -> Tensor:
        """(rois, channels, size, size); ``rois`` (n, 5) as in :func:`roi_align`."""
        side = area(rois[:, 1:].float()).clamp(min=1e-6).sqrt()
        level = torch.floor(2 + torch.log2(side / 224 + 1e-6)).clamp(0, len(self.strides) - 1)
        result = levels[0].new_zeros(len(rois), levels[0].shape[1], self.size, self.size)
        for i, (features, stride) in enumerate(zip(levels, self.strides, strict=False)):
            members = torch.where(level == i)[0]
            if len(members):
                result[members] = roi_align(features, rois[members], self.size, 1 / stride, aligned=self.aligned)
        return result


def with_image(boxes: Sequence[Tensor]) -> Tensor:
    """Boxes of each image to one (n, 5) tensor with the image's index first."""
    return torch.cat([torch.cat([b.new_full((len(b), 1), i), b], dim=1) for i, b in enumerate(boxes)])
