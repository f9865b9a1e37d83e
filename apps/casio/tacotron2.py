"""Tacotron 2: text to mel spectrogram, teacher-forced training (Shen et al. 2018; NVIDIA's layer sizes).

The decoder is a Python loop over mel frames: prenet with dropout that is never off, an attention LSTM cell,
location-sensitive attention with cumulative weights, a decoder LSTM cell. Part of a step, as in the study: the mel
spectrograms of the batch are computed on the CPU and copied over, and the loss is read back with ``.item()``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from apps import steps
from apps.casio import mel
from apps.workload import Built, Request


@dataclass(frozen=True)
class Config:
    """``text`` tokens and ``frames`` of the longest sample; the others of a batch are shorter."""

    text: int = 106
    frames: int = 750
    symbols: int = 148
    mels: int = 80
    embedding: int = 512
    prenet: int = 256
    rnn: int = 1024
    attention: int = 128
    filters: int = 32
    filter_width: int = 31


def build(request: Request) -> Built:
    """One step over ``batch`` utterances. In fp16 and bf16 by autocast, in fp16 with a gradient scaler."""
    config = Config(**request.config)
    steps.seed(request)
    with torch.device(request.device):
        model = Tacotron2(config)
    model.train()
    # Longest first, as packing wants; the shortest of a batch is half as long.
    share = torch.linspace(1.0, 0.5, request.batch) if request.batch > 1 else torch.ones(1)
    texts, frames = (config.text * share).long(), (config.frames * share).long()
    audio = [torch.rand((int(n) - 1) * mel.HOP) * 2 - 1 for n in frames]
    tokens = steps.integers(request, config.symbols, request.batch, config.text)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    kind = request.device.split(":", 1)[0]
    scaler = torch.amp.GradScaler(kind, enabled=request.dtype == "fp16" and kind == "cuda")

    def step() -> float:
        batch = load(audio, texts, frames, tokens)
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=steps.dtype_of(request), enabled=request.dtype != "fp32"):
            loss = model.loss(batch)
        # The original reads the loss of every step for its log.
        value = loss.item()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return value

    notes = (
        "noise for speech; a step computes its mel spectrograms on the CPU and reads the loss back with .item()",
        "autocast and a gradient scaler stand for the study's apex O2",
    )
    return Built(step, model, steps.count(model), request.batch, "utterances", notes)


@dataclass
class Batch:
    """``tokens`` (batch, text) and ``mels`` (batch, mels, frames) padded with zeros; lengths and gate beside."""

    tokens: Tensor
    text_lengths: Tensor
    mels: Tensor
    frame_lengths: Tensor
    gate: Tensor


def load(audio: list[Tensor], texts: Tensor, frames: Tensor, tokens: Tensor) -> Batch:
    """Mel spectrograms of the audio on the CPU, padded, and copied to where the tokens are."""
    spectrograms = [mel.spectrogram(wave) for wave in audio]
    longest = int(frames[0])
    mels = torch.stack([F.pad(s, (0, longest - s.shape[1])) for s in spectrograms])
    gate = (torch.arange(longest) >= frames[:, None] - 1).float()
    return Batch(tokens, texts, mels.to(tokens.device), frames.to(tokens.device), gate.to(tokens.device))


class ConvNorm(nn.Sequential):
    """Convolution over time that keeps the length, batch norm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Conv1d(inputs, outputs, 5, padding=2), nn.BatchNorm1d(outputs))


