"""What ONNX Runtime's fused operators are made of, by their definitions.

ONNX Runtime rewrites a graph before it runs it, and records only the operators that are left. Which ones it fused
follows from what each fused operator is defined to compute; shapes are those of the node.
"""

from __future__ import annotations

import msgspec

PREFIX = "onnx::"

# "*" stands where the product itself is: it gets the node's own operands; the others work on the output's elements.
FUSED: dict[str, tuple[str, ...]] = {
    "FusedMatMul": ("*MatMul", "Mul"),
    "FusedGemm": ("*Gemm", "Relu"),
    "GemmFastGelu": ("*MatMul", "FastGelu"),
    "FusedConv": ("*Conv", "Relu"),
    "BiasGelu": ("Add", "Gelu"),
    "QuickGelu": ("Sigmoid", "Mul"),
    "BiasSoftmax": ("Add", "Softmax"),
    "SkipLayerNormalization": ("Add", "LayerNormalization"),
    "SkipSimplifiedLayerNormalization": ("Add", "SimplifiedLayerNormalization"),
    "EmbedLayerNormalization": ("Gather", "Gather", "Add", "LayerNormalization"),
    "MatMulIntegerToFloat": ("*MatMulInteger", "Cast", "Mul"),
    "DynamicQuantizeMatMul": ("-DynamicQuantizeLinear", "*MatMulInteger", "Cast", "Mul"),
}
"""Fused operator -> the operators inside. ``-`` works on the first input's elements."""


def inside(op: str, shapes: str, dtypes: str, values: str) -> list[dict[str, str]]:
    """The operators inside a node as rows of the table of operators (:mod:`profilers.analysis.fusion`); [] for a plain
    one. ``values`` holds the output's shape."""
    made = []
    given: list[list[int]] = msgspec.json.decode(shapes or "[]")
    out = values or "[]"
    extent = msgspec.json.decode(msgspec.json.decode(out)[0]) if out != "[]" else []
    for part in FUSED.get(op, ()):
        if part.startswith("*"):
            made.append(_row(part[1:], shapes, dtypes, out))
        elif part.startswith("-"):
            made.append(_elements(part[1:], given[0] if given else extent))
        else:
            made.append(_elements(part, extent))
    return made


def _elements(op: str, extent: list[int]) -> dict[str, str]:
    operands = 2 if op in ("Add", "Mul") and extent else 1
    shapes = msgspec.json.encode([extent] * operands).decode()
    dtypes = msgspec.json.encode(["float"] * operands).decode()
    return _row(op, shapes, dtypes, msgspec.json.encode([str(extent)]).decode())


def _row(op: str, shapes: str, dtypes: str, values: str) -> dict[str, str]:
    return {"name": PREFIX + op, "input_shapes": shapes, "input_dtypes": dtypes, "input_values": values}
