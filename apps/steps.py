"""What one step is: inference, training, prefill and decode, the same way for every workload.

A builder makes a module and a ``forward`` closure over fixed inputs, and hands both to :func:`built`.
Training follows the 1,000-kernels study unless the workload has a loss of its own: the loss is the plain sum of the
outputs, the optimizer SGD with learning rate 1e-3 and momentum 0.9, and one step is zero_grad, forward, backward, step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from apps.meta import OnMeta
from apps.workload import Built, Request

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def dtype_of(request: Request) -> torch.dtype:
    """The request's precision as torch names it."""
    return _DTYPES[request.dtype]


def seed(request: Request) -> None:
    """Make weights, inputs and dropout of this run repeatable."""
    torch.manual_seed(request.seed)


def normal(request: Request, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Standard normal values of this shape on the request's device, in the request's precision by default."""
    return torch.randn(*shape, device=request.device, dtype=dtype or dtype_of(request))


def integers(request: Request, high: int, *shape: int) -> torch.Tensor:
    """Integers in [0, high), int64, on the request's device."""
    return torch.randint(high, shape, device=request.device)


def count(module: torch.nn.Module) -> int:
    """Number of parameters; shared ones once."""
    return sum(p.numel() for p in module.parameters())


def sum_of(outputs: Any) -> torch.Tensor:
    """The study's loss: the sum of every floating-point tensor in ``outputs`` (nested), accumulated in float32."""
    tensors = list(_floating(outputs))
    if not tensors:
        raise TypeError("the forward pass returned no floating-point tensor to sum")
    total = tensors[0].sum(dtype=torch.float32)
    for tensor in tensors[1:]:
        total = total + tensor.sum(dtype=torch.float32)
    return total


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """The study's optimizer."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def built(
    request: Request,
    module: torch.nn.Module,
    forward: Callable[[], Any],
    *,
    loss: Callable[[Any], torch.Tensor] = sum_of,
    optimizer: Callable[[Any], torch.optim.Optimizer] = sgd,
    items: int | None = None,
    item_name: str = "samples",
    notes: tuple[str, ...] = (),
) -> Built:
    """A step of ``forward()`` (mode ``infer``, and anything else that is not ``train``) or of training with
    ``loss(forward())``. ``module`` is put into eval or train mode; parameters that get no gradient are left alone."""
    if request.mode == "train":
        module.train()
        update = optimizer([p for p in module.parameters() if p.requires_grad])

        def step() -> None:
            update.zero_grad()
            loss(forward()).backward()
            update.step()
    else:
        module.eval()

        @torch.inference_mode()
        def step() -> None:
            forward()

    return Built(
        step=on_meta(request, step),
        module=module,
        parameters=count(module),
        items=request.batch if items is None else items,
        item_name=item_name,
        notes=notes,
    )


def on_meta(request: Request, step: Callable[[], Any]) -> Callable[[], Any]:
    """On the meta device, the step under :class:`apps.meta.OnMeta`; elsewhere the step itself."""
    if request.device != "meta":
        return step

    def guarded() -> None:
        with OnMeta():
            step()

    return guarded


def same_cache(cache: Any, forward: Callable[[], Any]) -> Callable[[], Any]:
    """``forward`` with a key-value cache that is put back after every call, so that each call is the same decode step.

    ``cache`` is a transformers cache: layers that hold their tensors as attributes. Layers that append make new tensors
    (the old ones are kept and put back at no cost); layers that write in place (state-space models) keep their shapes,
    so the work stays the same.
    """

    def step() -> None:
        before = [dict(vars(layer)) for layer in cache.layers]
        forward()
        for layer, state in zip(cache.layers, before, strict=True):
            vars(layer).update(state)

    return step


def _floating(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _floating(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _floating(item)