class Encoder(nn.Module):
    """Three convolutions and a bidirectional LSTM over the tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.embedding
        self.convs = nn.ModuleList(ConvNorm(width, width) for _ in range(3))
        self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        for conv in self.convs:
            x = F.dropout(torch.relu(conv(x)), 0.5, self.training)
        packed = pack_padded_sequence(x.transpose(1, 2), lengths, batch_first=True)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class Attention(nn.Module):
    """Location-sensitive: energies from the query, the memory and where attention was before."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.query = nn.Linear(config.rnn, config.attention, bias=False)
        self.memory = nn.Linear(config.embedding, config.attention, bias=False)
        self.score = nn.Linear(config.attention, 1, bias=False)
        self.conv = nn.Conv1d(2, config.filters, config.filter_width, padding=config.filter_width // 2, bias=False)
        self.location = nn.Linear(config.filters, config.attention, bias=False)

    def forward(
        self, state: Tensor, memory: Tensor, keys: Tensor, history: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Context (batch, embedding) and weights (batch, text)."""
        where = self.location(self.conv(history).transpose(1, 2))
        energy = self.score(torch.tanh(self.query(state[:, None]) + where + keys)).squeeze(-1)
        energy.masked_fill_(padding, -torch.inf)
        weights = torch.softmax(energy, dim=1)
        return torch.bmm(weights[:, None].to(memory.dtype), memory).squeeze(1), weights


class Decoder(nn.Module):
    """Mel frames and stop gates, one at a time."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.prenet = nn.ModuleList(
            [nn.Linear(config.mels, config.prenet, bias=False), nn.Linear(config.prenet, config.prenet, bias=False)]
        )
        self.attention_rnn = nn.LSTMCell(config.prenet + config.embedding, config.rnn)
        self.attention = Attention(config)
        self.rnn = nn.LSTMCell(config.rnn + config.embedding, config.rnn)
        self.mel = nn.Linear(config.rnn + config.embedding, config.mels)
        self.gate = nn.Linear(config.rnn + config.embedding, 1)

    def forward(self, memory: Tensor, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Mel (batch, mels, frames) and gate logits (batch, frames), each frame given the true one before it."""
        batch, text = memory.shape[:2]
        frames = F.pad(mels, (1, 0))[:, :, :-1].permute(2, 0, 1)
        for layer in self.prenet:
            # Dropout is part of the model here, in training and after.
            frames = F.dropout(torch.relu(layer(frames)), 0.5, training=True)
        padding = torch.arange(text, device=memory.device) >= lengths.to(memory.device)[:, None]
        keys = self.attention.memory(memory)
        zeros = memory.new_zeros(batch, self.config.rnn)
        h_attention = c_attention = h = c = zeros
        context, weights = memory.new_zeros(batch, memory.shape[2]), memory.new_zeros(batch, text)
        cumulative = torch.zeros_like(weights)
        mel_frames, gates = [], []
        for frame in frames:
            h_attention, c_attention = self.attention_rnn(
                torch.cat([frame, context], dim=-1), (h_attention, c_attention)
            )
            h_attention = F.dropout(h_attention, 0.1, self.training)
            history = torch.stack([weights, cumulative], dim=1)
            context, weights = self.attention(h_attention, memory, keys, history, padding)
            cumulative = cumulative + weights
            h, c = self.rnn(torch.cat([h_attention, context], dim=-1), (h, c))
            h = F.dropout(h, 0.1, self.training)
            both = torch.cat([h, context], dim=-1)
            mel_frames.append(self.mel(both))
            gates.append(self.gate(both).squeeze(-1))
        return torch.stack(mel_frames, dim=2), torch.stack(gates, dim=1)


class Tacotron2(nn.Module):
    """Encoder, decoder, postnet and the losses."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.embedding
        self.embedding = nn.Embedding(config.symbols, width)
        bound = 3**0.5 * (2.0 / (config.symbols + width)) ** 0.5
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        sizes = [config.mels, width, width, width, width, config.mels]
        self.postnet = nn.ModuleList(ConvNorm(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Mel before and after the postnet (batch, mels, frames) and gate logits; padding frames are silenced."""
        memory = self.encoder(self.embedding(batch.tokens).transpose(1, 2), batch.text_lengths)
        rough, gate = self.decoder(memory, batch.mels, batch.text_lengths)
        x = rough
        for conv in self.postnet[:-1]:
            x = F.dropout(torch.tanh(conv(x)), 0.5, self.training)
        fine = rough + F.dropout(self.postnet[-1](x), 0.5, self.training)
        padding = torch.arange(rough.shape[2], device=rough.device) >= batch.frame_lengths[:, None]
        return (
            rough.masked_fill(padding[:, None], 0.0),
            fine.masked_fill(padding[:, None], 0.0),
            gate.masked_fill(padding, 1e3),
        )

    def loss(self, batch: Batch) -> Tensor:
        """Squared errors of both mels and cross-entropy of the gate."""
        rough, fine, gate = self(batch)
        mel_loss = F.mse_loss(rough.float(), batch.mels) + F.mse_loss(fine.float(), batch.mels)
        return mel_loss + F.binary_cross_entropy_with_logits(gate.float(), batch.gate)
