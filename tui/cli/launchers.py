"""How people start a script otherwise: ``torchrun ...``, ``python train.py``; understood as one run of ours.

``kernelscope run [ours] torchrun [its own] train.py args`` becomes ``kernelscope run [ours] train.py --nproc N -- args``.
What torchrun was asked for and cannot be had here is refused in one line that says what to type instead; what only says
how torchrun itself goes about it is left out, with a word where somebody might miss it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tui.cli.errors import UsageError

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_OTHERS = {
    "accelerate": "scripts that use Accelerate run under torchrun as well, with its settings in the script",
    "deepspeed": "scripts that use DeepSpeed run under torchrun as well",
    "horovodrun": "it does not start ranks as torchrun does",
    "mpirun": "it does not start ranks as torchrun does",
    "mpiexec": "it does not start ranks as torchrun does",
    "srun": "it does not start ranks as torchrun does",
}
_COUNTS = ("--num_processes", "--num-processes", "--num_gpus", "--nproc_per_node", "--ntasks", "-np", "-n")

_FREE_TEXT = frozenset({"--name", "--runs", "--rules", "--theme", "-m", "--module"})
"""Our options whose value may be any word, also a launcher's name."""

_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")

_LEFT_OUT = {
    "max_restarts": "ranks that fail are not started again",
    "redirects": "what ranks print is in the run's log",
    "tee": "what ranks print is in the run's log",
    "log_dir": "what ranks print is in the run's log",
    "local_ranks_filter": "what all ranks print is in the run's log",
    "numa_binding": "ranks are bound to no NUMA node",
    "master_port": "a free port is chosen",
}
"""Options of torchrun that somebody might miss, and what happens instead."""

_ITS_OWN_AFFAIR = (
    "rdzv_id", "rdzv_conf", "monitor_interval", "start_method", "event_log_handler", "role", "local_addr", "logs_specs",
    "duplicate_stdout_filters", "duplicate_stderr_filters", "signals_to_handle", "shutdown_timeout",
)  # fmt: skip
"""Options that say how torchrun goes about it, and nothing to the ranks."""


@dataclass(frozen=True)
class Launched:
    """The words of ``kernelscope run`` that mean the same, what the script gets, and what was left out (one line each)."""

    words: list[str]
    script_args: list[str]
    notes: tuple[str, ...] = ()


def launched(argv: Sequence[str], first: int) -> Launched | None:
    """What a launcher among the words after ``run`` (``argv[first:]``) means; None where there is none.

    The launcher must be the first workload: options before it are ours, everything behind it is its own and the script's.
    Raises :class:`UsageError` for what cannot be had, with the command that can.
    """
    for place in range(first, len(argv)):
        word, before = argv[place], argv[place - 1]
        if word == "--":
            return None
        if before not in _FREE_TEXT and (name := _launcher(word)):
            return _understood(name, list(argv[:place]), list(argv[place:]))
        if not word.startswith("-") and not before.startswith("-"):
            return None
    return None


def is_launcher(word: str) -> bool:
    """Whether this word starts a script, or several ranks of it."""
    return bool(_launcher(word))


def _launcher(word: str) -> str:
    name = Path(word).name
    if Path(word).is_dir():
        return ""
    if name == "torchrun" or (name == word and name in _OTHERS):
        return name
    return "python" if _PYTHON.fullmatch(name) else ""


def _understood(name: str, ours: list[str], words: list[str]) -> Launched:
    if name in _OTHERS:
        _refuse_other(name, ours, words)
    notes, rest, module = _other_python(words[0]), words[1:], False
    if name == "python":
        rest, module = _without_python_options(rest)
        if module and rest[0] in _TORCHRUN_MODULES:
            if rest[0].endswith("launch") and not {"--use_env", "--use-env"} & set(rest):
                raise UsageError(
                    "torch.distributed.launch is deprecated, and gives ranks --local-rank: "
                    f"type: {command(ours, ['torchrun', *rest[1:]])}"
                )
            name, rest = "torchrun", [word for word in rest[1:] if word not in ("--use_env", "--use-env")]
        elif module and (other := rest[0].partition(".")[0]) in _OTHERS:
            _refuse_other(other, ours, rest)
    if name == "torchrun":
        return _torchrun(ours, rest, notes)
    target = ["-m", rest[0]] if module else [rest[0]]
    return Launched([*ours, *target], _arguments(rest[1:]), notes)


