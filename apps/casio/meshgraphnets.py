"""MeshGraphNets: learned simulation on a triangle mesh, training (Pfaff et al. 2021).

Encode, 15 message-passing blocks, decode; every MLP has two hidden layers of 128 and ends in a LayerNorm, except the
decoder's. One step takes one mesh: noise on the state, edges from the triangles (pack, unique, unpack, both ways),
relative positions by gather, three online normalizers, the network, a masked mean of squared errors, Adam with a
decaying learning rate. The meshes are made here: a channel with a cylinder (flow) and a hanging flag (cloth), with as
many nodes and edges as the published data has.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps import steps
from apps.casio.common import adam, make
from apps.workload import Built, Request

NODE_TYPES = 9
NORMAL, OBSTACLE, HANDLE, INFLOW, OUTFLOW, WALL = 0, 1, 3, 4, 5, 6


@dataclass(frozen=True)
class Config:
    """``rows`` x ``columns`` grid points, before the cylinder is cut out. ``case``: cfd or cloth."""

    case: str = "cfd"
    rows: int = 32
    columns: int = 60
    latent: int = 128
    blocks: int = 15


def build(request: Request) -> Built:
    """One mesh a step; the batch must be 1, as in the study."""
    config = Config(**request.config)
    model = make(request, lambda: Simulator(config))
    # The statistics are sums over many values: they stay in float32 in every precision.
    model.normalizers.float()
    mesh = make_mesh(config, request)

    def decayed(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = adam(request, lr=1e-4)(parameters)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.1 ** (n / 5e6) + 1e-2)
        optimizer.register_step_post_hook(lambda *_: schedule.step())
        return optimizer

    notes = (
        f"mesh made here: {mesh.positions.shape[0]:,} nodes, {mesh.cells.shape[0]:,} triangles, random state",
        "unique sorts the edges (the original's does not); its result has a data-dependent size, as has the loss mask",
    )
    return steps.built(
        request,
        model,
        lambda: model.loss(mesh),
        loss=lambda value: value,
        optimizer=decayed,
        items=1,
        item_name="meshes",
        notes=notes,
    )


@dataclass
class Mesh:
    """``positions`` (nodes, 2) at rest, ``cells`` (triangles, 3) int64, ``types`` (nodes,) int64; the ``state``
    (nodes, width) now, before (cloth only) and after: velocity for cfd, world position for cloth."""

    positions: Tensor
    cells: Tensor
    types: Tensor
    previous: Tensor
    state: Tensor
    following: Tensor


def make_mesh(config: Config, request: Request) -> Mesh:
    """A jittered grid of two triangles a cell; for cfd, triangles that touch the cylinder and lonely nodes are gone."""
    rows, columns = config.rows, config.columns
    y, x = torch.meshgrid(torch.linspace(0, 1, rows), torch.linspace(0, 2, columns), indexing="ij")
    grid = torch.stack([x, y], dim=-1)
    inside = torch.zeros(rows, columns, 1)
    inside[1:-1, 1:-1] = 1
    grid = grid + inside * (torch.rand(rows, columns, 2) - 0.5) * (0.4 / rows)
    index = torch.arange(rows * columns).view(rows, columns)
    a, b, c, d = index[:-1, :-1], index[:-1, 1:], index[1:, :-1], index[1:, 1:]
    cells = torch.cat([torch.stack([a, b, d], -1).view(-1, 3), torch.stack([a, d, c], -1).view(-1, 3)])
    positions, types = grid.view(-1, 2), torch.full((rows, columns), NORMAL)
    if config.case == "cfd":
        types[:, 0], types[:, -1] = INFLOW, OUTFLOW
        types[0], types[-1] = WALL, WALL
        to_cylinder = (positions - torch.tensor([0.5, 0.5])).norm(dim=1)
        cells = cells[(to_cylinder[cells] > 0.08).all(dim=1)]
        kept, cells = torch.unique(cells, return_inverse=True)
        positions, to_cylinder, flat = positions[kept], to_cylinder[kept], types.view(-1)[kept]
        flat[to_cylinder < 0.08 + 1.5 / rows] = OBSTACLE
    else:
        types[0, 0] = types[-1, 0] = HANDLE
        flat = types.view(-1)
    nodes, width = positions.shape[0], 2 if config.case == "cfd" else 3
    state = torch.randn(nodes, width) if config.case == "cfd" else F.pad(positions, (0, 1)) + torch.randn(nodes, 3) / 99
    previous = state + torch.randn(nodes, width) / 100
    following = state + torch.randn(nodes, width) / 100
    return Mesh(*(t.to(request.device) for t in (positions, cells, flat, previous, state, following)))


def edges_of(cells: Tensor) -> tuple[Tensor, Tensor]:
    """Both directions of every distinct edge of the triangles (n, 3): senders and receivers, int64."""
    pairs = torch.cat([cells[:, 0:2], cells[:, 1:3], torch.stack([cells[:, 2], cells[:, 0]], dim=1)])
    packed = (pairs.amax(dim=1) << 32) | pairs.amin(dim=1)
    unique = torch.unique(packed)
    one, other = unique >> 32, unique & 0xFFFFFFFF
    return torch.cat([one, other]), torch.cat([other, one])


class Normalizer(nn.Module):
    """Online mean and deviation of every feature, over all rows seen so far."""

    total: Tensor
    squares: Tensor
    rows: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(width))
        self.register_buffer("squares", torch.zeros(width))
        self.register_buffer("rows", torch.zeros(()))

    def forward(self, values: Tensor) -> Tensor:
        if self.training:
            self.total += values.sum(dim=0)
            self.squares += values.square().sum(dim=0)
            self.rows += values.shape[0]
        mean, deviation = self.moments()
        return (values - mean) / deviation

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation, the latter never below 1e-8."""
        rows = self.rows.clamp(min=1)
        mean = self.total / rows
        variance = self.squares / rows - mean.square()
        return mean, variance.clamp(min=0).sqrt().clamp(min=1e-8)


