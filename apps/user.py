"""The user's own models: a callable in a file, and a Hugging Face id or a local model folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from apps import steps
from apps.catalogue import BadRequest
from apps.workload import Built, Request


def from_module(request: Request, made: Any) -> Built | None:
    """Steps of the module that a user's ``file.py:name`` gives; None where it gives none. It may be

    - a module and its inputs: ``(module, inputs)``, inputs a tensor, a tuple of arguments or a dict of them;
    - a module with an ``example_inputs`` attribute (or method without arguments) that holds such inputs.

    Modules and inputs are moved to the device; floating-point ones to the request's precision.
    Raises :class:`BadRequest` for a module without inputs.
    """
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module):
        return _module_step(request, *made)
    if isinstance(made, torch.nn.Module):
        inputs = getattr(made, "example_inputs", None)
        inputs = inputs() if callable(inputs) else inputs
        if inputs is None:
            raise BadRequest(f"{request.workload} gives a module without inputs; return (module, inputs)")
        return _module_step(request, made, inputs)
    return None


def from_hub(request: Request, weights: str = "random", download: bool = False) -> Built:
    """``request.workload`` is a Hugging Face id or a folder with a ``config.json``.

    ``weights``: ``random`` needs the configuration only; ``pretrained`` loads what the folder or the local cache has.
    Nothing is fetched unless ``download``. No code from the model's repository is run.
    Raises :class:`BadRequest` with what is missing.
    """
    # The hub's client reads this once, when it is first imported.
    os.environ["HF_HUB_OFFLINE"] = "0" if download else "1"
    import transformers

    from apps.hf.generic import build

    if weights not in ("random", "pretrained"):
        raise BadRequest(f"weights {weights!r} is not offered; choose random or pretrained")
    source = Path(request.workload).expanduser()
    where = str(source) if source.is_dir() else request.workload
    if source.is_dir() and not (source / "config.json").is_file():
        raise BadRequest(f"{source} has no config.json, so it is not a model folder")
    try:
        config = transformers.AutoConfig.from_pretrained(where, local_files_only=not download, trust_remote_code=False)
    except (OSError, ValueError, json.JSONDecodeError) as error:
        hint = "" if download or source.is_dir() else "; it is not in the local cache: --download fetches it"
        raise BadRequest(
            f"{request.workload}: no configuration that transformers knows{hint} ({_first(error)})"
        ) from None
    try:
        return build(request, config, where if weights == "pretrained" else None, local_only=not download)
    except OSError as error:
        raise BadRequest(
            f"{request.workload}: no weights found: {_first(error)}; --weights random needs none"
        ) from None


def _module_step(request: Request, module: torch.nn.Module, inputs: Any) -> Built:
    dtype = steps.dtype_of(request)

    def place(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(request.device, dtype if value.is_floating_point() else None)
        return value

    module = module.to(request.device, dtype)
    inputs = torch.utils._pytree.tree_map(place, inputs)
    if isinstance(inputs, Mapping):
        keywords, positional = dict(inputs), ()
    else:
        keywords, positional = {}, inputs if isinstance(inputs, tuple) else (inputs,)
    first = next((t for t in torch.utils._pytree.tree_iter(inputs) if isinstance(t, torch.Tensor)), None)
    items = first.shape[0] if first is not None and first.ndim else 1
    return steps.built(request, module, lambda: module(*positional, **keywords), loss=_loss, items=items)


def _loss(outputs: Any) -> torch.Tensor:
    """The model's own loss when it returns one, or a single number; else the sum of its outputs."""
    own = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    return own if isinstance(own, torch.Tensor) else steps.sum_of(outputs)


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
