"""RNN-T: streaming speech recognition with LSTMs (Graves 2012; MLPerf's sizes).

Inference decodes greedily: for each encoded frame the joint network is asked for a symbol, read on the host, until it
says blank. Training joins every frame with every symbol and, as in the 1,000-kernels study, sums the outputs.
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
    """``frames`` of audio, three stacked in one; ``symbols`` of text in training; ``most`` symbols a frame in decoding."""

    frames: int = 400
    symbols: int = 100
    mels: int = 240
    encoder: int = 1024
    before: int = 2
    after: int = 3
    prediction: int = 320
    layers: int = 2
    joint: int = 512
    vocabulary: int = 29
    most: int = 1


def build(request: Request) -> Built:
    """``batch`` utterances a step, all of the same length."""
    config = Config(**request.config)
    model = make(request, lambda: RNNT(config))
    audio = steps.normal(request, config.frames, request.batch, config.mels)
    if request.mode == "train":
        text = steps.integers(request, config.vocabulary - 1, request.batch, config.symbols)
        return steps.built(request, model, lambda: model(audio, text), item_name="utterances", notes=sum_notes(request))
    notes = (
        f"greedy decoding reads every symbol on the host with .item(), as MLPerf's does; at most {config.most} a frame "
        "(MLPerf: 30, which only random weights would reach)",
    )
    return steps.built(request, model, lambda: model.decode(audio), item_name="utterances", notes=notes)


class RNNT(nn.Module):
    """Encoder with a reduction of time by two, prediction network, joint network. The last symbol is blank."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.blank = config, config.vocabulary - 1
        self.before = nn.LSTM(config.mels, config.encoder, config.before)
        self.after = nn.LSTM(2 * config.encoder, config.encoder, config.after)
        self.embedding = nn.Embedding(config.vocabulary - 1, config.prediction)
        self.prediction = nn.LSTM(config.prediction, config.prediction, config.layers)
        self.joint = nn.Sequential(
            nn.Linear(config.encoder + config.prediction, config.joint),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(config.joint, config.vocabulary),
        )

    def forward(self, audio: Tensor, text: Tensor) -> Tensor:
        """Logits (batch, frames / 2, symbols + 1, vocabulary); audio (frames, batch, mels) and text (batch, symbols)."""
        encoded = self.encode(audio).transpose(0, 1)
        embedded = self.embedding(text).transpose(0, 1)
        start = torch.zeros_like(embedded[:1])
        predicted = self.prediction(torch.cat([start, embedded]))[0].transpose(0, 1)
        frames, symbols = encoded.shape[1], predicted.shape[1]
        both = [encoded[:, :, None].expand(-1, -1, symbols, -1), predicted[:, None].expand(-1, frames, -1, -1)]
        return self.joint(torch.cat(both, dim=-1))  # type: ignore[no-any-return]

    def encode(self, audio: Tensor) -> Tensor:
        """(frames / 2, batch, encoder)."""
        x, _ = self.before(audio)
        frames, batch, width = x.shape
        x = x[: frames // 2 * 2].transpose(0, 1).reshape(batch, frames // 2, 2 * width).transpose(0, 1)
        return self.after(x.contiguous())[0]  # type: ignore[no-any-return]

    def decode(self, audio: Tensor) -> list[list[int]]:
        """Symbols of each utterance."""
        encoded = self.encode(audio)
        return [self._greedy(encoded[:, i]) for i in range(encoded.shape[1])]

    def _greedy(self, encoded: Tensor) -> list[int]:
        found: list[int] = []
        predicted, state = self._predict(None, None)
        for frame in encoded:
            for _ in range(self.config.most):
                logits = self.joint(torch.cat([frame, predicted]))
                symbol = int(logits.argmax().item())
                if symbol == self.blank:
                    break
                found.append(symbol)
                predicted, state = self._predict(symbol, state)
        return found

    def _predict(self, symbol: int | None, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        weight = self.embedding.weight
        if symbol is None:
            embedded = weight.new_zeros(1, 1, weight.shape[1])
        else:
            embedded = self.embedding(torch.tensor([[symbol]], device=weight.device))
        predicted, state = self.prediction(embedded, state)
        return predicted[0, 0], state
