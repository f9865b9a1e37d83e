"""A transformers model from its configuration alone, with random weights made quickly."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

# Random weights need nothing from the network, and no builder may wait for it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from apps import steps
from apps.workload import Request

aten = torch.ops.aten

# A builder's model never runs on text: remarks on token ids and loss types would only fill the log.
transformers.logging.set_verbosity_error()


class FastFill(TorchDispatchMode):
    """While entered, random fills of big CPU tensors draw one block and repeat it.

    Drawing a billion normal values takes a CPU ten seconds and more; repeating one block takes one. The block's length
    is a prime, so rows of a matrix do not repeat each other. GPUs draw fast enough and are left alone.
    """

    BLOCK = 262_139
    # trunc_normal_ is a uniform_ followed by erfinv_ in place: on a tensor that repeats a block, a block is enough too.
    FILLS = frozenset((aten.normal_.default, aten.uniform_.default, aten.erfinv_.default))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensor = args[0] if func in self.FILLS else None
        if tensor is None or tensor.device.type != "cpu" or tensor.numel() < 4 * self.BLOCK:
            return func(*args, **kwargs)
        if not tensor.is_contiguous():
            return func(*args, **kwargs)
        flat = tensor.view(-1)
        func(flat[: self.BLOCK], *args[1:], **kwargs)
        whole = flat.numel() // self.BLOCK * self.BLOCK
        rows = flat[:whole].view(-1, self.BLOCK)
        rows[1:] = rows[0]
        flat[whole:] = flat[: flat.numel() - whole]
        return tensor


def config_for(model: str, arch: Mapping[str, Any], **more: Any) -> Any:
    """The configuration object of a transformers model class, by the class's name."""
    return model_class(model).config_class(**arch, **more)


def model_class(name: str) -> type[PreTrainedModel]:
    """A model class of transformers by name."""
    return getattr(transformers, name)  # type: ignore[no-any-return]


def model_for(request: Request, config: Any, name: str | None = None) -> Any:
    """The model on the request's device, in its precision, with its attention implementation where it has several.

    Seeds the generators first, so the weights of a request are the same every time on one kind of device.
    """
    steps.seed(request)
    cls = model_class(name or request.config["model"])
    # Left open, every part of a model takes the fused attention where it has one (a convolutional backbone has none).
    chosen = {"attn_implementation": "eager"} if request.attention == "eager" else {}
    with torch.device(request.device), FastFill():
        model = cls._from_config(config, dtype=steps.dtype_of(request), **chosen)
    # A parameter made with the legacy constructor (wav2vec 2.0's mask) ignores the device that is asked for.
    return model.to(request.device)


def cache_argument(model: torch.nn.Module, cache: Any) -> dict[str, Any]:
    """The key-value cache as a keyword argument, under the name that this release of transformers gives it."""
    names = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def is_sparse(config: Any) -> bool:
    """Whether the configuration describes a mixture of experts."""
    return any(getattr(config, n, None) for n in ("num_experts", "num_local_experts", "n_routed_experts"))