def mlp(inputs: int, latent: int, outputs: int, norm: bool = True) -> nn.Sequential:
    """Two hidden layers with ReLU, one output layer, LayerNorm."""
    layers = [nn.Linear(inputs, latent), nn.ReLU(), nn.Linear(latent, latent), nn.ReLU(), nn.Linear(latent, outputs)]
    return nn.Sequential(*layers, nn.LayerNorm(outputs)) if norm else nn.Sequential(*layers)


class Block(nn.Module):
    """One round of messages: edges from their two ends, nodes from the sum of their incoming edges, both residual."""

    def __init__(self, latent: int) -> None:
        super().__init__()
        self.edge = mlp(3 * latent, latent, latent)
        self.node = mlp(2 * latent, latent, latent)

    def forward(self, nodes: Tensor, edges: Tensor, senders: Tensor, receivers: Tensor) -> tuple[Tensor, Tensor]:
        update = self.edge(torch.cat([nodes[senders], nodes[receivers], edges], dim=-1))
        incoming = torch.zeros_like(nodes).index_add_(0, receivers, update)
        return nodes + self.node(torch.cat([nodes, incoming], dim=-1)), edges + update


class Simulator(nn.Module):
    """Features, normalizers, network and loss of one case."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        cloth = config.case == "cloth"
        self.cloth, width = cloth, 3 if cloth else 2
        self.noise, self.gamma = (0.003, 0.1) if cloth else (0.02, 1.0)
        node_in, edge_in = width + NODE_TYPES, 7 if cloth else 3
        self.normalizers = nn.ModuleDict(
            {"node": Normalizer(node_in), "edge": Normalizer(edge_in), "output": Normalizer(width)}
        )
        self.node_encoder = mlp(node_in, config.latent, config.latent)
        self.edge_encoder = mlp(edge_in, config.latent, config.latent)
        self.blocks = nn.ModuleList(Block(config.latent) for _ in range(config.blocks))
        self.decoder = mlp(config.latent, config.latent, width, norm=False)

    def loss(self, mesh: Mesh) -> Tensor:
        """Mean squared error of the normalized change of state, over the nodes that are free to move."""
        free = mesh.types == NORMAL
        noise = torch.where(free[:, None], torch.randn_like(mesh.state) * self.noise, 0.0)
        state = mesh.state + noise
        if self.cloth:
            velocity = state - mesh.previous
            change = mesh.following + (1 - self.gamma) * noise - 2 * state + mesh.previous
        else:
            velocity = state
            change = mesh.following + (1 - self.gamma) * noise - state
            free = free | (mesh.types == OUTFLOW)
        senders, receivers = edges_of(mesh.cells)
        between = [mesh.positions[senders] - mesh.positions[receivers]]
        if self.cloth:
            between.insert(0, state[senders] - state[receivers])
        edges = torch.cat([part for delta in between for part in (delta, delta.norm(dim=-1, keepdim=True))], dim=-1)
        nodes = torch.cat([velocity, F.one_hot(mesh.types, NODE_TYPES)], dim=-1)
        predicted = self(nodes, edges, senders, receivers)
        target = self.normalizers["output"](change)
        return (target - predicted).square().sum(dim=-1)[free].mean()

    def forward(self, nodes: Tensor, edges: Tensor, senders: Tensor, receivers: Tensor) -> Tensor:
        """Normalized change of state of every node, float32."""
        precision = self.decoder[0].weight.dtype
        nodes = self.node_encoder(self.normalizers["node"](nodes).to(precision))
        edges = self.edge_encoder(self.normalizers["edge"](edges).to(precision))
        for block in self.blocks:
            nodes, edges = block(nodes, edges, senders, receivers)
        return self.decoder(nodes).float()  # type: ignore[no-any-return]
