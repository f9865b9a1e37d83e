"""Floating-point operations of matrix multiplies, convolutions and fused attention, from recorded shapes.

A multiply and an add count two. The formulas give what ``torch.utils.flop_counter`` gives (a test compares them), with
two differences: the weight gradient of a grouped convolution is divided by its groups (PyTorch's counter leaves that
out), and ``_flash_attention_*`` and ``_efficient_attention_*`` are read in the layout that they are called with
(batch, sequence, heads, width). As there, a causal mask halves nothing. What an operator lacks is never guessed: no
shape, no result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from profilers.analysis.calls import Call, Shape


@dataclass(frozen=True)
class Work:
    """``flops`` of one call, the ``elements`` that it writes, and its shape as people write it."""

    flops: float
    elements: int
    label: str


Formula = Callable[[Call], "Work | None"]


def _onnx_product(call: Call) -> Work | None:
    """A product in ONNX: [..., M, K] times [K, N], the output's shape as the first value. The inner size is the left
    operand's dimension that is not M (operands may be transposed, which is not recorded)."""
    left = next((shape for shape, _ in call.tensors() if len(shape) > 1), None)
    out = call.ints(0)
    if left is None or out is None or len(out) < 2:
        return None
    k = left[-2] if left[-1] == out[-2] != left[-2] else left[-1]
    return matrix_work(out[-2], out[-1], k, prod(out[:-2]))


def _onnx_conv(call: Call) -> Work | None:
    """A convolution in ONNX: every output element sums over one filter, whose shape is the second operand's."""
    weight, out = call.matrix(1), call.ints(0)
    if weight is None or out is None or len(weight) != len(out):
        return None
    label = f"{'x'.join(map(str, call.matrix(0) or ()))} * {'x'.join(map(str, weight))}"
    return Work(2.0 * prod(out) * prod(weight[1:]), prod(out), label)


def matrix_work(m: int, n: int, k: int, batch: int = 1) -> Work:
    """``batch`` products of [m, k] and [k, n]."""
    text = (f"b={batch} " if batch != 1 else "") + f"m={m} n={n} k={k}"
    return Work(2.0 * batch * m * n * k, batch * m * n, text)


def _matrices(a: int, b: int) -> Formula:
    """Two matrices [M, K] and [K, N] at these argument positions."""

    def formula(call: Call) -> Work | None:
        left, right = call.matrix(a), call.matrix(b)
        if left is None or right is None or len(left) != 2 or len(right) != 2 or left[1] != right[0]:
            return None
        return matrix_work(left[0], right[1], left[1])

    return formula


def _batched(a: int, b: int, summed: bool = False) -> Formula:
    """Batches [B, M, K] and [B, K, N]; ``summed``: the results are added up (addbmm)."""

    def formula(call: Call) -> Work | None:
        left, right = call.matrix(a), call.matrix(b)
        if left is None or right is None or len(left) != 3 or len(right) != 3 or left[2] != right[1]:
            return None
        work = matrix_work(left[1], right[2], left[2], left[0])
        return Work(work.flops, left[1] * right[2], work.label) if summed else work

    return formula


def _linear(x: int = 0, weight: int = 1) -> Formula:
    """[..., K] times a weight [N, K]."""

    def formula(call: Call) -> Work | None:
        left, right = call.matrix(x), call.matrix(weight)
        if left is None or right is None or len(right) > 2 or left[-1] != right[-1]:
            return None
        return matrix_work(prod(left[:-1]), right[0] if len(right) == 2 else 1, left[-1])

    return formula


