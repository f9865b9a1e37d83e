"""ONNX Runtime: the workload's module is exported once and run by an inference session; windows are its own profile.

On a CPU each window has a session of its own with profiling on (ONNX Runtime can only profile a session from its
beginning to its end); steps outside windows run in a session without. On a GPU windows are recorded by torch.profiler,
which sees every kernel of the process, since ONNX Runtime's own profile holds only what the host did.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import json
import shutil
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

from profilers.collectors.backends.base import Job, Prepared, captured_call
from profilers.collectors.failures import DtypeError, UsageError

PROVIDERS = {"cpu": ["CPUExecutionProvider"], "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"]}
QUANTIZED = ["MatMul", "Gemm", "Attention"]
"""What is quantized dynamically: products by constant weights. ONNX Runtime's integer convolutions are reference code."""

BASE = "baseTimeNanoseconds"
"""A metadata event of our own: nanoseconds since the epoch at time 0 of the profile."""


class Outputs(torch.nn.Module):
    """A module that takes tensors only, by position, and returns a tuple of tensors: what ONNX can say.

    Other arguments are part of the graph. Of the results, tensors stay; caches and other objects do not.
    """

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        self.fixed_args = args
        self.fixed_kwargs = kwargs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(tensors)
        args = [next(left) if isinstance(value, torch.Tensor) else value for value in self.fixed_args]
        kwargs = {
            name: next(left) if isinstance(value, torch.Tensor) else value for name, value in self.fixed_kwargs.items()
        }
        return _tensors(self.module(*args, **kwargs))

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors of the captured call, in the order of :meth:`forward`."""
        values = [*self.fixed_args, *self.fixed_kwargs.values()]
        return tuple(value for value in values if isinstance(value, torch.Tensor))


def _tensors(value: Any) -> tuple[torch.Tensor, ...]:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(tensor for item in value.values() for tensor in _tensors(item))
    if isinstance(value, (list, tuple)):
        return tuple(tensor for item in value for tensor in _tensors(item))
    return ()


def prepare(job: Job, mode: str, quant: str) -> Prepared:
    """Export, quantize if asked, and open a session. Raises :class:`UsageError` where the model cannot be exported."""
    import onnxruntime

    provider = job.device.type if mode == "default" else mode
    _require_provider(onnxruntime, provider)
    if job.spec.dtype == "bf16" and provider == "cpu":
        raise DtypeError("ONNX Runtime computes no bf16 on a CPU: use --dtype fp32")
    onnxruntime.set_default_logger_severity(3)
    folder = Path(tempfile.mkdtemp(prefix="onnx-", dir=job.folder))
    try:
        return _prepared(job, onnxruntime, provider, quant, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _prepared(job: Job, onnxruntime: Any, provider: str, quant: str, folder: Path) -> Prepared:
    path, inputs = exported(job, folder)
    if quant:
        path = quantized(job, path)
    let_go(job)
    optimized = folder / "optimized.onnx"
    began = time.perf_counter()
    runner = Runner(onnxruntime, path, provider, inputs, job)
    held = psutil.Process().memory_info().rss
    runner.session = runner.open(save=optimized if provider == "cpu" else None)
    job.note(f"resident memory includes {held / 1e6:,.0f} MB that were there before the session (the exporter's too)")
    job.note(
        f"ONNX Runtime {onnxruntime.__version__} on {', '.join(runner.session.get_providers())}: "
        f"session opened in {time.perf_counter() - began:.1f} s"
    )
    if provider != "cpu":
        for text in runner.fallbacks(folder):
            job.note(text)
        return Prepared(runner.step, finish=lambda: _finish(folder))
    return Prepared(
        runner.step,
        recorder=lambda wait, active, ready: OrtRecorder(runner, folder, wait, active, ready),
        finish=lambda: _finish(folder),
    )


def _finish(folder: Path) -> tuple[str, ...]:
    shutil.rmtree(folder, ignore_errors=True)
    return ()


def _require_provider(onnxruntime: Any, provider: str) -> None:
    wanted = PROVIDERS[provider][0]
    if wanted not in onnxruntime.get_available_providers():
        raise UsageError(
            f"this onnxruntime has no {wanted}: pip install onnxruntime-gpu in place of onnxruntime, "
            "or use --backend onnxruntime:cpu"
        )


# --- from a module to a file --------------------------------------------------------------------------------------------


def exported(job: Job, folder: Path) -> tuple[Path, tuple[torch.Tensor, ...]]:
    """``model.onnx`` in ``folder`` and the inputs of the captured call. Attention that is not expressible as it is
    runs is exported in its parts, and a note says so."""
    module = getattr(job.built, "module", None)
    if not isinstance(module, torch.nn.Module):
        raise UsageError("this workload has no module to export: use --backend eager")
    job.progress.phase = "exporting to ONNX"
    call = captured_call(job, module)
    if call is None:
        raise UsageError("one step of this workload does not call its module: nothing to export; use --backend eager")
    wrapped = Outputs(module, *call).eval()
    inputs = tuple(tensor.detach().clone() for tensor in wrapped.inputs())
    path = folder / "model.onnx"
    began = time.perf_counter()
    try:
        program = _export(wrapped, inputs)
    except Exception as error:
        parts = getattr(module, "set_attn_implementation", None)
        if parts is None:
            raise _cannot(error) from error
        parts("eager")
        try:
            program = _export(wrapped, inputs)
        except Exception as second:
            raise _cannot(second) from second
        job.note("exported with attention in its parts (eager): as sdpa it could not be exported")
    program.save(str(path), external_data=True)
    job.note(f"exported to ONNX (opset {_opset(program)}) in {time.perf_counter() - began:.1f} s")
    return path, inputs


def _export(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    # The exporter prints steps and hints for people at a terminal; what fails is raised all the same.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        return torch.onnx.export(module, inputs, dynamo=True, verbose=False)


def _cannot(error: BaseException) -> UsageError:
    while error.__cause__ is not None:
        error = error.__cause__
    line = " ".join(str(error).split())[:200]
    return UsageError(f"this model cannot be exported to ONNX: {type(error).__name__}: {line}")


def _opset(program: Any) -> str:
    try:
        return str(program.model.opset_imports.get("", "?"))
    except AttributeError:
        return "?"


def quantized(job: Job, path: Path) -> Path:
    """The model with int8 weights in its products by constants, activations quantized as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    job.progress.phase = "quantizing"
    target = path.with_name("int8.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_dynamic(
            str(path), str(target), op_types_to_quantize=QUANTIZED, weight_type=QuantType.QInt8,
            use_external_data_format=True,
        )  # fmt: skip
    job.note(f"int8dyn by ONNX Runtime: {', '.join(QUANTIZED)} with constant weights; convolutions stay as they are")
    return target


