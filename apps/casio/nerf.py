"""NeRF: a radiance field trained from rays, with coarse and importance sampling (Mildenhall et al. 2020).

1,024 rays a step in normalized device coordinates (the fern scene's setting): 64 stratified samples through the coarse
network, 64 more drawn where it saw something (cumsum, searchsorted, gather), all 128 sorted and sent through the fine
network in chunks of 65,536 points. The two MLPs run in the request's precision, everything else in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apps import steps
from apps.casio.common import adam, make
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    samples: int = 64
    importance: int = 64
    layers: int = 8
    width: int = 256
    point_frequencies: int = 10
    view_frequencies: int = 4
    chunk: int = 65_536
    noise: float = 1.0


def build(request: Request) -> Built:
    """``batch`` rays a step. ``train``: squared error of both networks' colours. ``infer``: the colours."""
    config = Config(**request.config)
    model = make(request, lambda: Renderer(config))
    direction = steps.normal(request, request.batch, 3, dtype=torch.float32) * 0.3
    direction[:, 2] = -1.0
    origin = steps.normal(request, request.batch, 3, dtype=torch.float32) * 0.1
    target = torch.rand(request.batch, 3, device=request.device)
    return steps.built(
        request,
        model,
        lambda: model(origin, direction),
        loss=lambda colours: sum((colour - target).square().mean() for colour in colours),
        optimizer=adam(request, lr=5e-4),
        item_name="rays",
        notes=("rays and colours are random; networks in the run's precision, sampling and rendering in float32",),
    )


def encoded(x: Tensor, frequencies: int) -> Tensor:
    """``x`` with sine and cosine of it at each power of two: (..., 3) to (..., 3 + 6 * frequencies)."""
    parts = [x]
    for power in range(frequencies):
        parts += [torch.sin(x * 2.0**power), torch.cos(x * 2.0**power)]
    return torch.cat(parts, dim=-1)