def _arguments(words: list[str]) -> list[str]:
    """The script's own, also where somebody set them off with ``--`` as for us."""
    return words[1:] if words[:1] == ["--"] else words


def _other_python(word: str) -> tuple[str, ...]:
    """A word about the interpreter that was named, where it is not the one that will run the script."""
    found = shutil.which(word)
    if found is None or Path(found).parent.resolve() == Path(sys.executable).parent.resolve():
        return ()
    return (f"kernelscope's own Python runs the script ({sys.executable}), not {found}",)


def _without_python_options(words: list[str]) -> tuple[list[str], bool]:
    """What Python was to run and its arguments; whether that is a module's name."""
    for place, word in enumerate(words):
        if word in ("-u", "-B"):
            continue
        if word == "-m" and words[place + 1 :]:
            return words[place + 1 :], True
        if word.startswith("-"):
            what = "write the program into a file" if word == "-c" else "leave it out"
            raise UsageError(f"python's own {word} is not passed on: {what}")
        return words[place:], False
    raise UsageError("python was given no script: kernelscope run python train.py --its args")


# --- torchrun ---------------------------------------------------------------------------------------------------------


class _Torchrun(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"torchrun's own options: {message}")


def _option(parser: argparse.ArgumentParser, name: str, *short: str, flag: bool = False) -> None:
    names = [*short, f"--{name.replace('_', '-')}", *([f"--{name}"] if "_" in name else [])]
    if flag:
        parser.add_argument(*names, dest=name, action="store_true")
    else:
        parser.add_argument(*names, dest=name)


def _grammar() -> argparse.ArgumentParser:
    parser = _Torchrun(prog="torchrun", add_help=False, allow_abbrev=False)
    for name in ("nnodes", "nproc_per_node", "node_rank", "rdzv_backend", "rdzv_endpoint", "master_addr"):
        _option(parser, name)
    for name in _LEFT_OUT:
        _option(parser, name, *{"redirects": ("-r",), "tee": ("-t",)}.get(name, ()))
    for name in _ITS_OWN_AFFAIR:
        _option(parser, name)
    for name in ("standalone", "no_python", "run_path", "virtual_local_rank"):
        _option(parser, name, flag=True)
    _option(parser, "module", "-m", flag=True)
    parser.add_argument("script", nargs="?")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    return parser


def _torchrun(ours: list[str], words: list[str], notes: tuple[str, ...]) -> Launched:
    given = _grammar().parse_args(words)
    if not given.script:
        raise UsageError(
            "torchrun was given no script: kernelscope run torchrun --nproc-per-node 2 train.py --its args"
        )
    arguments = _arguments(given.args)
    if any(word == "--nproc" or word.startswith("--nproc=") for word in ours):
        raise UsageError("--nproc and torchrun's --nproc-per-node say the same: leave one of them out")
    ranks = _ranks(given.nproc_per_node or "1")
    target = ["-m", given.script] if given.module else [given.script]
    one_machine = command([*ours, "--nproc", str(ranks)], [*target, *(["--", *arguments] if arguments else [])])
    if why := _elsewhere(given):
        raise UsageError(f"{why}: kernelscope starts the ranks of one machine; for those alone type: {one_machine}")
    if given.no_python and _launcher(given.script) == "python":
        rest, given.module = _without_python_options(arguments)
        target, arguments = (["-m", rest[0]] if given.module else [rest[0]]), rest[1:]
    elif given.no_python:
        raise UsageError(f"--no-python: kernelscope records Python scripts alone; type: {one_machine}")
    if given.virtual_local_rank:
        raise UsageError(f"--virtual-local-rank is not to be had: ranks see the GPUs of all; type: {one_machine}")
    missed = {name: why for name, why in _LEFT_OUT.items() if getattr(given, name) not in (None, "0")}
    if missed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in missed)
        notes = (*notes, f"torchrun's {names} left out: {', '.join(dict.fromkeys(missed.values()))}")
    return Launched([*ours, "--nproc", str(ranks), *target], arguments, notes)


