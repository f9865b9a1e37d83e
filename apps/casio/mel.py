"""Mel spectrograms as text-to-speech models take them: 22,050 Hz, windows of 1,024 every 256 samples, 80 bands."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

RATE, WINDOW, HOP, BANDS, TOP_HZ = 22_050, 1024, 256, 80, 8000.0


def spectrogram(wave: Tensor) -> Tensor:
    """(80, samples // 256 + 1): logarithm of the mel-weighted magnitudes of a mono signal in [-1, 1]."""
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(wave, WINDOW, HOP, window=window, center=True, pad_mode="reflect", return_complex=True)
    return torch.log(torch.clamp(filters() @ spectrum.abs(), min=1e-5))


@cache
def filters() -> Tensor:
    """(80, 513): triangles evenly spaced on the mel scale of Slaney's Auditory Toolbox, each of unit area."""
    edges = _to_hz(torch.linspace(0.0, float(_to_mel(TOP_HZ)), BANDS + 2, dtype=torch.float64))
    bins = torch.linspace(0.0, RATE / 2, WINDOW // 2 + 1, dtype=torch.float64)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]).float()


# Slaney's scale: linear to 1,000 Hz (15 mel there), then a factor of 6.4 every 27 mel.
def _to_mel(hertz: float) -> Tensor:
    value = torch.tensor(hertz, dtype=torch.float64)
    return torch.where(value < 1000, value * 3 / 200, 15 + 27 * torch.log(value / 1000) / torch.log(torch.tensor(6.4)))


def _to_hz(mel: Tensor) -> Tensor:
    return torch.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
