"""Which operators a kernel of Inductor fuses, from Inductor's own provenance. Imports torch.

While it compiles a graph, Inductor keeps which nodes of its (ATen) graph went into each kernel; it makes that known to
its debug artifacts through ``torch._inductor.debug.dump_inductor_provenance_info``. This module listens there, and adds
each node's shapes and types, so that the operators inside a kernel can be priced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from profilers.collectors import files, protocol
from profilers.collectors.typenames import type_name

Fused = dict[str, list[dict[str, str]]]
"""Kernel name as profiled -> its operators: ``name``, ``input_shapes``, ``input_dtypes``, ``input_values`` (as in the
table of operators: JSON lists by argument)."""


def follow() -> Callable[[], Fused] | None:
    """Begin to listen; the result gives what is known so far. None where this torch has no such provenance."""
    try:
        import torch._inductor.config as inductor
        import torch._inductor.debug as debug
        from torch._inductor.virtualized import V

        level = inductor.trace.provenance_tracking_level
        original = debug.dump_inductor_provenance_info
    except (ImportError, AttributeError):
        return None
    inductor.trace.provenance_tracking_level = max(1, int(level))
    found: Fused = {}

    def listen() -> Any:
        mapping = original()
        try:
            graph = V.graph
            _collect(found, mapping.get("cppCodeToPost") or {}, graph.module.graph, graph.graph_id)
        except (AttributeError, TypeError, NotImplementedError):
            # A release that names these things otherwise: the kernels stay, what they fuse is unknown.
            pass
        return mapping

    debug.dump_inductor_provenance_info = listen
    return lambda: dict(found)


def write(folder: Path, kernels: Fused) -> None:
    """Replace the run's ``fusion.json``."""
    files.write_atomic(folder / protocol.FUSION, msgspec.json.encode(kernels))


def _collect(found: Fused, kernels: dict[str, list[str]], graph: Any, graph_id: Any) -> None:
    nodes = {node.name: node for node in graph.nodes}
    order = {name: place for place, name in enumerate(nodes)}
    for key, names in kernels.items():
        # "name:7": a kernel that is called at several places has one entry a place, all of the same code.
        kernel = key.rpartition(":")[0] or key
        if kernel.startswith("extern_kernels.") or "::" in kernel:
            continue
        if kernel.startswith("cpp_"):
            kernel = f"graph_{graph_id}_{kernel}"
        if kernel in found:
            continue
        inside = [_operator(nodes[name]) for name in sorted(set(names) & nodes.keys(), key=order.__getitem__)]
        found[kernel] = [one for one in inside if one is not None]


def _operator(node: Any) -> dict[str, str] | None:
    """One ATen node as a row of the table of operators; None for what only picks a part of another's result."""
    if node.op != "call_function" or node.target is operator.getitem:
        return None
    schema = getattr(node.target, "_schema", None)
    name = str(schema.name) if schema is not None else str(getattr(node.target, "__name__", node.target))
    overload = str(getattr(node.target, "_overloadname", "") or "")
    shapes: list[Any] = []
    dtypes: list[str] = []
    values: list[str] = []
    for value in _arguments(node, schema):
        shape, dtype, scalar = _argument(value)
        shapes.append(shape)
        dtypes.append(dtype)
        values.append(scalar)
    suffix = ".out" if overload == "out" else ""
    return {
        "name": f"{name}{suffix}",
        "input_shapes": msgspec.json.encode(shapes).decode(),
        "input_dtypes": msgspec.json.encode(dtypes).decode(),
        "input_values": msgspec.json.encode(values).decode(),
    }


def _arguments(node: Any, schema: Any) -> list[Any]:
    """Positional arguments as the profiler records them: all of the schema, defaults filled in."""
    if schema is None:
        return list(node.args)
    given = list(node.args)
    for argument in schema.arguments[len(given) :]:
        given.append(node.kwargs.get(argument.name, argument.default_value))
    return given


def _argument(value: Any) -> tuple[Any, str, str]:
    """Shape, type and value of an argument."""
    if isinstance(value, torch.fx.Node):
        held = value.meta.get("val")
        if isinstance(held, torch.Tensor):
            return _shape(held), type_name(held.dtype), ""
        return [], "Scalar", "" if held is None else str(held)
    if isinstance(value, (list, tuple)):
        parts = [one.meta.get("val") if isinstance(one, torch.fx.Node) else one for one in value]
        if parts and all(isinstance(part, torch.Tensor) for part in parts):
            return [_shape(part) for part in parts], "TensorList", ""
        return [], "ScalarList", str(list(value))
    if value is None:
        return [], "None", ""
    return [], "Scalar", str(value)


def _shape(tensor: torch.Tensor) -> list[int]:
    """Sizes as whole numbers; a symbolic one by its hint, which is the size it was compiled with."""
    sizes = []
    for size in tensor.shape:
        if not isinstance(size, int):
            size = getattr(getattr(size, "node", None), "hint", None)
        sizes.append(int(size) if size is not None else 0)
    return sizes
