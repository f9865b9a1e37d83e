"""TensorRT: the exported model as an engine. Windows are recorded by torch.profiler, which sees the engine's kernels.

Needs a GPU, ``tensorrt`` and the exporter's packages (the ``[trt]`` extra). Which operators a layer fuses is what
TensorRT itself tells by name.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from profilers.collectors.backends import ort
from profilers.collectors.backends.base import Job, Prepared
from profilers.collectors.failures import DtypeError, UsageError

WORKSPACE_BYTES = 4 << 30


def prepare(job: Job) -> Prepared:
    """Export, build an engine, and bind its inputs. Raises :class:`UsageError` where a step of it is refused."""
    import tensorrt

    if job.spec.dtype == "bf16":
        raise DtypeError("the TensorRT backend builds fp32 and fp16 engines: use --dtype fp16")
    folder = Path(tempfile.mkdtemp(prefix="onnx-", dir=job.folder))
    try:
        path, inputs = ort.exported(job, folder)
        ort.let_go(job)
        job.progress.phase = "building the TensorRT engine"
        began = time.perf_counter()
        engine = build(tensorrt, path)
        job.note(f"TensorRT {tensorrt.__version__}: engine built in {time.perf_counter() - began:.1f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Prepared(bound(tensorrt, engine, inputs, job.device))


def build(tensorrt: Any, path: Path) -> Any:
    """An engine of an ONNX file. Raises :class:`UsageError` with the parser's first error."""
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    builder = tensorrt.Builder(logger)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        first = str(parser.get_error(0)) if parser.num_errors else "no reason given"
        raise UsageError(f"TensorRT cannot take this model: {' '.join(first.split())[:200]}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, WORKSPACE_BYTES)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise UsageError("TensorRT could not build an engine of this model; worker.log has its reasons")
    return tensorrt.Runtime(logger).deserialize_cuda_engine(plan)


def bound(tensorrt: Any, engine: Any, inputs: tuple[torch.Tensor, ...], device: torch.device) -> Any:
    """A step of the engine on these inputs, on torch's current stream."""
    context = engine.create_execution_context()
    tensors = iter(inputs)
    held = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT:
            tensor = next(tensors).to(device).contiguous()
        else:
            dtype = getattr(torch, tensorrt.nptype(engine.get_tensor_dtype(name)).__name__, torch.float32)
            tensor = torch.empty(tuple(engine.get_tensor_shape(name)), dtype=dtype, device=device)
        held.append(tensor)
        context.set_tensor_address(name, tensor.data_ptr())

    def step(_held: Any = held) -> None:
        context.execute_async_v3(torch.cuda.current_stream(device).cuda_stream)

    return step
