"""Small models for the backends to run: an MLP with a norm, built the way a user's file builds one."""

from __future__ import annotations

import torch

from apps.steps import built


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.down(torch.nn.functional.gelu(self.up(x))))


class Dictionary(torch.nn.Module):
    """Takes a keyword and returns a mapping that also holds no tensor, as transformers' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(64), Block(64))

    def forward(self, *, x: torch.Tensor, scale: float = 1.0) -> dict[str, object]:
        return {"hidden": self.blocks(x) * scale, "name": "nothing to export"}


def build(request):
    torch.manual_seed(request.seed)
    model, x = Dictionary(), torch.randn(request.batch, 32, 64)
    return built(request, model, lambda: model(x=x, scale=0.5))


def breaks(request):
    """A graph break in every step."""
    torch.manual_seed(request.seed)
    model, x = Block(32), torch.randn(4, 32)

    class Broken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.inner(x)
            torch._dynamo.graph_break()
            return y * 2

    broken = Broken()
    return built(request, broken, lambda: broken(x))


def no_module(_request):
    return lambda: torch.mm(torch.ones(4, 4), torch.ones(4, 4))


def unexportable(request):
    class Data(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            return y if float(y.sum()) > 0 else torch.linalg.eigvals(y).real

    model, x = Data(), torch.randn(4, 4)
    return built(request, model, lambda: model(x))


def changing(request):
    """A bare Sequential, called with another shape from the ninth step on."""
    module = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU())
    shapes, taken = (torch.randn(4, 16), torch.randn(2, 2, 2, 16)), [0]

    def forward() -> torch.Tensor:
        taken[0] += 1
        return module(shapes[taken[0] > 8])

    return built(request, module, forward)
