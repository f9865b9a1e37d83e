"""The inputs of single GEMMs, convolutions and attentions, made anew from what a recording says of a call. Imports torch.

Tensors are random, dense and of the recorded shape and type: strides and contents are not recorded. Where the contents
decide whether a call can be made at all, they are made to fit: scales are one, the groups of a grouped product are equal,
a backward pass gets what its forward pass saved. Weights lie transposed, as linear layers have them.

On a CPU all of these have run; fp8 and the GPU's own forms (flash, efficient and cuDNN attention) have not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from profilers.analysis.calls import Call, plain

REPLAYED = frozenset(
    (
        *("mm", "addmm", "addmm_", "_addmm_activation", "bmm", "baddbmm", "baddbmm_", "addbmm", "linear", "matmul"),
        *("mv", "addmv", "addmv_", "dot", "vdot", "_grouped_mm", "_int_mm", "_scaled_mm", "_scaled_grouped_mm"),
        *("_weight_int8pack_mm", "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu"),
        *("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution", "miopen_convolution"),
        *("cudnn_convolution_relu", "cudnn_convolution_add_relu", "cudnn_convolution_transpose"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("_conv_depthwise2d", "conv_depthwise3d", "_slow_conv2d_forward", "slow_conv3d_forward", "thnn_conv2d"),
        *("convolution_backward", "_slow_conv2d_backward"),
        *("scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_flash_attention_forward"),
        *("_scaled_dot_product_efficient_attention", "_efficient_attention_forward", "_cudnn_attention_forward"),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    )
)
"""Operators of ATen that are called as recorded. A recording comes from a stranger: no other name is ever looked up."""

_OVERLOADS = {"_slow_conv2d_backward": "output_mask"}
"""Of operators that have no default one."""

_SAVED = {
    "_scaled_dot_product_flash_attention_for_cpu": {"out": 0, "logsumexp": 1},
    "_scaled_dot_product_flash_attention": {
        "out": 0, "logsumexp": 1, "cum_seq_q": 2, "cum_seq_k": 3, "philox_seed": 6, "philox_offset": 7,
    },
    "_scaled_dot_product_efficient_attention": {"out": 0, "logsumexp": 1, "philox_seed": 2, "philox_offset": 3},
    "_scaled_dot_product_cudnn_attention": {
        "out": 0, "logsumexp": 1, "cum_seq_q": 2, "cum_seq_k": 3, "philox_seed": 6, "philox_offset": 7,
    },
    "_flash_attention": {"out": 0, "logsumexp": 1, "rng_state": 2, "unused": 3},
    "_efficient_attention": {"out": 0, "logsumexp": 1, "philox_seed": 2, "philox_offset": 3},
}  # fmt: skip
"""Attention whose backward pass (``..._backward``) is called after its forward pass, and which of the forward's results
are which of the backward's arguments."""

_OFFSETS = ("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k", "seqlen_k", "seqused_k", "block_table")
"""Where sequences of several lengths begin."""

_PACKED = {"linear_dynamic": "linear_dynamic", "linear_relu_dynamic": "linear_relu_dynamic"}
"""PyTorch's dynamic quantization: the weight is an object."""