def _elsewhere(given: argparse.Namespace) -> str:
    """Which option asks for more than this machine; '' where none does."""
    if given.nnodes is not None and given.nnodes.rpartition(":")[2] != "1":
        return f"--nnodes {given.nnodes}"
    if given.node_rank not in (None, "0"):
        return f"--node-rank {given.node_rank}"
    if given.rdzv_backend not in (None, "static", "c10d"):
        return f"--rdzv-backend {given.rdzv_backend}"
    for name in ("rdzv_endpoint", "master_addr"):
        value = getattr(given, name)
        if value is not None and not _is_here(value):
            return f"--{name.replace('_', '-')} {value}"
    return ""


def _is_here(address: str) -> bool:
    """Whether ``host`` or ``host:port`` is this machine by name or loopback address."""
    host = address if address.count(":") > 1 and not address.startswith("[") else re.sub(r":\d*$", "", address)
    host = host.strip("[]")
    return host in ("", "localhost", "::1", socket.gethostname()) or host.startswith("127.")


def _ranks(text: str) -> int:
    """``--nproc-per-node``: a number, or what torchrun calls one rank a processor or a GPU."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text not in ("cpu", "gpu", "auto"):
        raise UsageError(f"torchrun's --nproc-per-node {text} is no number, and not one of cpu, gpu, auto")
    gpus = 0
    if text != "cpu":
        from profilers.collectors.telemetry.devices import list_devices

        gpus = sum(row.kind in ("cuda", "mig") for row in list_devices(processes=False))
    if text == "gpu" and not gpus:
        raise UsageError("torchrun's --nproc-per-node gpu: there is no GPU here; name a number, with --device cpu")
    return gpus or os.cpu_count() or 1


# --- what is refused by name ------------------------------------------------------------------------------------------


def _refuse_other(name: str, ours: list[str], words: list[str]) -> NoReturn:
    """Another launcher: the command that does the same with torchrun, as far as its words tell."""
    ranks, script = "N", len(words)
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _COUNTS and (equals or words[place + 1 :]):
            ranks = value if equals else words[place + 1]
        if word.endswith(".py"):
            script = place
            break
    rest = words[script:] or ["train.py"]
    like = command(ours, ["torchrun", "--nproc-per-node", ranks, *rest])
    raise UsageError(f"{name} is not understood here: {_OTHERS[name]}; type: {like}")


def refuse_outer(typed: Sequence[str], is_script: bool, environment: Mapping[str, str]) -> None:
    """Raise :class:`UsageError` where torchrun started this very process: every one of its ranks would start all runs.

    ``typed``: our own words, of which the right command is made.
    """
    if "TORCHELASTIC_RUN_ID" not in environment:
        return
    ranks = environment.get("LOCAL_WORLD_SIZE") or environment.get("WORLD_SIZE") or "1"
    words = list(typed)
    has = any(word == "--nproc" or word.startswith("--nproc=") for word in words)
    if is_script and not has and "run" in words:
        place = words.index("run") + 1
        words[place:place] = ["--nproc", ranks]
    nodes = environment.get("GROUP_WORLD_SIZE", "1")
    apart = f" (the ranks of one machine alone: torchrun has {nodes})" if nodes.isdecimal() and int(nodes) > 1 else ""
    starts = ", and it starts the ranks" if is_script else ""
    raise UsageError(
        f"torchrun started this {ranks} times: start kernelscope once{starts}{apart}; type: {command(words, [])}"
    )


def command(ours: Sequence[str], rest: Sequence[str]) -> str:
    """A command of ours as it is typed."""
    return shlex.join(["kernelscope", *ours, *rest])
