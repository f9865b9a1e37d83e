"""The process that runs a workload and measures it: ``python -P -m profilers.collectors.worker RUNFOLDER``.

Started by a supervisor, which binds it to a device (``CUDA_VISIBLE_DEVICES``), takes what it prints into a log, and
outlives it. It talks through files in the run folder (:mod:`profilers.collectors.protocol`). Exit code 0: measured what
was asked; 1: ``failure.json`` says why not. A script's exit code is its own.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path

import msgspec

from profilers.collectors import files, process, protocol
from profilers.collectors.failures import REFUSED, explain
from profilers.collectors.protocol import Failure, Progress
from profilers.collectors.spec import Spec, decode

_ENCODER = msgspec.json.Encoder()

ENVIRONMENT = {
    # Kineto prints two lines a window to stderr at any lower level, and only an early setting counts.
    "KINETO_LOG_LEVEL": "6",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one measurement. Returns the exit code; the reason of a failure is in the run folder."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) not in (1, 2):
        print("usage: python -m profilers.collectors.worker RUNFOLDER [SUPERVISOR-PID]", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    process.die_with_parent(int(arguments[1]) if len(arguments) == 2 else os.getppid())
    process.go_first_when_memory_runs_out()
    faulthandler.enable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Inherited from a supervisor that no Ctrl-C shall end; a script has the handler that Python gives it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    spec = decode((folder / protocol.SPEC).read_bytes())
    for name, value in ENVIRONMENT.items():
        if spec.target != "script" or name.startswith("KINETO"):
            os.environ.setdefault(name, value)
    try:
        code = _run(folder, spec)
    except BaseException as error:
        # Whatever it was, the reason is on disk before this process is gone.
        failure = explain(error, spec.device)
        if failure.kind in REFUSED:
            print(failure.cause, file=sys.stderr)
        else:
            traceback.print_exc()
        sys.stderr.flush()
        _give_up(folder, failure)
        return 1
    if spec.target == "script":
        # Its threads are waited for and its exit handlers run, as they would have been.
        sys.exit(code)
    return code


def _give_up(folder: Path, failure: Failure) -> None:
    files.write_atomic(folder / protocol.FAILURE, _ENCODER.encode(failure))


def _run(folder: Path, spec: Spec) -> int:
    progress = Progress(phase="importing torch", windows_total=spec.windows)

    def report(current: Progress) -> None:
        files.write_atomic(folder / protocol.PROGRESS, _ENCODER.encode(current))

    report(progress)

    # Heavy, and only here: everything above must be said before it is imported.
    from profilers.collectors import workloads

    device = workloads.open_device(spec, progress)
    if spec.target == "script":
        from profilers.collectors import script

        def reported(current: Progress) -> None:
            current.peak_memory_bytes = workloads.peak_memory(device)
            report(current)

        ended = script.run(spec, folder, device, progress, reported)
        if ended.failure is not None:
            _give_up(folder, ended.failure)
        else:
            progress.state, progress.phase = "done", "the script has ended"
            reported(progress)
        return ended.code
    progress.phase = "building the model"
    if spec.device == "meta":
        from profilers.collectors import computing

        report(progress)
        computing.run(spec, folder, progress, report)
        progress.state, progress.phase = "done", "computed"
        report(progress)
        return 0
    report(progress)
    workload = workloads.prepare(spec, folder, device, progress)
    report(progress)
    workloads.measure(workload, spec, folder, device, progress, report)
    progress.state, progress.phase = "done", "all windows recorded"
    report(progress)
    return 0


def _leave(code: int) -> None:
    """End without running destructors: a device context or a thread that hangs at exit must not hold the run."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main())
