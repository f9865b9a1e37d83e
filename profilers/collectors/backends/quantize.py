"""Smaller numbers for a built model's linear layers, by torchao, bitsandbytes or PyTorch itself. Imports torch.

The model is changed in place before anything is timed. Transformers' ``Conv1D`` (GPT-2), a linear layer with its weight
the other way round, becomes a plain linear layer first: no library quantizes it otherwise. What stays as it is (every
convolution does) is counted in the run's notes.
"""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import torch

from profilers.collectors.backends.base import Job
from profilers.collectors.failures import DeviceError, UsageError

GROUP = 128
"""Weights that share one scale, for int4."""


def apply(job: Job, name: str) -> None:
    """Quantize the workload's module. Raises :class:`UsageError` or :class:`DeviceError` in one line."""
    module = getattr(job.built, "module", None)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"this workload has no module to quantize: leave --quant {name} out")
    job.progress.phase = f"quantizing ({name})"
    straightened = straighten(module)
    if straightened:
        job.note(f"{straightened} Conv1D layers became linear layers, so that they can be quantized")
    linear = linears(module)
    if not linear:
        raise UsageError(f"this model has no linear layer to quantize: leave --quant {name} out")
    before = size_bytes(module)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            used = _APPLY[name](job, module)
    except (ImportError, NotImplementedError, RuntimeError, AssertionError, ValueError, TypeError) as error:
        if isinstance(error, (UsageError, DeviceError)):
            raise
        line = " ".join(str(error).split())[:160]
        raise UsageError(f"--quant {name} cannot be done here: {type(error).__name__}: {line}") from error
    gc.collect()
    others = sum(isinstance(one, torch.nn.modules.conv._ConvNd) for one in module.modules())
    left = len([one for one in linears(module) if not _is_quantized(one)])
    stay = f"; {others} convolutions stay as they are" if others else ""
    job.note(f"{name} by {used}: {len(linear) - left} of {len(linear)} linear layers quantized{stay}")
    after = size_bytes(module)
    if after and after < before:
        job.note(f"weights: {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB after quantizing")


# --- the ways -----------------------------------------------------------------------------------------------------------


def _torchao(make: Callable[[Job], Any]) -> Callable[[Job, torch.nn.Module], str]:
    def way(job: Job, module: torch.nn.Module) -> str:
        import torchao
        from torchao.quantization import quantize_

        quantize_(module, make(job))
        return f"torchao {torchao.__version__}"

    return way


def _int8_weights(_job: Job) -> Any:
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig()


def _int8_dynamic_config(_job: Job) -> Any:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return Int8DynamicActivationInt8WeightConfig()


def _int8_dynamic(job: Job, module: torch.nn.Module) -> str:
    """torchao; without it PyTorch's own dynamic quantization, which is for CPUs."""
    try:
        import torchao  # noqa: F401
    except ImportError:
        if job.device.type != "cpu":
            raise UsageError("--quant int8dyn on a GPU needs torchao: pip install 'kernelscope[quant]'") from None
        return torch_dynamic(module)
    return _torchao(_int8_dynamic_config)(job, module)


def torch_dynamic(module: torch.nn.Module) -> str:
    """``torch.ao.quantization.quantize_dynamic`` on linear layers, in place."""
    from torch.ao.quantization import quantize_dynamic

    quantize_dynamic(module, {torch.nn.Linear}, dtype=torch.qint8, inplace=True)
    return f"torch.ao of torch {torch.__version__} ({torch.backends.quantized.engine})"


def _int4_weights(job: Job) -> Any:
    import torchao
    from torchao.quantization import Int4WeightOnlyConfig
    from torchao.quantization.quantize_.workflows import Int4PackingFormat

    # The one for CPUs has been in torchao's releases at times.
    wanted = "OPAQUE" if job.device.type == "cpu" else "TILE_PACKED_TO_4D"
    packing = getattr(Int4PackingFormat, wanted, None)
    if packing is None:
        raise DeviceError(f"torchao {torchao.__version__} has no int4 weights for this device: use int8wo or nf4")
    if job.spec.dtype != "bf16":
        raise UsageError("--quant int4wo computes in bf16: add --dtype bf16")
    return Int4WeightOnlyConfig(group_size=GROUP, int4_packing_format=packing)


def _float8(job: Job) -> Any:
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig

    if torch.cuda.get_device_capability(job.device) < (8, 9):
        name = torch.cuda.get_device_name(job.device)
        raise DeviceError(f"{name} has no float8: compute capability 8.9 or newer is needed for --quant fp8")
    return Float8DynamicActivationFloat8WeightConfig()