def _matmul(call: Call) -> Work | None:
    """NumPy's rules: vectors get a dimension, leading dimensions are broadcast."""
    left, right = call.matrix(0), call.matrix(1)
    if left is None or right is None:
        return None
    left = (1, *left) if len(left) == 1 else left
    right = (*right, 1) if len(right) == 1 else right
    lead = _broadcast(left[:-2], right[:-2])
    if lead is None or left[-1] != right[-2]:
        return None
    if len(right) == 2:
        return matrix_work(prod(left[:-1]), right[1], left[-1])
    return matrix_work(left[-2], right[-1], left[-1], prod(lead))


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    size = max(len(a), len(b))
    a, b = (1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return tuple(max(x, y) if 0 not in (x, y) else 0 for x, y in zip(a, b, strict=True))


def broadcast(shapes: list[Shape]) -> Shape | None:
    """The shape that all of them broadcast to; None where they do not."""
    result: Shape = ()
    for shape in shapes:
        joint = _broadcast(result, shape)
        if joint is None:
            return None
        result = joint
    return result


def _vector(matrix: int, vector: int) -> Formula:
    def formula(call: Call) -> Work | None:
        left, right = call.matrix(matrix), call.matrix(vector)
        if left is None or right is None or len(left) != 2 or len(right) != 1 or left[1] != right[0]:
            return None
        return matrix_work(left[0], 1, left[1])

    return formula


def _dot(call: Call) -> Work | None:
    left, right = call.matrix(0), call.matrix(1)
    return matrix_work(1, 1, left[0]) if left is not None and left == right and len(left) == 1 else None


def _grouped(call: Call) -> Work | None:
    """Groups of rows (or columns, or slices of K) of one matrix times their own matrices; groups share one total."""
    left, right = call.matrix(0), call.matrix(1)
    if left is None or right is None or {len(left), len(right)} - {2, 3}:
        return None
    m, k = left[-2:]
    n = right[-1]
    if right[-2] != k:
        return None
    groups = right[0] if len(right) == 3 else left[0] if len(left) == 3 else (call.matrix(2) or (1,))[0]
    if len(left) == len(right) == 3:
        return matrix_work(m, n, k, left[0])
    elements = m * n * (groups if len(left) == len(right) else 1)
    return Work(2.0 * m * n * k, elements, f"groups={groups} m={m} n={n} k={k}")


def _int4_packed(call: Call) -> Work | None:
    """A [M, K] times 4-bit weights packed as [N/8, K/(inner 16), 32, inner/2]."""
    left, right = call.matrix(0), call.matrix(1)
    if left is None or right is None or len(left) != 2 or len(right) != 4:
        return None
    return matrix_work(left[0], right[0] * 8, left[1])


def _int4_cpu(call: Call) -> Work | None:
    """A [M, K] times 4-bit weights packed as [N, K/2]."""
    left, right = call.matrix(0), call.matrix(1)
    if left is None or right is None or len(left) != 2 or len(right) != 2 or right[1] * 2 != left[1]:
        return None
    return matrix_work(left[0], right[0], left[1])


def _four_bit(call: Call) -> Work | None:
    """bitsandbytes: A [..., K], packed B, and B's true shape [N, K] as a list."""
    left, shape = call.matrix(0), call.ints(2)
    if left is None or shape is None or len(shape) != 2 or left[-1] != shape[1]:
        return None
    return matrix_work(prod(left[:-1]), shape[0], left[-1])


def _out_first(call: Call) -> Work | None:
    """vLLM's operators write into their first argument: out [M, N], A [M, K]."""
    out, left = call.matrix(0), call.matrix(1)
    if out is None or left is None or len(out) != 2 or len(left) != 2 or out[0] != left[0]:
        return None
    return matrix_work(out[0], out[1], left[1])


def _rnn(call: Call) -> Work | None:
    """One recurrent layer: input [T, B, I], input weights [G, I], hidden weights [G, H]."""
    x, w_in, w_hidden = call.matrix(0), call.matrix(1), call.matrix(2)
    if x is None or w_in is None or w_hidden is None or len(x) != 3 or len(w_in) != 2 or len(w_hidden) != 2:
        return None
    rows = x[0] * x[1]
    flops = 2.0 * rows * (prod(w_in) + prod(w_hidden))
    return Work(flops, rows * w_hidden[1], f"t={x[0]} b={x[1]} in={w_in[1]} hidden={w_hidden[1]}")


def _output(x: Shape, w: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Shape:
    """Spatial sizes of a convolution's output."""

    def at(values: Shape, axis: int) -> int:
        return values[axis] if axis < len(values) else values[-1]

    return tuple(
        (size + 2 * at(padding, axis) - at(dilation, axis) * (w[2 + axis] - 1) - 1) // at(stride, axis) + 1
        for axis, size in enumerate(x[2:])
    )


def _conv_work(x: Shape, w: Shape, out: Shape, transposed: bool, groups: int, stride: Shape | None = None) -> Work:
    """``out``: spatial sizes of the output. The weight is [out, in/groups, ...]; transposed [in, out/groups, ...]."""
    filters = w[1] * groups if transposed else w[0]
    sizes = x[2:] if transposed else out
    label = f"b={x[0]} c={x[1]} {'x'.join(map(str, x[2:]))} f={filters} k={'x'.join(map(str, w[2:]))}"
    label += f" s={'x'.join(map(str, stride))}" if stride and set(stride) != {1} else ""
    label += f" g={groups}" if groups != 1 else ""
    label += " transposed" if transposed else ""
    return Work(2.0 * x[0] * prod(sizes) * prod(w), x[0] * filters * prod(out), label)


def _conv(
    stride: int,
    padding: int,
    dilation: int | None,
    groups: int | None,
    transposed: int | bool = False,
    output_padding: int | None = None,
) -> Formula:
    """A convolution whose stride, padding ... are at these argument positions (``transposed``: position, or known)."""

    def formula(call: Call) -> Work | None:
        x, w = call.matrix(0), call.matrix(1)
        if x is None or w is None or len(w) < 3:
            return None
        x = (1, *x) if len(x) == len(w) - 1 else x
        if len(x) != len(w):
            return None
        turned = transposed if isinstance(transposed, bool) else call.scalar(transposed)
        steps = call.ints(stride)
        spread = call.ints(dilation) if dilation is not None else (1,)
        split = call.scalar(groups) if groups is not None else x[1] // w[1] if w[1] else 1
        if not isinstance(turned, bool) or not steps or not spread or not isinstance(split, int):
            return None
        pads = call.ints(padding)
        if pads is None:
            # conv2d(padding="same" | "valid") records the word.
            word = str(call.values[padding]).strip("'\"") if padding < len(call.values) else ""
            if word == "same" and set(steps) == {1}:
                return _conv_work(x, w, x[2:], turned, split, steps)
            if word != "valid":
                return None
            pads = (0,)
        if turned:
            extra = (call.ints(output_padding) if output_padding is not None else None) or (0,)
            out = tuple(
                (size - 1) * steps[min(axis, len(steps) - 1)]
                - 2 * pads[min(axis, len(pads) - 1)]
                + spread[min(axis, len(spread) - 1)] * (w[2 + axis] - 1)
                + extra[min(axis, len(extra) - 1)]
                + 1
                for axis, size in enumerate(x[2:])
            )
            return _conv_work(x, w, out, True, split, steps)
        return _conv_work(x, w, _output(x, w, steps, pads, spread), False, split, steps)

    return formula


def _cudnn_conv(call: Call) -> Work | None:
    """cudnn_convolution(x, w, padding, stride, dilation, groups ...); before 2021 with a bias at position 2."""
    first = 2 if call.dtype(2) == "ScalarList" or call.ints(2) is not None else 3
    return _conv(stride=first + 1, padding=first, dilation=first + 2, groups=first + 3)(call)


def _cudnn_transposed(call: Call) -> Work | None:
    return _conv(stride=4, padding=2, dilation=5, groups=6, transposed=True, output_padding=3)(call)


def _conv_backward(grad: int, x: int, weight: int, mask: int | None, parts: tuple[bool, bool] | None = None) -> Formula:
    """Each of the gradients of input and weight costs what the forward pass costs. ``mask`` is the position of the
    truth values that say which are wanted (-1: the last argument that is such a list)."""

    def formula(call: Call) -> Work | None:
        grad_shape, x_shape, w = call.matrix(grad), call.matrix(x), call.matrix(weight)
        if grad_shape is None or x_shape is None or w is None or len(x_shape) != len(w) or len(grad_shape) != len(w):
            return None
        wanted: tuple[bool, ...] | None = parts
        if wanted is None:
            at = range(len(call.values) - 1, -1, -1) if mask == -1 else [mask or 0]
            wanted = next((flags for flags in map(call.flags, at) if flags is not None and len(flags) >= 2), None)
        if wanted is None:
            return None
        turned = w[0] == x_shape[1] and w[0] != grad_shape[1]
        if call.name == "convolution_backward":
            turned = call.scalar(7) is True
        groups = max(1, (grad_shape[1] if turned else x_shape[1]) // max(w[1], 1))
        forward = _conv_work(x_shape, w, grad_shape[2:], turned, groups)
        elements = wanted[0] * prod(x_shape) + wanted[1] * prod(w)
        return Work(forward.flops * (wanted[0] + wanted[1]), elements, forward.label)

    return formula


def _attention(first: int = 0, sequence_first: bool = False, backward: bool = False) -> Formula:
    """Query [B, H, Q, D], key [B, Hkv, K, D], value [B, Hkv, K, Dv] (``sequence_first``: [B, Q, H, D] ...).

    Forward: two batched products. Backward: five, the scores are computed again.
    """

    def formula(call: Call) -> Work | None:
        shapes = [call.matrix(first + offset) for offset in range(3)]
        if any(shape is None or len(shape) != 4 for shape in shapes):
            return None
        q, k, v = (shape for shape in shapes if shape is not None)
        if sequence_first:
            q, k, v = ((shape[0], shape[2], shape[1], shape[3]) for shape in (q, k, v))
        if q[3] != k[3] or k[2] != v[2] or not k[1] or q[1] % k[1]:
            return None
        scores = 2.0 * q[0] * q[1] * q[2] * k[2]
        products = (3 * q[3] + 2 * v[3]) if backward else (q[3] + v[3])
        elements = prod(q) + prod(k) + prod(v) if backward else prod(q[:3]) * v[3]
        label = f"b={q[0]} h={q[1]} q={q[2]} k={k[2]} d={q[3]}" + (f" hkv={k[1]}" if k[1] != q[1] else "")
        return Work(scores * products, elements, label)

    return formula


_CONV_ND = _conv(stride=3, padding=4, dilation=5, groups=6)
_CONV_TRANSPOSED = _conv(stride=3, padding=4, dilation=7, groups=6, transposed=True, output_padding=5)
_CONVOLUTION = _conv(stride=3, padding=4, dilation=5, groups=8, transposed=6, output_padding=7)
_PAD_FIRST = _conv(stride=4, padding=3, dilation=5, groups=6)
_SLOW = _conv(stride=4, padding=5, dilation=None, groups=None)
_SLOW_DILATED = _conv(stride=4, padding=5, dilation=6, groups=None)
_SDPA = _attention()
_SDPA_BACKWARD = _attention(1, backward=True)
_FLASH = _attention(sequence_first=True)
_FLASH_BACKWARD = _attention(1, sequence_first=True, backward=True)

FORMULAS: dict[str, Formula] = {
    "mm": _matrices(0, 1),
    "addmm": _matrices(1, 2),
    "addmm_": _matrices(1, 2),
    "_addmm_activation": _matrices(1, 2),
    "bmm": _batched(0, 1),
    "baddbmm": _batched(1, 2),
    "baddbmm_": _batched(1, 2),
    "addbmm": _batched(1, 2, summed=True),
    "linear": _linear(),
    "matmul": _matmul,
    "mv": _vector(0, 1),
    "addmv": _vector(1, 2),
    "addmv_": _vector(1, 2),
    "dot": _dot,
    "vdot": _dot,
    "_int_mm": _matrices(0, 1),
    "_scaled_mm": _matrices(0, 1),
    "_scaled_mm_v2": _matrices(0, 1),
    "_grouped_mm": _grouped,
    "_scaled_grouped_mm": _grouped,
    "_scaled_grouped_mm_v2": _grouped,
    "_weight_int8pack_mm": _linear(),
    "_weight_int4pack_mm": _int4_packed,
    "_weight_int4pack_mm_for_cpu": _int4_cpu,
    "mkldnn_linear": _linear(),
    "_linear_pointwise": _linear(),
    "_mkl_linear": _linear(0, 2),
    "qlinear_pointwise": _matrices(0, 3),
    "int8_linear_matmul": _linear(),
    "int8_scaled_mm": _linear(),
    "int8_mixed_scaled_mm": _linear(0, 2),
    "gemv_4bit": _four_bit,
    "gemm_4bit": _four_bit,
    "cutlass_scaled_mm": _out_first,
    "mkldnn_rnn_layer": _rnn,
    "convolution": _CONVOLUTION,
    "_convolution": _CONVOLUTION,
    "convolution_overrideable": _CONVOLUTION,
    "conv1d": _CONV_ND,
    "conv2d": _CONV_ND,
    "conv3d": _CONV_ND,
    "conv_transpose1d": _CONV_TRANSPOSED,
    "conv_transpose2d": _CONV_TRANSPOSED,
    "conv_transpose3d": _CONV_TRANSPOSED,
    "cudnn_convolution": _cudnn_conv,
    "cudnn_convolution_relu": _CONV_ND,
    "cudnn_convolution_add_relu": _conv(stride=5, padding=6, dilation=7, groups=8),
    "cudnn_convolution_transpose": _cudnn_transposed,
    "miopen_convolution": _PAD_FIRST,
    "miopen_depthwise_convolution": _PAD_FIRST,
    "mkldnn_convolution": _PAD_FIRST,
    "_convolution_pointwise": _PAD_FIRST,
    "thnn_conv2d": _SLOW,
    "_slow_conv2d_forward": _SLOW,
    "slow_conv3d": _SLOW,
    "slow_conv3d_forward": _SLOW,
    "slow_conv_dilated2d": _SLOW_DILATED,
    "slow_conv_dilated3d": _SLOW_DILATED,
    "_conv_depthwise2d": _SLOW_DILATED,
    "conv_depthwise3d": _SLOW_DILATED,
    "convolution_backward": _conv_backward(0, 1, 2, 10),
    "cudnn_convolution_backward": _conv_backward(1, 0, 2, -1),
    "miopen_convolution_backward": _conv_backward(1, 0, 2, -1),
    "mkldnn_convolution_backward": _conv_backward(1, 0, 2, -1),
    "_slow_conv2d_backward": _conv_backward(0, 1, 2, -1),
    "thnn_conv2d_backward": _conv_backward(0, 1, 2, -1),
    "scaled_dot_product_attention": _SDPA,
    "_scaled_dot_product_flash_attention": _SDPA,
    "_scaled_dot_product_flash_attention_for_cpu": _SDPA,
    "_scaled_dot_product_efficient_attention": _SDPA,
    "_scaled_dot_product_cudnn_attention": _SDPA,
    "_scaled_dot_product_fused_attention_overrideable": _SDPA,
    "_scaled_dot_product_attention_math": _SDPA,
    "_scaled_dot_product_flash_attention_backward": _SDPA_BACKWARD,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _SDPA_BACKWARD,
    "_scaled_dot_product_efficient_attention_backward": _SDPA_BACKWARD,
    "_scaled_dot_product_cudnn_attention_backward": _SDPA_BACKWARD,
    "_scaled_dot_product_fused_attention_overrideable_backward": _SDPA_BACKWARD,
    "_flash_attention_forward": _FLASH,
    "_efficient_attention_forward": _FLASH,
    "_cudnn_attention_forward": _SDPA,
    "_flash_attn_forward": _FLASH,
    "_flash_attention_backward": _FLASH_BACKWARD,
    "_efficient_attention_backward": _FLASH_BACKWARD,
    "_flash_attn_backward": _FLASH_BACKWARD,
    **dict.fromkeys(
        (
            "MatMul",
            "Gemm",
            "FusedMatMul",
            "FusedGemm",
            "GemmFastGelu",
            "MatMulInteger",
            "MatMulIntegerToFloat",
            "DynamicQuantizeMatMul",
        ),
        _onnx_product,
    ),
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger"), _onnx_conv),
    # Layers of TensorRT, which the reader spells as ONNX does.
    **dict.fromkeys(("CaskConvolution", "CaskGemmConvolution", "Convolution"), _onnx_conv),
    **dict.fromkeys(("MatrixMultiply", "CaskGemmMatrixMultiply", "gemm"), _onnx_product),
}
"""By operator name without its namespace."""


def work(call: Call) -> Work | None:
    """The work of one call; None where no formula applies or the recording lacks what it needs."""
    formula = FORMULAS.get(call.name)
    return formula(call) if formula else None