class Field(nn.Module):
    """Colour and density of points seen from a direction; the encoded point enters again after the fifth layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        point, view, width = 3 + 6 * config.point_frequencies, 3 + 6 * config.view_frequencies, config.width
        self.skip = config.layers // 2
        sizes = [point, *[width] * (config.layers - 1)]
        self.layers = nn.ModuleList(
            nn.Linear(size + (point if i == self.skip + 1 else 0), width) for i, size in enumerate(sizes)
        )
        self.density = nn.Linear(width, 1)
        self.bottleneck = nn.Linear(width, width)
        self.view = nn.Linear(width + view, width // 2)
        self.colour = nn.Linear(width // 2, 3)

    def forward(self, point: Tensor, view: Tensor) -> Tensor:
        """(points, 4): colour before the sigmoid, density before the ReLU."""
        x = point
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x))
            if i == self.skip:
                x = torch.cat([point, x], dim=-1)
        density = self.density(x)
        x = torch.relu(self.view(torch.cat([self.bottleneck(x), view], dim=-1)))
        return torch.cat([self.colour(x), density], dim=-1)


class Renderer(nn.Module):
    """Two fields and everything between a ray and its colour."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.coarse, self.fine = Field(config), Field(config)

    def forward(self, origin: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        """Colours (rays, 3) of the fine and of the coarse network, for rays that look down the negative z axis."""
        view = direction / direction.norm(dim=-1, keepdim=True)
        origin, direction = to_ndc(origin, direction)
        depths = self._stratified(origin)
        coarse, weights = self._render(self.coarse, origin, direction, view, depths)
        middle = 0.5 * (depths[:, 1:] + depths[:, :-1])
        extra = sample_pdf(middle, weights[:, 1:-1], self.config.importance, self.training).detach()
        depths, _ = torch.sort(torch.cat([depths, extra], dim=-1), dim=-1)
        fine, _ = self._render(self.fine, origin, direction, view, depths)
        return fine, coarse

    def _stratified(self, origin: Tensor) -> Tensor:
        depths = torch.linspace(0.0, 1.0, self.config.samples, device=origin.device).expand(len(origin), -1)
        middle = 0.5 * (depths[:, 1:] + depths[:, :-1])
        upper = torch.cat([middle, depths[:, -1:]], dim=-1)
        lower = torch.cat([depths[:, :1], middle], dim=-1)
        return lower + (upper - lower) * torch.rand_like(depths) if self.training else depths

    def _render(
        self, field: Field, origin: Tensor, direction: Tensor, view: Tensor, depths: Tensor
    ) -> tuple[Tensor, Tensor]:
        points = origin[:, None] + direction[:, None] * depths[..., None]
        raw = self._query(field, points, view)
        return composite(raw, depths, direction, self.config.noise if self.training else 0.0)

    def _query(self, field: Field, points: Tensor, view: Tensor) -> Tensor:
        precision = field.density.weight.dtype
        flat = encoded(points.reshape(-1, 3), self.config.point_frequencies)
        views = encoded(view[:, None].expand(points.shape).reshape(-1, 3), self.config.view_frequencies)
        flat, views = flat.to(precision), views.to(precision)
        size = self.config.chunk
        raw = [field(flat[i : i + size], views[i : i + size]) for i in range(0, len(flat), size)]
        return torch.cat(raw).float().view(*points.shape[:-1], 4)


def to_ndc(origin: Tensor, direction: Tensor, focal: float = 1.2, near: float = 1.0) -> tuple[Tensor, Tensor]:
    """Rays in normalized device coordinates, from the near plane (equations 25 and 26 of the paper's appendix);
    ``focal`` is in units of half the image."""
    t = -(near + origin[:, 2]) / direction[:, 2]
    origin = origin + t[:, None] * direction
    x, y, z = origin.unbind(-1)
    dx, dy, dz = direction.unbind(-1)
    start = torch.stack([-focal * x / z, -focal * y / z, 1.0 + 2.0 * near / z], dim=-1)
    along = torch.stack([-focal * (dx / dz - x / z), -focal * (dy / dz - y / z), -2.0 * near / z], dim=-1)
    return start, along


def composite(raw: Tensor, depths: Tensor, direction: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Colours (rays, 3) and weights (rays, samples) by volume rendering: density to opacity over each interval, times
    the light that is left (exclusive product)."""
    gaps = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 1e10)], dim=-1)
    gaps = gaps * direction.norm(dim=-1, keepdim=True)
    colour = torch.sigmoid(raw[..., :3])
    density = raw[..., 3]
    if noise > 0:
        density = density + torch.randn_like(density) * noise
    opacity = 1.0 - torch.exp(-torch.relu(density) * gaps)
    left = torch.cat([torch.ones_like(opacity[:, :1]), 1.0 - opacity + 1e-10], dim=-1)
    weights = opacity * torch.cumprod(left, dim=-1)[:, :-1]
    return (weights[..., None] * colour).sum(dim=-2), weights


def sample_pdf(bins: Tensor, weights: Tensor, count: int, random: bool) -> Tensor:
    """``count`` depths a ray by inverting the piecewise linear distribution of ``weights`` (rays, n) over ``bins``
    (rays, n + 1); evenly spaced quantiles unless ``random``."""
    weights = weights.detach() + 1e-5
    pdf = weights / weights.sum(dim=-1, keepdim=True)
    cdf = torch.cumsum(pdf, dim=-1)
    cdf = torch.cat([torch.zeros_like(cdf[:, :1]), cdf], dim=-1)
    if random:
        u = torch.rand(len(bins), count, device=bins.device)
    else:
        u = torch.linspace(0.0, 1.0, count, device=bins.device).repeat(len(bins), 1)
    after = torch.searchsorted(cdf, u, right=True)
    below, above = (after - 1).clamp(min=0), after.clamp(max=cdf.shape[-1] - 1)
    low, high = torch.gather(cdf, 1, below), torch.gather(cdf, 1, above)
    span = high - low
    span = torch.where(span < 1e-5, torch.ones_like(span), span)
    left, right = torch.gather(bins, 1, below), torch.gather(bins, 1, above)
    return left + (u - low) / span * (right - left)
