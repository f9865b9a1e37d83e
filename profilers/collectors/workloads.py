"""From a spec to steps that can be taken: the device, the model, precision checks, and the loop. Imports torch."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from apps import catalogue
from apps.workload import Request
from profilers.collectors import files, usercode
from profilers.collectors.backends import names
from profilers.collectors.backends.base import Job, Prepared
from profilers.collectors.failures import DeviceError, DtypeError, UsageError
from profilers.collectors.protocol import Progress
from profilers.collectors.room import refuse_what_does_not_fit
from profilers.collectors.session import Session
from profilers.collectors.spec import Spec
from profilers.collectors.telemetry.cpu import cpu_name


def open_device(spec: Spec, progress: Progress) -> torch.device:
    """The device that this process was bound to. Raises :class:`DeviceError` or :class:`DtypeError`."""
    threads = spec.extra.get("threads")
    if threads:
        torch.set_num_threads(int(threads))
    kind = spec.device.split(":", 1)[0]
    if kind in ("cpu", "meta"):
        progress.device_name = cpu_name() if kind == "cpu" else "computed, not measured"
        if kind == "cpu":
            progress.notes = (*progress.notes, f"{torch.get_num_threads()} CPU threads")
        return torch.device(kind)
    if kind != "cuda":
        raise DeviceError(f"device '{spec.device}' is not known: use cpu or cuda:N")
    if not torch.backends.cuda.is_built() and torch.version.hip is None:
        raise DeviceError(f"this torch ({torch.__version__}) was built without CUDA, so {spec.device} cannot be used")
    if spec.target == "script":
        # A script may fork before it uses the device, which must then not have been touched.
        # A rank sees the devices of all, and takes its own.
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) if spec.more_devices else 0)
    try:
        torch.cuda.init()
        name = torch.cuda.get_device_name(0)
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"{spec.device} does not answer: {' '.join(str(error).split())[:200]}") from None
    progress.device_name = name
    if spec.dtype == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        major, minor = torch.cuda.get_device_capability(0)
        raise DtypeError(f"{name} (compute capability {major}.{minor}) has no bf16: use --dtype fp16 or fp32")
    # The supervisor shows this process one device, which is therefore number 0 here.
    return torch.device("cuda", 0)


def prepare(spec: Spec, folder: Path, device: torch.device, progress: Progress) -> Prepared:
    """Build what the spec names, in its numbers and on its backend.

    Raises :class:`UsageError`, the catalogue's own errors, or what a user's code does.
    """
    backend, quant = wanted(spec)
    # Before any user's code: after it, modules of ours that are not loaded yet may be shadowed by names of its own.
    prepared = _preparing(backend, quant)
    torch.manual_seed(spec.seed)
    if spec.target == "catalogue":
        entry = catalogue.lookup(spec.workload)
        request = entry.request(
            size=spec.size,
            mode=spec.mode,
            dtype=spec.dtype,
            batch=spec.batch,
            seq=spec.seq,
            device=str(device),
            attention=spec.attention,
            seed=spec.seed,
        )
        if unsure := refuse_what_does_not_fit(entry, request, device):
            progress.notes = (*progress.notes, unsure)
        built = entry.load()(request)
    elif spec.target == "callable":
        built = _users(spec, device, progress)
    elif spec.target == "hub":
        from apps.user import from_hub

        built = from_hub(_request(spec, device), spec.weights, spec.download)
    else:
        raise UsageError(f"a target '{spec.target}' cannot be run by this worker")
    step = _step_of(built, spec)
    _describe(built, progress)
    job = Job(built, step, spec, folder, device, progress)
    return prepared(job)


def wanted(spec: Spec) -> tuple[names.Backend, str]:
    """The backend and quantization of a spec. Raises :class:`UsageError` for what is unknown, not installed, or unfit."""
    try:
        backend, quant = names.parse(spec.backend), names.parse_quant(spec.quant)
    except names.UnknownName as error:
        raise UsageError(str(error)) from None
    problem = names.unfit(backend, quant, spec.mode, spec.device) or names.missing(backend, quant)
    if problem:
        raise UsageError(problem)
    return backend, quant


def _preparing(backend: names.Backend, quant: str) -> Callable[[Job], Prepared]:
    """What quantizes a built workload and puts it on its backend. Only the modules that are asked for are imported."""
    family, mode = backend.family, backend.mode
    if family == "onnxruntime":
        from profilers.collectors.backends import ort

        return lambda job: ort.prepare(job, mode, quant)
    if family == "tensorrt":
        from profilers.collectors.backends import tensorrt

        return lambda job: tensorrt.prepare(job, mode)
    from profilers.collectors.backends import inductor, quantize

    def prepared(job: Job) -> Prepared:
        if quant:
            quantize.apply(job, quant)
        return inductor.prepare(job, mode) if family == "inductor" else Prepared(job.step)

    return prepared


def _request(spec: Spec, device: torch.device) -> Request:
    """The request of a workload that is in no catalogue."""
    return Request(
        workload=spec.workload,
        size=spec.size,
        mode=spec.mode,
        dtype=spec.dtype,
        batch=spec.batch,
        seq=spec.seq,
        device=str(device),
        attention=spec.attention,
        seed=spec.seed,
    )


def _users(spec: Spec, device: torch.device, progress: Progress) -> Any:
    """What a user's ``file.py:name`` gives: a step, or the result of a builder.

    A callable with a parameter is a builder and gets the :class:`~apps.workload.Request`. One without is the step
    itself, unless its first call returns something that can be stepped, or a module and its inputs: then it was a
    builder too.
    """
    from apps.user import from_module

    file, _, name = spec.workload.rpartition(":")
    if not file:
        raise UsageError(f"'{spec.workload}' names no callable: write file.py:name")
    path = Path(spec.cwd or ".", file).resolve()
    request = _request(spec, device)
    usercode.step_aside(path.parent)
    sys.argv = [str(path), *spec.argv]
    function = usercode.load_callable(path, name)
    if isinstance(function, torch.nn.Module):
        return from_module(request, function)
    if usercode.wants_request(function):
        made = function(request)
        return from_module(request, made) or made
    inferring = spec.mode == "infer"
    with torch.set_grad_enabled(not inferring):
        first = function()
    if built := from_module(request, first):
        return built
    progress.notes = (*progress.notes, "torch.no_grad around every step" if inferring else "gradients are recorded")
    return first if callable(first) or hasattr(first, "step") else function


def _step_of(built: Any, spec: Spec) -> Callable[[], Any]:
    step = getattr(built, "step", built)
    if not callable(step):
        raise UsageError(
            f"{spec.workload} returned a {type(built).__name__}: a step to call, a module and its inputs, "
            "or an object with .step, is needed"
        )
    if spec.target == "callable" and spec.mode == "infer":
        return torch.no_grad()(step)  # type: ignore[no-any-return]
    return step  # type: ignore[no-any-return]


def _describe(built: Any, progress: Progress) -> None:
    module = getattr(built, "module", None)
    count = getattr(built, "parameters", None)
    if not isinstance(count, int) or count <= 0:
        count = sum(p.numel() for p in module.parameters()) if isinstance(module, torch.nn.Module) else None
    progress.parameters = count
    progress.items = int(getattr(built, "items", 1))
    progress.item_name = str(getattr(built, "item_name", "samples"))
    progress.notes = (*progress.notes, *(str(note) for note in getattr(built, "notes", ())))


def measure(
    workload: Prepared,
    spec: Spec,
    folder: Path,
    device: torch.device,
    progress: Progress,
    report: Callable[[Progress], None],
) -> None:
    """Take steps until the session has what it wants."""

    def reported(current: Progress) -> None:
        # A recorder of its own needs memory of its own (a second session), which is not the model's.
        if workload.recorder is None or current.state != "profiling":
            current.peak_memory_bytes = peak_memory(device)
        report(current)

    forget_peak(device)
    session = Session(spec, folder, device, reported, progress, recorder=workload.recorder)
    try:
        session.begin()
        more = not session.done
        while more:
            workload.step()
            more = session.boundary()
    finally:
        session.close()
    progress.notes = (*progress.notes, *workload.finish())


def peak_memory(device: torch.device) -> int | None:
    """Most bytes in use since :func:`forget_peak`: torch's allocator on a GPU, the process's resident set on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device)) if torch.cuda.is_initialized() else None
    if device.type == "meta":
        return None
    if found := re.search(rb"^VmHWM:\s*(\d+) kB", files.read_bytes(Path("/proc/self/status")) or b"", re.MULTILINE):
        return int(found.group(1)) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak(device: torch.device) -> None:
    """Begin to count peak memory anew, so that what building, exporting or quantizing took is not a step's. Where the
    system does not offer it, the peak stays that of the whole process."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        pass
