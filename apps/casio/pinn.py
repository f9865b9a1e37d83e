"""Physics-informed networks, full-batch training with Adam (Raissi et al. 2019): a small tanh MLP, and most of the work
in nested derivatives of it.

Four equations: Navier-Stokes (two unknown coefficients found from data) and Schrodinger in continuous time; Allen-Cahn
and Korteweg-de Vries in discrete time, one implicit Runge-Kutta step of many stages, whose derivatives by x go forward
by differentiating twice backward. The data come from closed forms, at random points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apps import steps
from apps.casio.common import adam, make
from apps.casio.runge_kutta import gauss_legendre
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    """``points`` of the residual; ``data`` points of the initial and of each boundary condition (or the second
    snapshot, for kdv); ``stages`` of the Runge-Kutta step in discrete time."""

    equation: str = "navier-stokes"
    width: int = 20
    hidden: int = 8
    points: int = 5000
    data: int = 0
    stages: int = 0


def build(request: Request) -> Built:
    """One step is one pass over all points, so the batch must be 1."""
    config = Config(**request.config)
    problem = PROBLEMS[config.equation]
    model = make(request, lambda: problem(config))
    steps.seed(request)
    model.place(request)
    return steps.built(
        request,
        model,
        model.loss,
        loss=lambda value: value,
        optimizer=adam(request, lr=1e-3),
        items=config.points,
        item_name="points",
        notes=(f"data from a closed form at random points; {model.remark}",),
    )


def derivative(of: Tensor, by: Tensor) -> Tensor:
    """d of / d by, row by row, differentiable again. Rows of ``of`` must depend on their own row of ``by`` only."""
    return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]


def forward_derivative(of: Tensor, by: Tensor) -> Tensor:
    """d of / d by for ``of`` (points, outputs) and ``by`` (points, 1), all outputs at once: the gradient by the weights
    of the outputs of a gradient that is linear in them."""
    weights = torch.ones_like(of, requires_grad=True)
    gradient = torch.autograd.grad(of, by, weights, create_graph=True)[0]
    return torch.autograd.grad(gradient, weights, torch.ones_like(gradient), create_graph=True)[0]


class Problem(nn.Module):
    """A network over the box from ``low`` to ``high``, which it scales to [-1, 1]."""

    low: Tensor
    high: Tensor
    remark = ""

    def __init__(self, low: list[float], high: list[float], config: Config, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("low", torch.tensor(low))
        self.register_buffer("high", torch.tensor(high))
        sizes = [len(low), *[config.width] * config.hidden, outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        for layer in self.layers:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, *inputs: Tensor) -> Tensor:
        """(points, outputs) from one (points, 1) column per coordinate."""
        x = torch.cat(inputs, dim=1)
        x = 2.0 * (x - self.low) / (self.high - self.low) - 1.0
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)  # type: ignore[no-any-return]

    def place(self, request: Request) -> None:
        """Make the points and the data on the request's device."""
        raise NotImplementedError

    def loss(self) -> Tensor:
        """One scalar over all points."""
        raise NotImplementedError

    def _uniform(self, request: Request, count: int) -> list[Tensor]:
        """One (count, 1) column per coordinate, uniform in the box; leaves that gradients are taken by."""
        spread = torch.rand(count, len(self.low), device=request.device)
        points = (self.low.float() + spread * (self.high.float() - self.low.float())).to(self.low.dtype)
        return [column.clone().requires_grad_() for column in points.split(1, dim=1)]


class NavierStokes(Problem):
    """Flow in two dimensions from velocities alone; the net gives stream function and pressure. Two coefficients of the
    equation are found too. Data: the Taylor-Green vortex, which solves it exactly."""

    remark = "the last bias gets no gradient: stream function and pressure enter by derivatives only"

    def __init__(self, config: Config) -> None:
        super().__init__([1.0, -2.0, 0.0], [8.0, 2.0, 20.0], config, outputs=2)
        self.convection, self.viscosity = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def place(self, request: Request) -> None:
        self.x, self.y, self.t = self._uniform(request, self.config.points)
        with torch.no_grad():
            decay = torch.exp(-2 * 0.01 * self.t)
            self.u = -torch.cos(self.x) * torch.sin(self.y) * decay
            self.v = torch.sin(self.x) * torch.cos(self.y) * decay

    def loss(self) -> Tensor:
        x, y, t = self.x, self.y, self.t
        psi, p = self(x, y, t).split(1, dim=1)
        u, v = derivative(psi, y), -derivative(psi, x)
        u_t, u_x, u_y = derivative(u, t), derivative(u, x), derivative(u, y)
        u_xx, u_yy = derivative(u_x, x), derivative(u_y, y)
        v_t, v_x, v_y = derivative(v, t), derivative(v, x), derivative(v, y)
        v_xx, v_yy = derivative(v_x, x), derivative(v_y, y)
        p_x, p_y = derivative(p, x), derivative(p, y)
        f_u = u_t + self.convection * (u * u_x + v * u_y) + p_x - self.viscosity * (u_xx + u_yy)
        f_v = v_t + self.convection * (u * v_x + v * v_y) + p_y - self.viscosity * (v_xx + v_yy)
        return (self.u - u).square().sum() + (self.v - v).square().sum() + f_u.square().sum() + f_v.square().sum()