_FLOATS = {
    "float": "float32", "float32": "float32", "double": "float64", "float64": "float64", "half": "float16",
    "float16": "float16", "bfloat16": "bfloat16", "bool": "bool", "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2", "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz",
    "float8_e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip
_INTEGERS = {
    "signed char": "int8", "char": "int8", "int8": "int8", "unsigned char": "uint8", "uint8": "uint8", "byte": "uint8",
    "int": "int32", "int32": "int32",
}  # fmt: skip
_COUNTING = frozenset(("_int_mm", "_weight_int8pack_mm", "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu"))
"""Operators whose integers are values. Elsewhere they are positions, and their contents would have to be known."""

Inputs = tuple[list[Any], dict[str, Any]]


class NotReplayed(Exception):
    """A call that cannot be made here; the message says why."""


@dataclass(frozen=True)
class Replay:
    """What is called (``op``), new inputs for it, what was assumed of them, and bytes of inputs that are no tensors."""

    op: Callable[..., Any]
    inputs: Callable[[], Inputs]
    note: str = ""
    packed: int = 0


class Maker:
    """Makes tensors on one device."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch, self.device = torch, device

    def tensor(self, shape: tuple[int, ...], dtype: str, *, counting: bool = False) -> Any:
        """A random tensor. Small values: products of many must stay finite in 16 bits."""
        name = _FLOATS.get(plain(dtype))
        if name is not None and hasattr(self.torch, name):
            kind = getattr(self.torch, name)
            if name == "bool":
                return self.torch.ones(shape, dtype=kind, device=self.device)
            return self.torch.randn(shape, device=self.device, dtype=self.torch.float32).mul_(0.1).to(kind)
        name = _INTEGERS.get(plain(dtype))
        if name is None or not counting:
            raise NotReplayed(f"inputs of type {plain(dtype) or 'unknown'}")
        info = self.torch.iinfo(getattr(self.torch, name))
        return self.torch.randint(info.min, info.max, shape, device=self.device, dtype=getattr(self.torch, name))


def replay(call: Call, question: Mapping[str, Any], maker: Maker) -> Replay:
    """How the call of ``question`` (its ``name`` as recorded, its ``flops``) is made. Raises NotReplayed."""
    space, _, _ = str(question["name"]).rpartition("::")
    if space == "quantized" and call.name in _PACKED:
        return _packed_linear(call, question, maker)
    base = call.name.removesuffix("_backward")
    if space == "aten" and base != call.name and base in _SAVED:
        return _attention_backward(call, base, maker)
    op = _operator(call.name if space == "aten" and call.name in REPLAYED else None)

    def inputs() -> Inputs:
        return _laid_out(call, op, *arguments(call, op, maker), maker)

    note = "groups of equal size" if call.name in ("_grouped_mm", "_scaled_grouped_mm") else ""
    return Replay(op, inputs, note)


def _operator(name: str | None) -> Any:
    """An operator of ATen by a name that is known to be harmless."""
    import torch

    if name is None:
        raise NotReplayed("not an operator that is called alone")
    try:
        return getattr(getattr(torch.ops.aten, name), _OVERLOADS.get(name, "default"))
    except AttributeError:
        raise NotReplayed("this torch does not have it") from None


def arguments(call: Call, op: Any, maker: Maker, given: Mapping[str, Any] | None = None) -> Inputs:
    """The arguments of one call by the operator's own schema, by position and by name: tensors made anew, scalars as
    recorded (those that only a name may give are at their position in the recording, too). ``given``: arguments that are
    there already (None: left out, where a schema asks for a tensor that PyTorch itself passes undefined)."""
    out: list[Any] = []
    named: dict[str, Any] = {}
    given = given or {}
    for index, argument in enumerate(op._schema.arguments):
        value = given[argument.name] if argument.name in given else _argument(call, index, argument, maker)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            out.append(value)
    return out, named


def _argument(call: Call, index: int, argument: Any, maker: Maker) -> Any:
    kind = str(argument.type)
    if "Tensor" in kind:
        shape = call.tensor(index)
        if shape is not None and argument.name in _OFFSETS:
            raise NotReplayed("sequences of several lengths, which are not recorded")
        if shape is not None and argument.name == "offs":
            return _equal_groups(call, shape, maker)
        if shape is not None:
            return maker.tensor(shape, call.dtype(index), counting=call.name in _COUNTING)
        if kind.startswith("Optional"):
            return None
        raise NotReplayed(f"its argument {argument.name} is not recorded")
    value = _scalar(call, index, kind)
    if value is None and argument.has_default_value():
        value = argument.default_value
    if value is None and not kind.startswith("Optional"):
        raise NotReplayed(f"its argument {argument.name} is not recorded")
    return value


def _scalar(call: Call, index: int, kind: str) -> Any:
    """The recorded value of a scalar argument in the schema's type; None where there is none."""
    if "List" in kind:
        found = call.flags(index) if "bool" in kind else call.ints(index)
        return None if found is None else list(found)
    value = call.scalar(index)
    return None if isinstance(value, list | str) else value


def _equal_groups(call: Call, shape: tuple[int, ...], maker: Maker) -> Any:
    """Ends of so many groups of equal size: of rows, of columns, or of the dimension summed over."""
    left, right = call.matrix(0), call.matrix(1)
    if len(shape) != 1 or left is None or right is None:
        raise NotReplayed("groups that are not recorded")
    whole = right[-1] if len(left) == 3 else left[-1] if len(right) == 2 else left[0]
    groups = shape[0]
    ends = [whole * (index + 1) // groups for index in range(groups)]
    return maker.torch.tensor(ends, dtype=maker.torch.int32, device=maker.device)


_WEIGHT = {"addmm": 2, "addmm_": 2, "_addmm_activation": 2, "_int_mm": 1, "_scaled_mm": 1, "_scaled_grouped_mm": 1}


def _laid_out(call: Call, op: Any, made: list[Any], named: dict[str, Any], maker: Maker) -> Inputs:
    """Weights transposed, and scales that change nothing."""
    place = _WEIGHT.get(call.name)
    if call.name == "_grouped_mm" and made[1].dim() == 3:
        place = 1
    if place is not None:
        made[place] = made[place].transpose(-2, -1).contiguous().transpose(-2, -1)
    for index, argument in enumerate(op._schema.arguments[: len(made)]):
        if argument.name.startswith("scale_") and isinstance(made[index], maker.torch.Tensor):
            made[index] = maker.torch.ones(made[index].shape, device=maker.device).to(made[index].dtype)
    return made, named


def _attention_backward(call: Call, base: str, maker: Maker) -> Replay:
    """A backward pass with what a forward pass of the same inputs saved."""
    backward = _operator(call.name)
    before = base if base.startswith("_scaled") else base + "_forward"
    forward = _operator(before)
    saved = _SAVED[base]
    names = [argument.name for argument in backward._schema.arguments]
    for index, name in enumerate(names):
        if name in _OFFSETS and call.matrix(index) is not None:
            raise NotReplayed("sequences of several lengths, which are not recorded")

    def inputs() -> Inputs:
        # Tensors that PyTorch itself leaves undefined (no bias, no offsets) have no shape in the recording.
        absent = {
            argument.name: None
            for index, argument in enumerate(backward._schema.arguments)
            if "Tensor" in str(argument.type) and call.tensor(index) is None
        }
        known = {name: absent.get(name) for name in saved}
        positional, named = arguments(call, backward, maker, {**absent, **known})
        own = {**dict(zip(names, positional, strict=False)), **named}
        for name in ("query", "key", "value"):
            if own.get(name) is None:
                raise NotReplayed(f"its argument {name} is not recorded")
        want = {"compute_log_sumexp": True, "return_debug_mask": False}
        values = {one.name: want.get(one.name, own.get(one.name)) for one in forward._schema.arguments}
        optional = {one.name for one in forward._schema.arguments if one.has_default_value()}
        out = forward(**{name: value for name, value in values.items() if value is not None or name not in optional})
        filled = {name: out[place] for name, place in saved.items()}
        if own.get(names[0]) is None or own[names[0]].shape != filled["out"].shape:
            raise NotReplayed("its gradient does not have the shape of its output")
        return [filled.get(name, own[name]) for name in names[: len(positional)]], named

    return Replay(backward, inputs)


def _packed_linear(call: Call, question: Mapping[str, Any], maker: Maker) -> Replay:
    """A dynamically quantized linear layer of PyTorch: its weight is packed away, and its operations tell its size."""
    torch = maker.torch
    x, flops = call.matrix(0), float(question.get("flops", "nan"))
    if maker.device.type != "cpu":
        raise NotReplayed("PyTorch's packed weights are for the CPU")
    if x is None or not prod(x) or not flops > 0 or flops % (2 * prod(x)):
        raise NotReplayed("the size of its packed weight is not known")
    shape = (int(flops) // (2 * prod(x)), x[-1])
    reduced = call.scalar(2) is True
    op = getattr(torch.ops.quantized, _PACKED[call.name])

    def inputs() -> Inputs:
        weight = torch.quantize_per_tensor(torch.randn(shape).mul_(0.1), 0.01, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(weight, torch.zeros(shape[0]))
        return [maker.tensor(x, call.dtype(0)), packed, reduced], {}

    return Replay(op, inputs, "with a bias, which is not recorded", prod(shape))
