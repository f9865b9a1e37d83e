"""The user's own models: a callable in a file, and a Hugging Face id or a local model folder."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from apps import steps
from apps.catalogue import BadRequest
from apps.workload import Built, Request


def is_callable_name(workload: str) -> bool:
    """Whether a workload is written as ``file.py:name``."""
    file, colon, name = workload.rpartition(":")
    return bool(colon) and file.endswith(".py") and name.isidentifier()


def from_file(request: Request) -> Built:
    """``request.workload`` is ``file.py:name``. The callable takes no argument, or the request, and gives one of

    - a :class:`apps.workload.Built`: taken as it is;
    - a module and its inputs: ``(module, inputs)``, inputs a tensor, a tuple of arguments or a dict of them;
    - a module with an ``example_inputs`` attribute (or method without arguments) that holds such inputs;
    - a function without arguments: one step, called as it is.

    ``name`` may also be such a module, or be the step itself: a callable without arguments that returns none of these
    is taken for a step and has then already run once.
    Modules and inputs are moved to the device; floating-point ones to the request's precision.
    Raises :class:`BadRequest` for a file or a result that is none of these; errors of the user's code pass through.
    """
    path, _, name = request.workload.rpartition(":")
    made = getattr(_module(Path(path), request.workload), name, None)
    if made is None:
        raise BadRequest(f"{path} has no {name}; it has {', '.join(_public(Path(path))) or 'no public function'}")
    steps.seed(request)
    if isinstance(made, (torch.nn.Module, Built, tuple)):
        return _built(request, made)
    if not callable(made):
        raise BadRequest(f"{request.workload} is a {type(made).__name__}, not a function or a module")
    takes = _required(made)
    if takes > 1:
        raise BadRequest(f"{request.workload} takes {takes} arguments; it may take none, or the request")
    result = made(request) if takes else made()
    if takes == 0 and not isinstance(result, (torch.nn.Module, Built, tuple)) and not callable(result):
        return Built(step=made, item_name="steps", items=1, notes=(f"{name}() is the step, as it is",))
    return _built(request, result)


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


def _module(path: Path, workload: str) -> Any:
    if not path.is_file():
        raise BadRequest(f"{workload}: there is no file {path}")
    # The file's own folder comes first, as when Python runs it, so that its imports find its neighbours.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadRequest(f"{workload}: {path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _public(path: Path) -> list[str]:
    module = sys.modules[path.stem]
    return [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == path.stem][:8]


def _required(made: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in positional and p.default is p.empty]
    return len(needed)


def _built(request: Request, made: Any) -> Built:
    if isinstance(made, Built):
        return made
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module):
        return _module_step(request, *made)
    if isinstance(made, torch.nn.Module):
        inputs = getattr(made, "example_inputs", None)
        inputs = inputs() if callable(inputs) else inputs
        if inputs is None:
            raise BadRequest(f"{request.workload} gives a module without inputs; return (module, inputs)")
        return _module_step(request, made, inputs)
    if callable(made):
        return Built(step=made, item_name="steps", items=1)
    raise BadRequest(
        f"{request.workload} gives a {type(made).__name__}; it may give a module and its inputs, or a step function"
    )


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
