"""The workload's second pass: ``python -P -m profilers.collectors.counted RUNFOLDER SUPERVISOR-PID [TRACE [SAMPLES]]``.

Built as the run's own worker builds it, warmed up, and then one step between ``cudaProfilerStart`` and
``cudaProfilerStop``: the part that ncu measures. With TRACE it is torch.profiler that collects the counters, through
CUPTI, and writes them there; with SAMPLES as well the GPU is sampled while torch.profiler records the step. It ends when
its supervisor is gone (its parent may be ncu).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from profilers.collectors import counters, process, protocol
from profilers.collectors.protocol import Progress
from profilers.collectors.spec import decode

_POLL_S = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Take the steps. Returns the exit code; why it failed is the last line that it prints."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) not in (2, 3, 4):
        usage = "python -m profilers.collectors.counted RUNFOLDER SUPERVISOR-PID [TRACE [SAMPLES]]"
        print(f"usage: {usage}", file=sys.stderr)
        return 2
    end_with(int(arguments[1]))
    process.go_first_when_memory_runs_out()
    folder = Path(arguments[0])
    spec = decode((folder / protocol.SPEC).read_bytes())
    try:
        import torch

        from profilers.collectors import pm_sampling, workloads

        cupti = pm_sampling.load() if len(arguments) == 4 else None
        progress = Progress()
        device = workloads.open_device(spec, progress)
        workload = workloads.prepare(spec, folder, device, progress)
        for _ in range(max(1, spec.warmup)):
            workload.step()
        if cupti is not None:
            pm_sampling.sample_step(cupti, torch, workload.step, Path(arguments[2]), Path(arguments[3]))
        elif len(arguments) == 3:
            step_with_cupti(torch, workload.step, Path(arguments[2]))
        else:
            one_step(torch, workload.step)
        workload.finish()
    except counters.CountersError as error:
        print(error.told(), file=sys.stderr, flush=True)
        return 1
    except BaseException as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", file=sys.stderr, flush=True)
        return 1
    return 0


def one_step(torch: Any, step: Any) -> None:
    """One step in the profiler's range, the device idle at both ends."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
    step()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


def step_with_cupti(torch: Any, step: Any, trace: Path) -> None:
    """One step with torch.profiler in its counter mode, which writes no kernel times."""
    from torch._C._profiler import _ExperimentalConfig

    config = _ExperimentalConfig(profiler_metrics=list(counters.CUPTI_METRICS), profiler_measure_per_kernel=True)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, experimental_config=config) as profiler:
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(trace))


def end_with(supervisor: int) -> None:
    """End this process once the supervisor is gone."""

    def watch() -> None:
        while True:
            try:
                os.kill(supervisor, 0)
            except ProcessLookupError:
                os._exit(1)
            except PermissionError:
                pass
            time.sleep(_POLL_S)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
