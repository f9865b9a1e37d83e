"""Bytes that an operator must move at least once: its inputs read, its outputs written, each once (an estimate).

Output shapes are not recorded; they follow from the operator's kind. Views and allocations move nothing. Where the
output's size depends on data (a boolean index) there is no result. Caches may save traffic and kernels may add to it.
"""

from __future__ import annotations

from math import prod

from profilers.analysis.calls import Call, Shape, numel, size_of
from profilers.analysis.flops import Work, broadcast


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STILL = _words(
    """
    as_strided as_strided_ view view_as _unsafe_view reshape reshape_as _reshape_alias expand expand_as
    transpose transpose_ t t_ permute movedim swapaxes swapdims select slice narrow squeeze squeeze_ unsqueeze
    unsqueeze_ unbind split split_with_sizes chunk tensor_split unsafe_split unsafe_chunk hsplit vsplit dsplit
    detach detach_ alias lift lift_fresh diagonal view_as_real view_as_complex unflatten flatten ravel numpy_T
    mT mH adjoint resolve_conj resolve_neg conj _conj real imag empty empty_like empty_strided new_empty
    new_empty_strided empty_permuted resize_ resize_as_ set_ size stride item _local_scalar_dense is_nonzero
    result_type can_cast requires_grad_ retain_grad _has_compatible_shallow_copy_type to _to_copy type_as
    contiguous clone zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full rand randn
    randint rand_like randn_like scalar_tensor record_stream _assert_async _assert_scalar unfold
    is_floating_point is_complex is_same_size broadcast_tensors broadcast_to atleast_1d atleast_2d atleast_3d
    meshgrid _version output_nr is_leaf _fw_primal _is_zerotensor positive
    """
)
"""Views, allocations, and wrappers whose copying or filling is a child operator of its own."""

_ONNX_STILL = _words("Reshape Squeeze Unsqueeze Flatten Identity Shape Size Constant If Loop")
"""ONNX: the buffer is passed on."""

_ONNX_PICKED = _words("Gather GatherElements GatherND Slice")
"""ONNX: only what is written is read."""

_WRITE_ONLY = _words(
    """
    fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ geometric_ cauchy_
    """
)

_REDUCE = _words(
    """
    sum mean prod amax amin argmax argmin norm linalg_vector_norm std var std_mean var_mean any all nansum
    count_nonzero logsumexp median nanmedian mode aminmax bincount histc dist equal
    _amp_foreach_non_finite_check nll_loss nll_loss_forward nll_loss2d_forward mse_loss l1_loss
    binary_cross_entropy
    """
)

_BROADCAST = _words(
    """
    add sub rsub mul div true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2 hypot
    where masked_fill addcmul addcdiv lerp eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and
    bitwise_or bitwise_xor copysign xlogy clamp clamp_min clamp_max
    """
)

_TRUTH = _words(
    """
    eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite
    """
)


def _bytes(shape: Shape, dtype: str, fallback: int) -> int:
    return numel(shape) * (size_of(dtype) or fallback)


def _gathered(call: Call, fallback: int) -> tuple[int, int] | None:
    """Table look-ups read what they write: (bytes, elements written)."""
    table = call.matrix(0)
    size = size_of(call.dtype(0)) or fallback
    if call.name in ("embedding", "_embedding_bag", "embedding_bag"):
        index = call.tensor(1)
        if table is None or index is None:
            return None
        if call.name == "embedding":
            written = numel(index) * prod(table[1:])
            return 2 * written * size + _bytes(index, call.dtype(1), 8), written
        offsets = call.tensor(2)
        written = (numel(offsets) if offsets else numel(index)) * prod(table[1:])
        return (written + numel(index) * prod(table[1:])) * size + _bytes(index, call.dtype(1), 8), written
    index = call.tensor(2)
    if table is None or index is None:
        return None
    if call.name == "gather":
        written = numel(index)
    else:
        axis = call.scalar(1)
        if not isinstance(axis, int) or not table[axis]:
            return None
        written = numel(table) // table[axis] * numel(index)
    return 2 * written * size + _bytes(index, call.dtype(2), 8), written


