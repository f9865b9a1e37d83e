"""``torch.compile`` with Inductor: compiled once before anything is timed, with what it did told in notes.

Inductor's caches of whole graphs are off, so that the compile time is that of a first start (object files that the
system's compiler made for the same source are still reused) and every kernel's provenance is at hand: which operators
of the graph, with which shapes, it fuses. That goes to ``fusion.json`` in the run folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from profilers.collectors.backends import provenance
from profilers.collectors.backends.base import Job, Prepared
from profilers.collectors.failures import UsageError
from profilers.collectors.modules import compiled_frames

MOST_BREAKS = 3


def prepare(job: Job, mode: str) -> Prepared:
    """Compile the workload's module. Raises :class:`UsageError` where there is none; torch's own errors go through."""
    module = getattr(job.built, "module", None)
    if not isinstance(module, torch.nn.Module):
        raise UsageError("this workload has no module to compile: use --backend eager")
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    inductor.fx_graph_cache = False
    functorch.enable_autograd_cache = False
    if job.device.type == "cpu":
        # Without it the kernels that Inductor writes do not show in a profile at all.
        inductor.cpp.enable_kernel_profile = True
        if mode == "reduce-overhead":
            job.note("reduce-overhead is CUDA graphs: on a CPU it is the default mode")
    told = provenance.follow()
    job.progress.phase = "compiling (first step)"
    began = time.perf_counter()
    _compile(job, module, None if mode == "default" else mode)
    job.note(f"torch.compile ({mode}) took {time.perf_counter() - began:.1f} s with the first step in it")
    for text in graph_notes():
        job.note(text)
    if told is None:
        job.note("this torch keeps no provenance of compiled kernels: which operators they fuse is not known")
    written = _write(job, told)
    recompiled = _recompilations()

    def finish() -> tuple[str, ...]:
        _write(job, told, written)
        again = _recompilations() - recompiled
        return (f"{again} recompilations while it was measured: windows hold compile time",) if again > 0 else ()

    return Prepared(job.step, finish=finish)


def _compile(job: Job, module: torch.nn.Module, mode: str | None) -> None:
    """Compile and take the first step. Where nothing could be compiled the module is as it was, and a note says so."""
    module.compile(mode=mode)
    job.step()
    if compiled_frames():
        return
    # A module of torch's own (a bare Sequential) is passed over by Dynamo unless it is called from elsewhere.
    from torch._dynamo.external_utils import wrap_inline

    module._compiled_call_impl = torch.compile(wrap_inline(module._call_impl), mode=mode)
    job.step()
    if not compiled_frames():
        # Left in place, it would go on to compile what is called meanwhile, the marks of ours around modules first.
        module._compiled_call_impl = None
        job.note("torch.compile compiled nothing of this model: it runs as it is")


def graph_notes() -> tuple[str, ...]:
    """Graphs, breaks and recompilations so far, a line each."""
    from torch._dynamo.utils import counters

    graphs = int(counters["stats"]["unique_graphs"])
    breaks = counters["graph_break"]
    total = int(sum(breaks.values()))
    lines = [f"{graphs} compiled graphs, {total} graph breaks, {_recompilations()} recompilations"]
    for reason, count in breaks.most_common(MOST_BREAKS):
        lines.append(f"graph break ({count}x): {' '.join(str(reason).split())[:160]}")
    return tuple(lines)


def _recompilations() -> int:
    """Compilations of code that had been compiled before: those for which Dynamo gives a reason; 0 where it keeps none."""
    try:
        from torch._dynamo.utils import get_compilation_metrics

        metrics: Any = get_compilation_metrics()
    except ImportError:
        return 0
    return sum(1 for one in metrics if getattr(one, "recompile_reason", None))


def _write(job: Job, told: Callable[[], dict[str, Any]] | None, before: int = -1) -> int:
    """Keep what is known of fused kernels; returns how many there are."""
    if told is None:
        return 0
    kernels = told()
    if len(kernels) != before:
        provenance.write(job.folder, kernels)
    return len(kernels)
