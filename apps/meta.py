"""Running on the meta device: real shapes, no memory, no arithmetic.

Two things make it tell the truth about a GPU. Attention stays one operator: on meta tensors
``scaled_dot_product_attention`` falls apart into matmuls and a softmax over a sequence x sequence matrix, which no GPU
would store; :class:`FusedAttention` sends it to a fused operator instead. And memory is counted by the life of the
storages (:class:`PeakMemory`), the way a caching allocator would see it.
"""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class FusedAttention(TorchFunctionMode):
    """While entered, ``scaled_dot_product_attention`` on meta tensors is one fused operator, forward and backward."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention and args and args[0].device.type == "meta":
            return _attention(*args, **kwargs)
        return func(*args, **kwargs)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    if query.ndim != 4 or value.size(-1) != query.size(-1):
        # The fused operator has neither three dimensions nor a value width of its own; fused kernels on GPUs do.
        with torch._C.DisableTorchFunction():
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale
            )
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype)
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return fused(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]  # type: ignore[no-any-return]


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of every storage made while entered, and of those given to :meth:`hold`, until it is freed.

    ``live`` and ``peak`` are in bytes. Rounding and fragmentation of an allocator, and the workspaces of libraries, are
    not in it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._seen: set[int] = set()

    def hold(self, tensors: Any) -> None:
        """Count these tensors' storages (parameters, buffers, inputs made before)."""
        for tensor in tree_iter(tensors):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.hold(result)
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()
        self._seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size
