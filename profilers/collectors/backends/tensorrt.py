"""TensorRT: the exported model as an engine.

Windows are recorded by torch.profiler, which sees the engine's kernels; in mode ``layers`` by TensorRT's own profiler,
which times the engine's layers (:mod:`profilers.readers.trt` reads what it writes). Which operators a layer fuses is
what TensorRT itself tells by name.

Needs a GPU, ``tensorrt`` and the exporter's packages (the ``[trt]`` extra). Written against the API of TensorRT 10 and
tested with a stand-in for it; never run on hardware.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from profilers.collectors.backends import ort
from profilers.collectors.backends.base import Job, Prepared
from profilers.collectors.failures import DtypeError, UsageError

WORKSPACE_BYTES = 4 << 30


def prepare(job: Job, mode: str = "default") -> Prepared:
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
        engine = build(tensorrt, path, detailed=mode == "layers")
        job.note(f"TensorRT {tensorrt.__version__}: engine built in {time.perf_counter() - began:.1f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if mode != "layers":
        return Prepared(bound(tensorrt, engine, inputs, job.device))
    layers = Layers(
        plain=bound(tensorrt, engine, inputs, job.device),
        watch=lambda report: bound(tensorrt, engine, inputs, job.device, profiler(tensorrt, report)),
        wait=lambda: torch.cuda.synchronize(job.device),
        about={
            "version": str(tensorrt.__version__),
            "device": _about(job.device),
            "layers": described(tensorrt, engine),
        },
    )
    return Prepared(layers.step, recorder=lambda wait, active, ready: LayerRecorder(layers, wait, active, ready))


def build(tensorrt: Any, path: Path, *, detailed: bool = False) -> Any:
    """An engine of an ONNX file; ``detailed``: it can tell its layers' types and shapes. Raises :class:`UsageError` with
    the parser's first error."""
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    builder = tensorrt.Builder(logger)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        first = str(parser.get_error(0)) if parser.num_errors else "no reason given"
        raise UsageError(f"TensorRT cannot take this model: {' '.join(first.split())[:200]}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, WORKSPACE_BYTES)
    if detailed:
        config.profiling_verbosity = tensorrt.ProfilingVerbosity.DETAILED
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise UsageError("TensorRT could not build an engine of this model; worker.log has its reasons")
    return tensorrt.Runtime(logger).deserialize_cuda_engine(plan)


def bound(
    tensorrt: Any, engine: Any, inputs: tuple[torch.Tensor, ...], device: torch.device, watched: Any = None
) -> Callable[[], None]:
    """A step of the engine on these inputs, on torch's current stream. ``watched``: a profiler that every step reports to
    (a context of its own, so that other steps stay as fast as they are)."""
    context = engine.create_execution_context()
    if watched is not None:
        context.profiler = watched
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


# --- layer times ----------------------------------------------------------------------------------------------------------


def profiler(tensorrt: Any, report: Callable[[str, float], None]) -> Any:
    """TensorRT's profiler, which reports each layer of each run: its name and milliseconds."""

    class Reporter(tensorrt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            tensorrt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            report(str(layer_name), float(ms))

    return Reporter()


_TOLD = ("Name", "LayerType", "TacticName", "Inputs", "Outputs", "Kernel", "OutMaps", "Groups")
_TYPES = {"Name": str, "LayerType": str, "TacticName": str, "Inputs": list, "Outputs": list, "Kernel": list}


def described(tensorrt: Any, engine: Any) -> list[dict[str, Any]]:
    """What the engine tells of its layers. [] where it tells nothing that can be read: layer times need no more."""
    try:
        text = engine.create_engine_inspector().get_engine_information(tensorrt.LayerInformationFormat.JSON)
        layers = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [_kept(layer) for layer in layers if isinstance(layer, dict)]


def _kept(layer: dict[str, Any]) -> dict[str, Any]:
    """The fields that the reader knows, of the types that it expects."""
    kept = {key: layer[key] for key in _TOLD if isinstance(layer.get(key), _TYPES.get(key, int))}
    for key in ("Inputs", "Outputs"):
        tensors = [one for one in kept.get(key, []) if isinstance(one, dict)]
        kept[key] = [
            {
                "Dimensions": [int(size) for size in one.get("Dimensions", [])],
                "Format/Datatype": str(one.get("Format/Datatype", "")),
            }
            for one in tensors
        ]
    return kept


def _about(device: torch.device) -> dict[str, Any]:
    """The device as the reader's tables describe one."""
    known = torch.cuda.get_device_properties(device)
    return {
        "name": known.name,
        "sm_count": known.multi_processor_count,
        "memory_bytes": known.total_memory,
        "compute_capability": f"{known.major}.{known.minor}",
    }


class Layers:
    """The engine's steps, which report the time of each layer while they are watched.

    ``plain`` is a step, ``watch(report)`` makes one that reports (it is made when it is first needed: a second context
    takes memory of its own), ``wait`` waits for the device, ``about`` describes engine and device.
    """

    def __init__(
        self,
        plain: Callable[[], None],
        watch: Callable[[Callable[[str, float], None]], Callable[[], None]],
        wait: Callable[[], None],
        about: dict[str, Any],
    ) -> None:
        self.about = about
        self.watching = False
        self.runs: list[dict[str, Any]] = []
        self._plain = plain
        self._watch = watch
        self._wait = wait
        self._watched: Callable[[], None] | None = None
        self._reported: list[tuple[str, float]] = []

    def step(self) -> None:
        """Run the engine once."""
        if not self.watching:
            self._plain()
            return
        if self._watched is None:
            self._watched = self._watch(lambda name, ms: self._reported.append((name, ms)))
        self._reported.clear()
        self._wait()
        start, began = time.time_ns(), time.perf_counter_ns()
        self._watched()
        self._wait()  # By then TensorRT has reported: it does when the run is complete.
        wall = time.perf_counter_ns() - began
        self.runs.append({"start_ns": start, "wall_ns": wall, "layers": list(self._reported)})


class LayerRecorder:
    """Windows of watched steps, driven as torch.profiler is (:class:`base.Recorder`)."""

    def __init__(self, layers: Layers, wait: int, active: int, on_trace_ready: Callable[[Any], None]) -> None:
        self._layers = layers
        self._wait = wait
        self._active = active
        self._position = 0
        self.on_trace_ready: Callable[[Any], None] | None = on_trace_ready

    def start(self) -> None:
        """Before the first step."""
        self._watch(self._wait == 0)

    def step(self) -> None:
        """After every step."""
        self._position += 1
        if self._position == self._wait + 1 + self._active:
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            self._position = 0
            self._watch(False)
        if self._position == self._wait:
            self._watch(True)

    def stop(self) -> None:
        """Give up a window that is under way."""
        self._watch(False)

    def export_chrome_trace(self, path: str) -> None:
        """Write the active runs of the window that has just ended (not a Chrome trace: the reader's own form)."""
        runs = self._layers.runs[-self._active :]
        Path(path).write_text(json.dumps({"tensorrt_layers": 1, **self._layers.about, "runs": runs}), "utf-8")

    def _watch(self, on: bool) -> None:
        self._layers.watching = on
        self._layers.runs.clear()
