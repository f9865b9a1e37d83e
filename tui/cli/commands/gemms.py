"""The GEMM study: time each distinct GEMM, convolution and attention of a run alone, beside its time inside the model.

Each is called as recorded with random inputs: warm, rotated through more than the cache, the median. What cannot be
timed alone is listed with its reason. --sweep adds plain matrix multiplies over powers of two as a background. Nothing
else should run on the device meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tui.cli.errors import FINE, CommandError, UsageError
from tui.cli.output import add_output_arguments, chosen_format, print_table, talk
from tui.cli.targets import add_analysis_arguments, open_target

if TYPE_CHECKING:
    from profilers.analysis.gemm_study import Case
    from profilers.tables import Recording
    from tui.cli.devices import DeviceRow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN|FILE", help="a run or a recording with shapes")
    parser.add_argument("--device", metavar="NAME", default="auto", help="cuda:0 | cpu | auto (default): where to time")
    parser.add_argument(
        "--top", metavar="N", type=int, default=100, help="only the N calls with most time (default: 100)"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="also matrix multiplies over powers of two, as a background"
    )
    add_output_arguments(parser)
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from profilers.analysis.gemm_study import STUDY, account, cases, study, sweep
    from tui.cli.commands.calibrate import peaks_of
    from tui.cli.devices import chosen_devices

    chosen_format(args)
    if args.top < 1:
        raise UsageError(f"--top {args.top}: at least 1")
    opened = open_target(args.target, args)
    found = cases(opened.recording)
    alone = [case for case in found if not case.reason]
    if not alone:
        raise UsageError(f"{args.target} holds no GEMM, convolution or attention with recorded shapes")
    devices = chosen_devices(args.device)
    if len(devices) != 1:
        raise UsageError(f"--device {args.device}: one device, not {len(devices)}")
    device = devices[0]
    asked = alone[: args.top]
    if len(alone) > len(asked):
        talk(f"timing the {len(asked):,} of {len(alone):,} distinct calls with most time; --top {len(alone)} times all")
    if args.sweep:
        asked = [*asked, *sweep("cpu" if device.kind == "cpu" else "cuda", alone[0].dtype)]
    _say_where(opened.recording, device)
    answers = dict(zip(asked, timed(device.device, asked), strict=True))
    peaks = peaks_of(device)
    listed = [*found, *(case for case in asked if not case.calls)]
    beyond = f"not timed: --top {args.top}"
    frame = study(listed, [answers.get(case, {"reason": case.reason or beyond}) for case in listed], peaks)
    print_table(frame, STUDY, args, {"title": f"{opened.title} on {device.device}"})
    for line in account(frame):
        talk(line)
    known = peaks.cite or peaks.source if peaks is not None else "none is known (kernelscope calibrate measures one)"
    talk(f"peak of {device.device} ({device.name}): {known}")
    return FINE


def _say_where(recording: Recording, device: DeviceRow) -> None:
    """Times side by side mean something only on the same kind of device."""
    names = sorted({d.name for d in recording.devices if d.name})
    if names and device.name not in names:
        talk(f"note: recorded on {', '.join(names)}, timed on {device.name}: model/alone compares two devices")


def timed(device: str, asked: Sequence[Case]) -> list[dict[str, Any]]:
    """The answers of the timing process. Raises :class:`CommandError` with its last line where it fails."""
    command = [sys.executable, "-P", "-m", "profilers.collectors.gemm_study", device]
    answers: list[dict[str, Any]] = []
    # What it says goes to a file: a pipe that nobody reads meanwhile could fill and stop it.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=said, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                json.dump([case.question() for case in asked], process.stdin)
                process.stdin.close()
                for line in process.stdout:
                    answers.append(json.loads(line))
                    _count(len(answers), len(asked))
            except BrokenPipeError:
                pass
            finally:
                if len(answers) < len(asked) and process.poll() is None:
                    process.terminate()
        said.seek(0)
        words = said.read().strip().splitlines()
    if len(answers) < len(asked):
        last = (words or [f"exit code {process.returncode}"])[-1]
        raise CommandError(f"{device}: timing ended after {len(answers)} of {len(asked)}: {last}")
    return answers


def _count(done: int, whole: int) -> None:
    """How far it is, rewritten on one line of a terminal, and gone at the end."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[Ktimed {done} of {whole}" if done < whole else "\r\x1b[K")
        sys.stderr.flush()