def _bitsandbytes(make: Callable[[Any, torch.nn.Linear, torch.dtype], torch.nn.Module]) -> Callable[..., str]:
    def way(job: Job, module: torch.nn.Module) -> str:
        import bitsandbytes

        dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[job.spec.dtype]
        for name, layer in linears_by_name(module):
            made = make(bitsandbytes.nn, layer, dtype)
            # Quantization happens as the weights reach their device.
            _set(module, name, made.to(job.device))
        return f"bitsandbytes {bitsandbytes.__version__}"

    return way


def _llm_int8(nn: Any, layer: torch.nn.Linear, _dtype: torch.dtype) -> torch.nn.Module:
    made = nn.Linear8bitLt(
        layer.in_features, layer.out_features, layer.bias is not None, has_fp16_weights=False, threshold=6.0
    )
    made.weight = nn.Int8Params(layer.weight.detach().cpu(), requires_grad=False, has_fp16_weights=False)
    made.bias = layer.bias
    return made  # type: ignore[no-any-return]


def _nf4(nn: Any, layer: torch.nn.Linear, dtype: torch.dtype) -> torch.nn.Module:
    made = nn.Linear4bit(
        layer.in_features, layer.out_features, layer.bias is not None, compute_dtype=dtype, quant_type="nf4"
    )
    made.weight = nn.Params4bit(layer.weight.detach().cpu(), requires_grad=False, quant_type="nf4")
    made.bias = layer.bias
    return made  # type: ignore[no-any-return]


_APPLY: dict[str, Callable[[Job, torch.nn.Module], str]] = {
    "int8wo": _torchao(_int8_weights),
    "int8dyn": _int8_dynamic,
    "int4wo": _torchao(_int4_weights),
    "fp8": _torchao(_float8),
    "llmint8": _bitsandbytes(_llm_int8),
    "nf4": _bitsandbytes(_nf4),
}


# --- layers -------------------------------------------------------------------------------------------------------------


def linears_by_name(module: torch.nn.Module) -> list[tuple[str, torch.nn.Linear]]:
    """Linear layers with their names; the module itself is none of them."""
    return [(name, one) for name, one in module.named_modules() if name and isinstance(one, torch.nn.Linear)]


def linears(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Linear layers, quantized ones too."""
    return [one for one in module.modules() if isinstance(one, torch.nn.Linear) or _is_dynamic(one)]


def straighten(module: torch.nn.Module) -> int:
    """Replace every ``Conv1D`` by the linear layer that computes the same; returns how many there were."""
    import sys

    # Where transformers is not loaded, nothing is of its class.
    utils = sys.modules.get("transformers.pytorch_utils")
    if utils is None:
        return 0
    found = [(name, one) for name, one in module.named_modules() if name and isinstance(one, utils.Conv1D)]
    for name, one in found:
        made = torch.nn.Linear(
            one.weight.shape[0], one.weight.shape[1], bias=True, device="meta", dtype=one.weight.dtype
        )
        made.weight = torch.nn.Parameter(one.weight.detach().t().contiguous())
        made.bias = torch.nn.Parameter(one.bias.detach())
        made.train(one.training)
        _set(module, name, made)
    return len(found)


def _set(module: torch.nn.Module, name: str, made: torch.nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent) if parent else module, last, made)


def _is_dynamic(one: torch.nn.Module) -> bool:
    return type(one).__module__.startswith("torch.ao.nn.quantized")


def _is_quantized(one: torch.nn.Module) -> bool:
    if _is_dynamic(one) or type(one).__module__.startswith("bitsandbytes"):
        return True
    weight = getattr(one, "weight", None)
    return isinstance(weight, torch.Tensor) and type(
        weight.data if type(weight) is torch.nn.Parameter else weight
    ) not in (
        torch.Tensor,
        torch.nn.Parameter,
    )


def size_bytes(module: torch.nn.Module) -> int:
    """Bytes of parameters, buffers and packed weights, each storage once; what cannot be seen into is not counted."""
    seen: set[int] = set()
    total = 0
    for tensor in _plain_tensors(module):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.nbytes()
    return total


def _plain_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for one in [*module.parameters(), *module.buffers()]:
        found += _inner(one)
    for layer in module.modules():
        packed: Any = getattr(layer, "_packed_params", None)
        if _is_dynamic(layer) and hasattr(packed, "_weight_bias"):
            weight = packed._weight_bias()[0]
            found.append(copy.copy(weight.int_repr()) if weight.is_quantized else weight)
    return found


def _inner(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The plain tensors that a tensor subclass holds."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return [tensor] if tensor.device.type != "meta" else []
    names, _ = flatten()
    return [plain for name in names for plain in _inner(getattr(tensor, name))]
