"""What a workload is: the request that a run makes, and what a builder gives back.

A builder is a function ``build(request) -> Built`` in a module of this package (the catalogue names it as
``module:function``). It makes the model with random weights on ``request.device`` and says what one step is.
This module imports no torch, so that the catalogue and the command line can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Request:
    """One run's wishes, with every default filled in (the catalogue fills them).

    ``mode``: ``infer`` | ``train`` | ``prefill`` | ``decode``; ``dtype``: ``fp32`` | ``fp16`` | ``bf16``;
    ``seq`` is None where the workload has no sequence; ``config``: the chosen size's own settings from the catalogue.
    """

    workload: str
    size: str = "full"
    mode: str = "infer"
    dtype: str = "fp32"
    batch: int = 1
    seq: int | None = None
    device: str = "cpu"
    attention: str = "sdpa"
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Built:
    """A workload ready to run. ``step()`` does one whole step (for training: forward, backward, optimizer) and returns
    nothing that the caller needs; it must not synchronise the device unless the workload itself does.

    ``parameters`` is counted on the built model; ``items`` is what one step processes (``8 sequences``);
    ``notes`` are lines for people: substitutions, assumptions, which implementation was taken.
    """

    step: Callable[[], Any]
    module: torch.nn.Module | None = None
    parameters: int = 0
    items: int = 1
    item_name: str = "samples"
    notes: tuple[str, ...] = ()
