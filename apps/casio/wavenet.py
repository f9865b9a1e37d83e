"""WaveNet: raw audio, sample by sample, training (van den Oord et al. 2016).

Five stacks of ten dilated layers of width 2. Dilation is done by moving time into the batch: pad, reshape, transpose, a
plain convolution, and back. That is kept here, twice a layer (filter and gate each), because it is where the model's
time goes. Activations are (batch, time, channels); the convolution wants (batch, channels, time).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps import steps
from apps.casio.common import adam, make
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    """``samples`` of audio that the network sees; its outputs are fewer by the receptive field less one."""

    samples: int = 67_467
    stacks: int = 5
    doublings: int = 10
    residual: int = 32
    dilated: int = 32
    skip: int = 512
    levels: int = 256


def build(request: Request) -> Built:
    """One step over ``batch`` pieces of audio (the study takes one)."""
    config = Config(**request.config)
    model = make(request, lambda: WaveNet(config))
    audio = torch.rand(request.batch, config.samples + 1, device=request.device) * 2 - 1
    notes = (
        f"{config.samples - model.receptive_field + 1:,} predictions a piece; the last layer's residual output, "
        "which nothing uses, is left out",
    )
    return steps.built(
        request,
        model,
        lambda: model.loss(audio),
        loss=lambda value: value,
        optimizer=adam(request, lr=1e-3),
        item_name="pieces",
        notes=notes,
    )


def mu_law(audio: Tensor, levels: int) -> Tensor:
    """Samples in [-1, 1] to int64 levels on the logarithmic scale of telephony (ITU-T G.711)."""
    mu = levels - 1
    magnitude = torch.log1p(mu * audio.abs().clamp(max=1.0)) / torch.log1p(torch.tensor(float(mu), device=audio.device))
    return ((torch.sign(audio) * magnitude + 1) / 2 * mu + 0.5).long()


def time_to_batch(x: Tensor, dilation: int) -> Tensor:
    """(batch, time, channels) to (dilation * batch, padded time / dilation, channels): every dilation-th sample becomes
    a neighbour."""
    batch, time, channels = x.shape
    padded = F.pad(x, (0, 0, 0, -time % dilation))
    rows = padded.reshape(batch * padded.shape[1] // dilation, dilation, channels).transpose(0, 1)
    return rows.reshape(batch * dilation, padded.shape[1] // dilation, channels)


def batch_to_time(x: Tensor, dilation: int) -> Tensor:
    """The way back; the padding stays at the end."""
    count, time, channels = x.shape
    rows = x.reshape(dilation, count // dilation * time, channels).transpose(0, 1)
    return rows.reshape(count // dilation, time * dilation, channels)


def conv(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Plain convolution over time, without padding, of (batch, time, channels)."""
    return F.conv1d(x.transpose(1, 2), weight, bias).transpose(1, 2)


def dilated(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    """Dilated convolution by :func:`time_to_batch`, without padding: ``(width - 1) * dilation`` samples fewer."""
    time = x.shape[1] - (weight.shape[2] - 1) * dilation
    if dilation == 1:
        return conv(x, weight, bias)
    y = batch_to_time(conv(time_to_batch(x, dilation), weight), dilation)[:, :time]
    return y if bias is None else y + bias


class Layer(nn.Module):
    """Gated dilated convolution with a skip output and, but for the last layer, a residual one."""

    def __init__(self, config: Config, dilation: int, last: bool) -> None:
        super().__init__()
        self.dilation = dilation
        self.filter = nn.Conv1d(config.residual, config.dilated, 2)
        self.gate = nn.Conv1d(config.residual, config.dilated, 2)
        self.skip = nn.Conv1d(config.dilated, config.skip, 1)
        self.dense = None if last else nn.Conv1d(config.dilated, config.residual, 1)

    def forward(self, x: Tensor, outputs: int) -> tuple[Tensor, Tensor]:
        """The next layer's input, and the skip output for the last ``outputs`` samples."""
        filtered = dilated(x, self.filter.weight, self.filter.bias, self.dilation)
        gated = dilated(x, self.gate.weight, self.gate.bias, self.dilation)
        y = torch.tanh(filtered) * torch.sigmoid(gated)
        skip = conv(y[:, y.shape[1] - outputs :], self.skip.weight, self.skip.bias)
        if self.dense is None:
            return y, skip
        return x[:, x.shape[1] - y.shape[1] :] + conv(y, self.dense.weight, self.dense.bias), skip


class WaveNet(nn.Module):
    """Distribution of the next sample over the levels, at every place with a full receptive field."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.levels = config.levels
        dilations = [2**i for _ in range(config.stacks) for i in range(config.doublings)]
        self.receptive_field = sum(dilations) + 2
        self.causal = nn.Conv1d(config.levels, config.residual, 2, bias=False)
        self.layers = nn.ModuleList(
            Layer(config, dilation, last=i == len(dilations) - 1) for i, dilation in enumerate(dilations)
        )
        self.post1 = nn.Conv1d(config.skip, config.skip, 1)
        self.post2 = nn.Conv1d(config.skip, config.levels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, levels) one-hot to logits (batch, time - receptive field + 1, levels)."""
        outputs = x.shape[1] - self.receptive_field + 1
        x = conv(x, self.causal.weight)
        total: Tensor | None = None
        for layer in self.layers:
            x, skip = layer(x, outputs)
            total = skip if total is None else total + skip
        y = conv(torch.relu(total), self.post1.weight, self.post1.bias)  # type: ignore[arg-type]
        return conv(torch.relu(y), self.post2.weight, self.post2.bias)

    def loss(self, audio: Tensor) -> Tensor:
        """Cross-entropy of every next sample, from audio (batch, samples + 1) in [-1, 1]."""
        hot = F.one_hot(mu_law(audio, self.levels), self.levels)
        logits = self(hot[:, :-1].to(self.causal.weight.dtype))
        target = hot[:, self.receptive_field :].reshape(-1, self.levels).float()
        return F.cross_entropy(logits.reshape(-1, self.levels).float(), target)
