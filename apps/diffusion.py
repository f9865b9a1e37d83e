"""One denoising step of a diffusion model from diffusers: the network that runs tens of times for one picture.

``config``: ``model`` (a diffusers class), ``arch``, ``image`` (side of the latent), ``states`` (length of the text).
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import diffusers
import torch

from apps import steps
from apps.hf.create import FastFill
from apps.workload import Built, Request


def unet(request: Request) -> Built:
    """Noise of a latent at one time step, given text states. ``train``: mean squared error against random noise."""
    model = _model(request)
    side = request.config["image"]
    latent = steps.normal(request, request.batch, model.config.in_channels, side, side)
    text = steps.normal(request, request.batch, request.config["states"], model.config.cross_attention_dim)
    time = steps.integers(request, 1000, request.batch)
    noise = torch.randn_like(latent)

    def forward() -> Any:
        return model(latent, time, encoder_hidden_states=text).sample

    return steps.built(
        request,
        model,
        forward,
        loss=lambda out: torch.nn.functional.mse_loss(out.float(), noise.float()),
        item_name="images",
    )


def dit(request: Request) -> Built:
    """Noise and variance of a latent at one time step, given a class. ``train``: mean squared error on the noise."""
    model = _model(request)
    side, channels = request.config["image"], model.config.in_channels
    latent = steps.normal(request, request.batch, channels, side, side)
    time = steps.integers(request, 1000, request.batch)
    label = steps.integers(request, model.config.num_embeds_ada_norm, request.batch)
    noise = torch.randn_like(latent)

    def forward() -> Any:
        return model(latent, timestep=time, class_labels=label).sample

    return steps.built(
        request,
        model,
        forward,
        loss=lambda out: torch.nn.functional.mse_loss(out[:, :channels].float(), noise.float()),
        item_name="images",
    )


def _model(request: Request) -> Any:
    steps.seed(request)
    with torch.device(request.device), FastFill():
        model = getattr(diffusers, request.config["model"])(**request.config.get("arch", {}))
    # torch's own cast: diffusers' refuses none of these models, but warns for each.
    return torch.nn.Module.to(model, request.device, steps.dtype_of(request))