def let_go(job: Job) -> None:
    """Free the module that was exported, so that memory is that of the session alone."""
    module = getattr(job.built, "module", None)
    if isinstance(module, torch.nn.Module):
        module.to("meta")
    gc.collect()
    if job.device.type == "cuda":
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


# --- running ------------------------------------------------------------------------------------------------------------


class Runner:
    """One model, its inputs, and the session that steps run in (``session`` may be exchanged for a profiled one)."""

    def __init__(self, onnxruntime: Any, path: Path, provider: str, inputs: tuple[torch.Tensor, ...], job: Job) -> None:
        self._ort = onnxruntime
        self._path = path
        self._provider = provider
        self._inputs = inputs
        self._level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self._index = job.device.index or 0
        self.session: Any = None
        self._bound: tuple[Any, Any] = (None, None)
        self._feeds: dict[str, Any] = {}

    def open(self, *, profile: Path | None = None, save: Path | None = None) -> Any:
        """A session; with ``profile`` (a prefix of file names) it records from now on. ``save``: keep the graph as it is
        after ONNX Runtime's own optimizations, and open that from now on (quicker, and the same graph every time)."""
        options = self._ort.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.graph_optimization_level = self._level
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        if save is not None:
            options.optimized_model_filepath = str(save)
            options.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", f"{save.name}.data"
            )
        providers: list[Any] = list(PROVIDERS[self._provider])
        if self._provider == "cuda":
            providers[0] = (providers[0], {"device_id": self._index})
        session = self._ort.InferenceSession(str(self._path), options, providers=providers)
        if save is not None and save.is_file():
            self._path, self._level = save, self._ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return session

    def step(self) -> None:
        """Run the model once on its inputs."""
        if self._provider == "cuda":
            self._bound_step()
            return
        if not self._feeds:
            names = [one.name for one in self.session.get_inputs()]
            arrays = [tensor.cpu().numpy() for tensor in self._inputs]
            self._feeds = dict(zip(names, arrays, strict=True))
        self.session.run(None, self._feeds)

    def _bound_step(self) -> None:
        """On a GPU inputs and outputs stay there: a step is not a copy over the bus."""
        session, binding = self._bound
        if session is not self.session:
            session, binding = self.session, self.session.io_binding()
            for one, tensor in zip(session.get_inputs(), self._inputs, strict=True):
                binding.bind_ortvalue_input(one.name, self._ort.OrtValue.from_dlpack(tensor.contiguous().__dlpack__()))
            for one in session.get_outputs():
                binding.bind_output(one.name, "cuda", self._index)
            self._bound = (session, binding)
        session.run_with_iobinding(binding)

    def fallbacks(self, folder: Path) -> tuple[str, ...]:
        """Which nodes do not run on the first provider, by one profiled run: a note, or none."""
        plain, self.session = self.session, self.open(profile=folder / "providers")
        try:
            self.step()
            profile = Path(self.session.end_profiling())
        finally:
            self.session = plain
        return fallback_notes(json.loads(profile.read_text("utf-8")), PROVIDERS[self._provider][0])


