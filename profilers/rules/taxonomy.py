"""Classes and groups: the fixed vocabulary that rules decide between and that every picture colours.

The ten non-GEMM groups are those of NonGEMM Bench (section 2.2 of the study), refined by what today's models add.
A group belongs to exactly one class; its letter stands for it where there is no colour.
"""

from __future__ import annotations

from dataclasses import dataclass

GEMM = "gemm"
ATTENTION = "attention"
NONGEMM = "nongemm"
COMMUNICATION = "communication"
UNCLASSIFIED = "unclassified"
IDLE = "idle"

CLASSES = (GEMM, ATTENTION, NONGEMM, COMMUNICATION, UNCLASSIFIED)


@dataclass(frozen=True)
class Group:
    name: str
    cls: str
    letter: str
    doc: str


_GROUPS = (
    Group("matmul", GEMM, "G", "matrix multiply, linear layers"),
    Group("convolution", GEMM, "C", "convolutions, forward and backward"),
    Group("grouped-matmul", GEMM, "M", "grouped or expert matrix multiply (mixture of experts)"),
    Group("attention", ATTENTION, "A", "fused scaled-dot-product attention"),
    Group("normalization", NONGEMM, "n", "layer, batch, group and RMS normalization"),
    Group("activation", NONGEMM, "a", "ReLU, GELU, SiLU, sigmoid, tanh and gates"),
    Group("softmax", NONGEMM, "s", "softmax and log-softmax (logit computation)"),
    Group("elementwise", NONGEMM, "e", "element-wise arithmetic, comparison and logic"),
    Group("reduction", NONGEMM, "r", "sum, mean, max, norm and other reductions"),
    Group("memory", NONGEMM, "m", "copies, layout changes, indexing, allocation, fills"),
    Group("roi", NONGEMM, "i", "non-maximum suppression, RoI align"),
    Group("interpolation", NONGEMM, "t", "up-sampling, grid sampling"),
    Group("pooling", NONGEMM, "p", "max and average pooling"),
    Group("embedding", NONGEMM, "b", "table look-ups and their gradients"),
    Group("quantization", NONGEMM, "q", "quantize, dequantize, scales"),
    Group("routing", NONGEMM, "u", "expert routing: top-k, sort, histogram, permutation of tokens"),
    Group("optimizer", NONGEMM, "o", "optimizer updates, gradient scaling and clipping"),
    Group("loss", NONGEMM, "l", "loss functions"),
    Group("random", NONGEMM, "d", "random numbers and dropout"),
    Group("scan", NONGEMM, "c", "cumulative sums and products, state-space scans, sequential recurrences"),
    Group("other", NONGEMM, "x", "known not to be matrix multiply, but in none of the groups above"),
    Group("collective", COMMUNICATION, "X", "collectives and point-to-point transfers between devices"),
    Group("unclassified", UNCLASSIFIED, "?", "no rule applies"),
)

GROUPS: dict[str, Group] = {group.name: group for group in _GROUPS}


def class_of(group: str) -> str:
    """The class of a group; an unknown group is unclassified."""
    known = GROUPS.get(group)
    return known.cls if known else UNCLASSIFIED