def traffic(call: Call, work: Work | None, fallback: int) -> tuple[float, int] | None:
    """``(bytes, elements)`` of one call: bytes moved at least once, and elements of its largest tensor (work items).

    ``fallback`` is the element size where no type is recorded (the tensors of a list). None: nothing is known.
    """
    tensors = call.tensors()
    if not call.dispatched and call.name not in _STILL:
        return None
    largest = max((numel(shape) for shape, _ in tensors), default=0)
    if call.name in _STILL:
        return 0.0, largest
    if work is not None:
        return _of_work(call, work, tensors, fallback)
    if call.name[:1].isupper() and (out := call.ints(0)) is not None:
        return _onnx(call, tensors, out, fallback)
    if call.name in ("index", "_index_put_impl_", "nonzero", "masked_select", "unique_dim", "_unique2"):
        return None
    if call.name in ("embedding", "embedding_bag", "_embedding_bag", "index_select", "gather"):
        found = _gathered(call, fallback)
        return None if found is None else (float(found[0]), found[1])
    if not tensors:
        return None
    first, dtype = tensors[0]
    read = sum(_bytes(shape, kind, fallback) for shape, kind in tensors)
    if call.name.startswith(("_foreach", "_fused_adam", "_fused_sgd", "_amp_foreach")):
        return _of_lists(call, read, fallback)
    if call.name in _WRITE_ONLY:
        return float(_bytes(first, dtype, fallback)), numel(first)
    if call.name == "copy_":
        return float(read), largest
    if call.name in _REDUCE or (call.name in ("max", "min") and len(tensors) == 1):
        return float(read), largest
    if call.name in ("cat", "stack", "_cat", "hstack", "vstack", "dstack", "concat"):
        total = sum(numel(shape) for shape, _ in tensors)
        return 2.0 * read, total
    if call.name.startswith("upsample_") and not call.name.endswith("backward"):
        sizes = call.ints(1)
        if sizes is None or len(first) < 3:
            return None
        written = first[0] * first[1] * prod(sizes)
        return read + float(written * (size_of(dtype) or fallback)), max(written, largest)
    if call.name == "embedding_dense_backward":
        rows = call.scalar(2)
        if not isinstance(rows, int):
            return None
        written = rows * first[-1] if first else 0
        return read + float(written * (size_of(dtype) or fallback)), max(written, largest)
    out = first
    if not call.name.endswith("_"):
        shapes = [shape for shape, _ in tensors]
        joint = broadcast(shapes) if call.name in _BROADCAST else None
        out = joint if joint is not None else max(shapes, key=numel)
    size = 1 if call.name.rstrip("_") in _TRUTH else size_of(dtype) or fallback
    return float(read + numel(out) * size), max(numel(out), largest)


def _onnx(call: Call, tensors: list[tuple[Shape, str]], out: Shape, fallback: int) -> tuple[float, int]:
    """An operator of ONNX, whose output's shape is recorded (in the type of its first input, as far as is known)."""
    if call.name in _ONNX_STILL:
        return 0.0, numel(out)
    written = _bytes(out, tensors[0][1] if tensors else "", fallback)
    if call.name in _ONNX_PICKED:
        return 2.0 * written, numel(out)
    read = sum(_bytes(shape, kind, fallback) for shape, kind in tensors)
    return float(read + written), max([numel(out), *(numel(shape) for shape, _ in tensors)])


def _of_work(call: Call, work: Work, tensors: list[tuple[Shape, str]], fallback: int) -> tuple[float, int]:
    read = sum(_bytes(shape, kind, fallback) for shape, kind in tensors)
    size = next((size_of(kind) for shape, kind in tensors if shape and size_of(kind)), fallback) or fallback
    if call.name == "_int_mm":
        size = 4
    elif call.name.startswith("_scaled_"):
        size = 2
    if call.name == "cutlass_scaled_mm":
        return float(read), work.elements
    return float(read + work.elements * size), max(work.elements, max((numel(s) for s, _ in tensors), default=0))


def _of_lists(call: Call, read: int, fallback: int) -> tuple[float, int]:
    """Fused updates over lists of tensors: everything is read; the parameters and the states are written."""
    lists = call.lists()
    counts = [sum(map(numel, shapes)) for shapes in lists]
    if not counts:
        return float(read), 0
    if call.name.startswith(("_fused_adam", "_fused_sgd")):
        written = counts[0] + sum(counts[2:4])
    elif call.name.startswith(("_foreach_norm", "_amp_foreach")):
        written = 0
    else:
        written = counts[0]
    return float(read + written * fallback), max(counts)
