"""Running on the meta device: real shapes, no memory, no arithmetic.

Three things make it tell the truth about a GPU. Attention stays one operator: on meta tensors
``scaled_dot_product_attention`` falls apart into matmuls and a softmax over a sequence x sequence matrix, which no GPU
would store; :class:`OnMeta` sends it to the fused operators that CUDA would take. A branch on the data of a tensor
has no answer there; :class:`OnMeta` takes it as true, and counts how often. And memory is counted by the life of the
storages (:class:`PeakMemory`), the way a caching allocator would see it.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

_CONDITIONS = (torch.Tensor.__bool__, torch.Tensor.item)


class OnMeta(TorchFunctionMode):
    """While entered, attention on meta tensors is one fused operator, and a meta tensor used as a condition is true.

    ``assumed`` counts those conditions: models ask whether a mask is all ones or whether anything is infinite. Small
    index tensors may stay on the CPU, where their values can be read; meeting a meta tensor, they become one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.assumed = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            query = args[0] if args else kwargs["query"]
            if query.device.type == "meta":
                return _attention(*args, **kwargs)
        elif func in _CONDITIONS and args[0].device.type == "meta" and args[0].dtype == torch.bool:
            self.assumed += 1
            return True
        elif func is torch.Tensor.to and args[0].device.type == "cpu" and args[0].dtype == torch.bool:
            # A mask that moved to meta would lose its values, and with them the shape of what it selects.
            return args[0]
        elif func is torch.Tensor.masked_scatter:
            args, kwargs, _ = _to_meta(args, kwargs)
        try:
            return func(*args, **kwargs)
        except RuntimeError:
            moved_args, moved_kwargs, mixed = _to_meta(args, kwargs)
            if not mixed:
                raise
            return func(*moved_args, **moved_kwargs)


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
    """As CUDA chooses: flash attention in half precision without a mask, else the memory-efficient operator."""
    if query.ndim == 3:
        mask = attn_mask.unsqueeze(0) if attn_mask is not None and attn_mask.ndim == 3 else attn_mask
        return _attention(query[None], key[None], value[None], mask, dropout_p, is_causal, scale, enable_gqa)[0]
    half = query.dtype in (torch.float16, torch.bfloat16)
    if attn_mask is None and half and value.size(-1) == query.size(-1) and query.size(-1) <= 256:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = attn_mask.expand(*query.shape[:3], key.size(-2))
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    grad = torch.is_grad_enabled() and query.requires_grad
    return efficient(query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]


def _ctc_loss_backward(grad: torch.Tensor, log_probs: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.empty_like(log_probs)


# The one operator among the workloads that torch cannot shape on meta.
_LIBRARY = torch.library.Library("aten", "IMPL", "Meta")
for _name in ("_ctc_loss_backward", "_ctc_loss_backward.Tensor"):
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{_name}", "Meta"):
        _LIBRARY.impl(_name, _ctc_loss_backward)


def _to_meta(args: Any, kwargs: Any) -> tuple[Any, Any, bool]:
    """The arguments with CPU tensors moved to meta, and whether both kinds were there."""
    kinds = {t.device.type for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)}

    def move(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    if kinds != {"cpu", "meta"}:
        return args, kwargs, False
    return tree_map(move, args), tree_map(move, kwargs), True


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
