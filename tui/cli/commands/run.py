"""Profile workloads in the background; watch on the screen, or with --no-tui as lines of progress and final tables.

WORKLOAD is a name of the catalogue (gpt2), a suite (nongemm), a function of a file (model.py:build), a script as it is
(train.py -- --its args), or a Hugging Face id or a local model folder (random weights unless --weights pretrained).
Lists (--device cuda:0,cuda:1 --batch 1,8) make one run of each combination; runs on different devices go on at once,
runs on one device one after the other. Closing the screen or the terminal stops none of them: 'kernelscope attach'
comes back, 'kernelscope stop' ends them.

What starts a script otherwise is understood as it is typed: 'run python train.py', 'run torchrun --nproc-per-node 2
train.py --its args'. Options before it are kernelscope's, all behind it is the script's.

A script runs to its own end, also when all windows have been recorded. What it prints goes into the run's log, and with
--no-tui to stderr too; the exit code is then the script's own (128 + N where signal N ended it).
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from apps.catalogue import ATTENTION, DTYPES, MODES
from profilers.collectors.backends.names import QUANTS, UnknownName, parse, parse_quant
from profilers.collectors.counters import CHOICES, EVERY
from tui.cli.errors import FINE
from tui.cli.output import talk
from tui.cli.screen import has_terminal, require_screen
from tui.cli.targets import add_analysis_arguments, root_of, rules_of

if TYPE_CHECKING:
    from profilers.runs.spec import Spec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workloads", metavar="WORKLOAD", nargs="*", help="what to run: see above")
    parser.add_argument(
        "-m",
        "--module",
        metavar="NAME",
        help="run a module of this folder, or an installed one, as a script (python -m)",
    )
    parser.add_argument(
        "--device",
        metavar="LIST",
        default="auto",
        help="cuda:0,cuda:1 | cpu | auto (default: the best free one) | meta (shapes alone: computed, not measured)",
    )
    parser.add_argument(
        "--dtype", metavar="LIST", type=_dtypes, help=f"of {', '.join(DTYPES)}; default: what suits the device"
    )
    parser.add_argument("--batch", metavar="LIST", type=_counts, help="samples in a step; default: the catalogue's")
    parser.add_argument("--seq", metavar="N", type=_count, help="tokens in a sequence; default: the catalogue's")
    parser.add_argument("--mode", choices=MODES, help="default: the workload's first")
    parser.add_argument(
        "--backend",
        metavar="NAME[:MODE]",
        type=_backend,
        help="eager (default) | inductor[:reduce-overhead|:max-autotune] | onnxruntime[:cpu|:cuda] | tensorrt[:layers]",
    )
    parser.add_argument("--quant", metavar="NAME", type=_quant, help=f"smaller numbers: {', '.join(QUANTS)}")
    parser.add_argument("--size", metavar="full|tiny", help="default: full; 'ls models' shows each workload's sizes")
    parser.add_argument("--attention", choices=ATTENTION, help="fused attention (sdpa, default) or its parts (eager)")
    parser.add_argument("--weights", choices=("random", "pretrained"), help="default: random, nothing is downloaded")
    parser.add_argument(
        "--download", action="store_true", help="a model by id may be fetched from the Hugging Face hub"
    )
    parser.add_argument("--nproc", metavar="N", type=_count, help="start a script N times, as torchrun does: one run")
    parser.add_argument("--windows", metavar="N", type=_count, help="profiler windows to record (default: 20)")
    parser.add_argument(
        "--seconds", metavar="S", type=_seconds, help="stop recording after so long, however many windows"
    )
    parser.add_argument("--steps", metavar="N", type=_count, help="steps in a window (default: 1)")
    parser.add_argument(
        "--counters",
        nargs="?",
        const="six",
        choices=CHOICES,
        metavar="six|full|cupti|pm",
        help="a second pass: six hardware counters of each kernel (default) or seventeen by Nsight Compute, by CUPTI, or "
        "sampled while one step runs (pm)",
    )
    parser.add_argument(
        "--counters-every",
        metavar="N",
        type=_every,
        help=f"only every N-th invocation of each kernel ({', '.join(map(str, EVERY))}): quicker",
    )
    parser.add_argument("--keep-traces", action="store_true", help="keep the raw trace of every window")
    parser.add_argument("--name", help="call the runs so (default: the workload's name)")
    parser.add_argument("--no-tui", action="store_true", help="no screen: progress on stderr, final tables on stdout")
    parser.add_argument("--detach", action="store_true", help="start, print the runs' ids, and come back at once")
    add_analysis_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from tui.cli.plan import planned

    screen = has_terminal() and not args.no_tui and not args.detach
    if screen:
        require_screen()
    specs = planned(args)
    if args.rules:
        rules_of(args)  # a mistake in them is told before anything starts
    return start(specs, args, screen=screen)


def start(specs: list[Spec], args: argparse.Namespace, *, screen: bool) -> int:
    """Launch the specs; then the screen, or waiting with progress and tables, or (``--detach``) their ids on stdout."""
    from profilers.runs.launch import launch
    from tui.cli.waiting import holding_ctrl_c, wait

    with holding_ctrl_c() as pressed:
        runs = launch(specs, root_of(args))
    if args.detach:
        for folder in runs:
            print(folder.id)
        return FINE
    if screen:
        from tui.cli.screen import open_screen

        return open_screen(args, runs[0].id)
    from tui.cli.results import print_results

    for folder in runs:
        talk(f"started {folder.id}")
    output = len(specs) == 1 and specs[0].target == "script"
    ended = wait(runs, output=output, interrupted=bool(pressed))
    return print_results(ended, args)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number, 1 or more")
    return int(text)


def _counts(text: str) -> list[int]:
    return list(dict.fromkeys(_count(part.strip()) for part in text.split(",")))


def _dtypes(text: str) -> list[str]:
    from tui.cli.near import hint

    names = list(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    for name in names:
        if name not in DTYPES:
            raise argparse.ArgumentTypeError(
                f"no precision is called '{name}'{hint(name, DTYPES)}; there are {', '.join(DTYPES)}"
            )
    return names


def _backend(text: str) -> str:
    try:
        return str(parse(text))
    except UnknownName as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _every(text: str) -> int:
    if not text.isdecimal() or int(text) not in EVERY:
        raise argparse.ArgumentTypeError(f"'{text}' is not one of {', '.join(map(str, EVERY))}")
    return int(text)


def _quant(text: str) -> str:
    try:
        return parse_quant(text)
    except UnknownName as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time in seconds")
    return value