class Schrodinger(Problem):
    """i h_t + h_xx / 2 + |h|^2 h = 0 with periodic boundaries; the net gives the real and imaginary parts u and v."""

    remark = "initial state 2 sech(x)"

    def __init__(self, config: Config) -> None:
        super().__init__([-5.0, 0.0], [5.0, math.pi / 2], config, outputs=2)

    def place(self, request: Request) -> None:
        self.x, self.t = self._uniform(request, self.config.points)
        self.x0, _ = self._uniform(request, self.config.data)
        self.t0 = torch.zeros_like(self.x0)
        _, self.tb = self._uniform(request, self.config.data)
        self.left = torch.full_like(self.tb, -5.0).requires_grad_()
        self.right = torch.full_like(self.tb, 5.0).requires_grad_()
        with torch.no_grad():
            self.u0 = 2.0 / torch.cosh(self.x0)

    def _parts(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        u, v = self(x, t).split(1, dim=1)
        return u, v, derivative(u, x), derivative(v, x)

    def loss(self) -> Tensor:
        u0, v0 = self(self.x0, self.t0).split(1, dim=1)
        ul, vl, ul_x, vl_x = self._parts(self.left, self.tb)
        ur, vr, ur_x, vr_x = self._parts(self.right, self.tb)
        u, v, u_x, v_x = self._parts(self.x, self.t)
        u_t, v_t = derivative(u, self.t), derivative(v, self.t)
        u_xx, v_xx = derivative(u_x, self.x), derivative(v_x, self.x)
        size = u.square() + v.square()
        f_u = u_t + 0.5 * v_xx + size * v
        f_v = v_t - 0.5 * u_xx - size * u
        terms = (self.u0 - u0, v0, ul - ur, vl - vr, ul_x - ur_x, vl_x - vr_x, f_u, f_v)
        return sum((term.square().mean() for term in terms), start=torch.zeros((), device=u.device, dtype=u.dtype))


class AllenCahn(Problem):
    """u_t = 0.0001 u_xx + 5 u - 5 u^3, one step of 0.8 with ``stages`` stages; the net gives all stages and the end."""

    remark = "start x^2 cos(pi x); Gauss-Legendre stages"
    weights: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__([-1.0], [1.0], config, outputs=config.stages + 1)
        self.register_buffer("weights", _stages_and_end(config.stages))

    def place(self, request: Request) -> None:
        (self.x,) = self._uniform(request, self.config.points)
        self.ends = torch.stack([self.low, self.high]).requires_grad_()
        with torch.no_grad():
            self.u0 = self.x.square() * torch.cos(math.pi * self.x)

    def loss(self) -> Tensor:
        after = self(self.x)
        u = after[:, :-1]
        u_xx = forward_derivative(forward_derivative(u, self.x), self.x)
        rate = 5.0 * u - 5.0 * u**3 + 0.0001 * u_xx
        before = after - 0.8 * (rate @ self.weights.T)
        ends = self(self.ends)
        ends_x = forward_derivative(ends, self.ends)
        return (
            (self.u0 - before).square().sum()
            + (ends[0] - ends[1]).square().sum()
            + (ends_x[0] - ends_x[1]).square().sum()
        )


class KortewegDeVries(Problem):
    """u_t + a u u_x + b u_xxx = 0 between two snapshots 0.6 apart; a and b are found. Data: a travelling soliton."""

    remark = "a soliton at two times; Gauss-Legendre stages"
    stage_weights: Tensor
    end_weights: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__([-1.0], [1.0], config, outputs=config.stages)
        both = _stages_and_end(config.stages)
        self.register_buffer("stage_weights", both[:-1])
        self.register_buffer("end_weights", both[-1:])
        self.a, self.log_b = nn.Parameter(torch.zeros(())), nn.Parameter(torch.full((), -6.0))

    def place(self, request: Request) -> None:
        (self.x0,), (self.x1,) = self._uniform(request, self.config.points), self._uniform(request, self.config.data)
        # u = 3c sech^2(sqrt(c / b) (x - c t) / 2) solves it for a = 1; here c = 0.3, b = 0.0025, t = 0 and 0.6.
        with torch.no_grad():
            self.u0 = 0.9 / torch.cosh(math.sqrt(120) / 2 * self.x0).square()
            self.u1 = 0.9 / torch.cosh(math.sqrt(120) / 2 * (self.x1 - 0.18)).square()

    def _stages(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u = self(x)
        u_x = forward_derivative(u, x)
        u_xxx = forward_derivative(forward_derivative(u_x, x), x)
        return u, -self.a * u * u_x - torch.exp(self.log_b) * u_xxx

    def loss(self) -> Tensor:
        u, rate = self._stages(self.x0)
        before = u - 0.6 * (rate @ self.stage_weights.T)
        u, rate = self._stages(self.x1)
        after = u + 0.6 * (rate @ (self.end_weights - self.stage_weights).T)
        return (self.u0 - before).square().sum() + (self.u1 - after).square().sum()


def _stages_and_end(stages: int) -> Tensor:
    """(stages + 1, stages): the Runge-Kutta matrix with the end weights as its last row."""
    matrix, weights, _ = gauss_legendre(stages)
    return torch.cat([torch.as_tensor(matrix), torch.as_tensor(weights)[None]]).float()


PROBLEMS: dict[str, Callable[[Config], Problem]] = {
    "navier-stokes": NavierStokes,
    "schrodinger": Schrodinger,
    "allen-cahn": AllenCahn,
    "kdv": KortewegDeVries,
}
