"""What the suite's modules share: building in place and in precision, and Adam that survives half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from apps import steps
from apps.workload import Request

SUM_HAS_NO_MINIMUM = (
    "the loss is the plain sum of the outputs, as in the study: values overflow in time, the work does not change"
)

M = TypeVar("M", bound=torch.nn.Module)


def make(request: Request, factory: Callable[[], M]) -> M:
    """The module of ``factory()`` with seeded random weights, on the request's device and in its precision."""
    steps.seed(request)
    with torch.device(request.device):
        module = factory()
    return module.to(steps.dtype_of(request))


def sum_notes(request: Request, *notes: str) -> tuple[str, ...]:
    """``notes``, and when training a word on what the study's loss does to the values."""
    return (*notes, SUM_HAS_NO_MINIMUM) if request.mode == "train" else notes


def adam(request: Request, lr: float, weight_decay: float = 0.0) -> Callable[[Any], torch.optim.Optimizer]:
    """Adam for :func:`apps.steps.built`. In fp16 epsilon is 1e-4: the usual 1e-8 is zero there."""
    eps = 1e-4 if request.dtype == "fp16" else 1e-8
    return lambda parameters: torch.optim.Adam(parameters, lr=lr, eps=eps, weight_decay=weight_decay)