def fallback_notes(events: list[dict[str, Any]], provider: str) -> tuple[str, ...]:
    """A note on nodes of a profile that ran elsewhere than on ``provider``, with their operators; () for none."""
    nodes = [event.get("args", {}) for event in events if event.get("cat") == "Node"]
    away = Counter(str(one.get("op_name")) for one in nodes if one.get("provider") not in (None, provider))
    if not away:
        return ()
    kinds = ", ".join(f"{name} {count}" for name, count in away.most_common(5))
    return (f"{sum(away.values())} of {len(nodes)} nodes do not run on {provider}: {kinds}",)


class OrtRecorder:
    """Windows of a session with profiling on, driven as torch.profiler is (:class:`base.Recorder`).

    The profiled session is opened before a window's warm-up step and closed after its last; only the active runs are
    exported.
    """

    def __init__(
        self, runner: Runner, folder: Path, wait: int, active: int, on_trace_ready: Callable[[Any], None]
    ) -> None:
        self._runner = runner
        self._folder = folder
        self._wait = wait
        self._active = active
        self._plain = runner.session
        self._position = 0
        self._opened_ns = 0
        self.on_trace_ready: Callable[[Any], None] | None = on_trace_ready

    def start(self) -> None:
        """Before the first step."""
        if self._wait == 0:
            self._open()

    def step(self) -> None:
        """After every step."""
        self._position += 1
        if self._position == self._wait + 1 + self._active:
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            self._close()
            self._position = 0
        if self._position == self._wait and self._runner.session is self._plain:
            self._open()

    def stop(self) -> None:
        """Give up a window that is under way."""
        if self._runner.session is not self._plain:
            self._close()

    def export_chrome_trace(self, path: str) -> None:
        """Write the active runs of the window that has just ended."""
        profile = Path(self._runner.session.end_profiling())
        events = json.loads(profile.read_text("utf-8"))
        profile.unlink(missing_ok=True)
        kept = active_runs(events, self._active)
        kept.insert(0, {"cat": "Session", "ph": "M", "name": BASE, "args": {"value": self._opened_ns}})
        Path(path).write_text(json.dumps(kept), "utf-8")

    def _open(self) -> None:
        self._opened_ns = time.time_ns()
        self._runner.session = self._runner.open(profile=self._folder / "window")
        started = getattr(self._runner.session, "get_profiling_start_time_ns", None)
        if started is not None and abs(started() - self._opened_ns) < 60e9:
            # The profile's own clock, where it counts from the epoch.
            self._opened_ns = int(started())

    def _close(self) -> None:
        session, self._runner.session = self._runner.session, self._plain
        with contextlib.suppress(Exception):
            Path(session.end_profiling()).unlink(missing_ok=True)
        del session


def active_runs(events: list[dict[str, Any]], active: int) -> list[dict[str, Any]]:
    """The events of the last ``active`` runs of a profile."""
    runs = sorted(int(event["ts"]) for event in events if event.get("name") == "model_run")
    if not runs:
        return []
    begin = runs[-active:][0]
    return [event for event in events if int(event.get("ts", -1)) >= begin]
