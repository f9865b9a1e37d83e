"""What the profiler calls the types of tensors. Imports torch."""

from __future__ import annotations

import torch

_NAMES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int",
    torch.int32: "int",
    torch.int16: "short int",
    torch.int8: "signed char",
    torch.uint8: "unsigned char",
    torch.bool: "bool",
    torch.complex64: "c10::complex<float>",
    torch.complex128: "c10::complex<double>",
}


def type_name(dtype: torch.dtype) -> str:
    """``c10::Half`` for ``torch.float16``, as in the table of operators; types that are not listed by torch's own name."""
    return _NAMES.get(dtype, str(dtype))
