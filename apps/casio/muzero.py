"""MuZero with the Atari network, training (Schrittwieser et al. 2020; layer sizes of muzero-general's Breakout).

A step is the initial inference and four recurrent ones, the sum of every head, backward, SGD. The observation stacks 33
frames and 32 action planes; hidden states are scaled to [0, 1] per channel, with the masked in-place add of the
original (it makes an index of data-dependent size).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apps import steps
from apps.casio.common import make, sum_notes
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    stacked: int = 32
    side: int = 96
    channels: int = 256
    blocks: int = 16
    hidden: int = 256
    actions: int = 4
    support: int = 300
    unroll: int = 5


def build(request: Request) -> Built:
    """``train``: the unrolled step. ``infer``: the initial inference alone."""
    config = Config(**request.config)
    model = make(request, lambda: MuZero(config))
    observation = steps.normal(
        request, request.batch, 3 * (config.stacked + 1) + config.stacked, config.side, config.side
    )
    actions = steps.integers(request, config.actions, request.batch, config.unroll)
    forward = (lambda: model.unrolled(observation, actions)) if request.mode == "train" else lambda: model(observation)
    notes = sum_notes(
        request, "the constant reward of the initial inference is made, but not summed: its logarithm is -inf"
    )
    return steps.built(request, model, forward, item_name="positions", notes=notes)


class Residual(nn.Module):
    """conv-BN-ReLU-conv-BN, add, ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + x)


def tower(channels: int, blocks: int) -> nn.Sequential:
    """Residual blocks in a row."""
    return nn.Sequential(*(Residual(channels) for _ in range(blocks)))


def down(config: Config) -> nn.Sequential:
    """Observation to a sixteenth of its side, in two strided convolutions and two average pools."""
    planes, half, full = 3 * (config.stacked + 1) + config.stacked, config.channels // 2, config.channels
    return nn.Sequential(
        nn.Conv2d(planes, half, 3, stride=2, padding=1, bias=False),
        tower(half, 2),
        nn.Conv2d(half, full, 3, stride=2, padding=1, bias=False),
        tower(full, 3),
        nn.AvgPool2d(3, stride=2, padding=1),
        tower(full, 3),
        nn.AvgPool2d(3, stride=2, padding=1),
    )


class Head(nn.Module):
    """1x1 convolution, then a three-layer MLP with ELU over all positions."""

    def __init__(self, config: Config, outputs: int) -> None:
        super().__init__()
        side, hidden = config.side // 16, config.hidden
        self.conv = nn.Conv2d(config.channels, config.channels, 1)
        self.fc = nn.Sequential(
            nn.Linear(config.channels * side * side, hidden),
            nn.ELU(),
            nn.Linear(hidden, hidden),
            nn.ELU(),
            nn.Linear(hidden, outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).flatten(1))  # type: ignore[no-any-return]


def scaled(state: Tensor) -> Tensor:
    """Each channel of each sample to [0, 1] over its positions; channels that are flat get 1e-5 on their range."""
    flat = state.flatten(2)
    low = flat.min(dim=2, keepdim=True)[0].unsqueeze(-1)
    high = flat.max(dim=2, keepdim=True)[0].unsqueeze(-1)
    span = high - low
    span[span < 1e-5] += 1e-5
    return (state - low) / span


class MuZero(nn.Module):
    """Representation, dynamics and prediction."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.actions, self.support = config.actions, config.support
        bins = 2 * config.support + 1
        self.representation = nn.Sequential(down(config), tower(config.channels, config.blocks))
        self.dynamics = nn.Sequential(
            nn.Conv2d(config.channels + 1, config.channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(config.channels),
            nn.ReLU(),
            tower(config.channels, config.blocks),
        )
        self.reward = Head(config, bins)
        self.prediction = tower(config.channels, config.blocks)
        self.value, self.policy = Head(config, bins), Head(config, config.actions)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Initial inference: value (batch, 601), reward (certain zero, as logits), policy and the hidden state."""
        state = scaled(self.representation(observation))
        middle = torch.full((1, 1), self.support, device=state.device)
        certain = torch.zeros(1, 2 * self.support + 1, device=state.device).scatter(1, middle, 1.0)
        reward = torch.log(certain.repeat(len(observation), 1))
        value, policy = self.predict(state)
        return value, reward, policy, state

    def predict(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Value and policy logits of a hidden state."""
        features = self.prediction(state)
        return self.value(features), self.policy(features)

    def recur(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Next hidden state and reward logits after ``action`` (batch, 1) int64."""
        plane = torch.ones_like(state[:, :1]) * action[:, :, None, None] / self.actions
        following = self.dynamics(torch.cat([state, plane], dim=1))
        return scaled(following), self.reward(following)

    def unrolled(self, observation: Tensor, actions: Tensor) -> list[Tensor]:
        """Every head of the initial inference (not its constant reward) and of the recurrent steps after it."""
        value, _, policy, state = self(observation)
        heads = [value, policy]
        for i in range(1, actions.shape[1]):
            state, reward = self.recur(state, actions[:, i : i + 1])
            heads += [reward, *self.predict(state)]
        return heads
