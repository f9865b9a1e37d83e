"""From the words of ``kernelscope run`` to specs: one run of every combination that was asked for."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui.cli.errors import UsageError
from tui.cli.output import talk

if TYPE_CHECKING:
    from apps.catalogue import Entry
    from profilers.runs.spec import Spec

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""What may be a model of the Hugging Face hub."""

SCRIPTS_OWN = ("size", "mode", "dtype", "batch", "seq", "attention", "backend", "quant", "weights", "counters")
"""Options that say nothing to a script: what it computes is its own affair."""


@dataclass(frozen=True)
class Wish:
    """One WORKLOAD, understood. ``entry`` is the catalogue's, where it is the target."""

    target: str
    workload: str
    name: str
    entry: Entry | None = field(default=None, compare=False)
    argv: tuple[str, ...] = ()
    of_suite: bool = field(default=False, compare=False)
    module: bool = False


def planned(args: argparse.Namespace) -> list[Spec]:
    """The runs that the arguments of ``kernelscope run`` ask for, or :class:`UsageError` in one line: the words, the
    devices, and what the devices lack are looked at before anything starts."""
    from apps.catalogue import BadRequest, UnknownWorkload
    from tui.cli.devices import chosen_devices, refuse_what_devices_lack

    if not args.workloads and args.module is None:
        raise UsageError("the following arguments are required: WORKLOAD (see kernelscope run --help)")
    for note in args.launcher_notes:
        talk(f"note: {note}")
    devices = chosen_devices(args.device, ranks=args.nproc or 1)
    try:
        understood = wishes(args.workloads, args.script_args, args.module)
        made = specs(args, understood, devices)
    except (UnknownWorkload, BadRequest) as error:
        raise UsageError(str(error)) from None
    refuse_what_devices_lack(made, devices)
    return made


def wishes(words: Sequence[str], script_args: Sequence[str] | None, module: str | None = None) -> list[Wish]:
    """What the WORKLOAD words mean: a file is meant where a file is named, else the catalogue, else a model id.

    Raises :class:`UsageError`, or the catalogue's own error with the nearest names.
    """
    found: list[Wish] = []
    if module is not None:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"'{module}' is no module's name: write it as an import does (package.train)")
        name = module.rpartition(".")[2]
        found.append(Wish("script", module, name, argv=tuple(script_args or ()), module=True))
    for word in words:
        found += _understand(word, tuple(script_args or ()))
    if script_args is not None and not any(wish.target in ("script", "callable") for wish in found):
        raise UsageError("'--' is for the arguments of a script: kernelscope run train.py -- --its args")
    return list(dict.fromkeys(found))


def _understand(word: str, argv: tuple[str, ...]) -> list[Wish]:
    from apps import catalogue

    file, colon, function = word.rpartition(":")
    if colon and file.endswith(".py"):
        if not function:
            raise UsageError(f"'{word}' names no function: write {file}:NAME")
        return [Wish("callable", f"{_python_file(file)}:{function}", f"{Path(file).stem}:{function}", argv=argv)]
    if word.endswith(".py"):
        return [Wish("script", _python_file(word), Path(word).stem, argv=argv)]
    if "/" in word and Path(word).expanduser().is_file():
        if _runs_python(Path(word).expanduser()):
            return [Wish("script", _python_file(word), Path(word).name, argv=argv)]
        raise UsageError(
            f"{word} is no Python script: name the one that it starts (kernelscope run torchrun --nproc-per-node 2 train.py); "
            f"a recording is opened by: kernelscope show {word} summary"
        )
    if word.startswith((".", "/", "~")) or Path(word, "config.json").is_file():
        folder = Path(word).expanduser()
        if not (folder / "config.json").is_file():
            raise UsageError(f"{word} is no model folder: it has no config.json")
        return [Wish("hub", str(folder.resolve()), folder.resolve().name)]
    try:
        names = catalogue.expand(word)
    except catalogue.UnknownWorkload:
        suite = word.partition("/")[0].lower()
        if HUB_ID.fullmatch(word) and suite not in catalogue.suites():
            return [Wish("hub", word, word.rpartition("/")[2])]
        raise
    found = [Wish("catalogue", name, name, catalogue.lookup(name), of_suite=len(names) > 1) for name in names]
    lacking = {wish.name: wish.entry.missing() for wish in found if wish.entry is not None and wish.entry.missing()}
    if len(lacking) == len(found):
        return found
    # Of a suite the rest can run all the same.
    for missing in lacking.values():
        talk(f"note: left out: {missing}")
    return [wish for wish in found if wish.name not in lacking]


def _runs_python(path: Path) -> bool:
    """Whether a file without ``.py`` begins with ``#!`` and Python, as commands do that pip installs."""
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def _python_file(text: str) -> str:
    path = Path(text).expanduser()
    if not path.is_file():
        raise UsageError(f"there is no file {text}")
    return str(path.resolve())


def specs(args: argparse.Namespace, found: Sequence[Wish], devices: Sequence[Any]) -> list[Spec]:
    """A spec for every wish on every device in every precision and batch asked for, in that order.

    ``devices`` have ``device`` and ``uuid``. Raises the catalogue's :class:`BadRequest` for what a workload does not offer;
    one of a suite is left out instead, with a word about it, unless none is left.
    """
    from apps.catalogue import BadRequest

    made = []
    refused: dict[str, BadRequest] = {}
    for wish in found:
        _refuse_what_says_nothing(args, wish)
        if wish.target == "script":
            made += [_script(args, wish, *group) for group in _for_ranks(args.nproc or 1, devices)]
            continue
        for device in devices:
            for dtype in args.dtype or [None]:
                for batch in args.batch or [None]:
                    try:
                        made.append(_spec(args, wish, device, dtype, batch))
                    except BadRequest as error:
                        if not wish.of_suite:
                            raise
                        refused[str(error)] = error
    if refused and not made:
        raise next(iter(refused.values()))
    for text in refused:
        talk(f"note: left out: {text}")
    return made


def _refuse_what_says_nothing(args: argparse.Namespace, wish: Wish) -> None:
    """Raise :class:`UsageError` for an option that this kind of workload would silently ignore."""
    from tui.cli.launchers import refuse_outer

    refuse_outer(args.typed, wish.target == "script", os.environ)
    if wish.target == "script":
        given = [f"--{name}" for name in SCRIPTS_OWN if getattr(args, name) is not None]
        if given:
            raise UsageError(f"{given[0]} says nothing to a script: give it what it understands after '--'")
        if args.device == "meta":
            raise UsageError("a script computes, so it cannot run on the meta device")
    elif args.nproc is not None:
        raise UsageError(f"--nproc starts a script several times; {wish.workload} is none")
    if wish.target != "hub":
        if args.weights == "pretrained":
            raise UsageError(
                f"{wish.workload} is built with random weights; --weights pretrained is for a model's id or folder"
            )
        if args.download:
            raise UsageError(f"--download is for a model's id; {wish.workload} needs nothing from the network")


def _for_ranks(ranks: int, devices: Sequence[Any]) -> list[Sequence[Any]]:
    """The devices of each run of a script: one run a device, or with several ranks one run on a GPU a rank, or on the
    CPU. Raises :class:`UsageError` where there are not as many GPUs as ranks."""
    if ranks == 1:
        return [[device] for device in devices]
    if [device.device for device in devices] == ["cpu"]:
        return [devices]
    if len(devices) == ranks and all(device.device.startswith("cuda") for device in devices):
        return [devices]
    named = ", ".join(device.device for device in devices)
    raise UsageError(f"{ranks} ranks need {ranks} GPUs or the CPU: --device names {named}")


def _script(args: argparse.Namespace, wish: Wish, device: Any, *more: Any) -> Spec:
    """A script's spec: few steps before the first window, as it may take few altogether."""
    from profilers.runs.spec import Spec

    settings = {name: value for name in ("windows", "seconds", "steps") if (value := getattr(args, name)) is not None}
    return Spec(
        name=args.name or wish.name,
        workload=wish.workload,
        target="script",
        mode="script",
        dtype="",
        batch=0,
        device=device.device,
        device_uuid=device.uuid or "",
        warmup=2,
        timed_steps=3,
        argv=wish.argv,
        cwd=str(Path.cwd()),
        module=wish.module,
        keep_traces=args.keep_traces,
        ranks=args.nproc or 1,
        more_devices=tuple((other.device, other.uuid or "") for other in more),
        **settings,
    )


def _spec(args: argparse.Namespace, wish: Wish, device: Any, dtype: str | None, batch: int | None) -> Spec:
    from profilers.runs.spec import Spec

    settings: dict[str, Any] = {}
    if wish.entry is not None:
        request = wish.entry.request(
            size=args.size,
            mode=args.mode,
            dtype=dtype,
            batch=batch,
            seq=args.seq,
            device=device.device,
            attention=args.attention or "sdpa",
        )
        if missing := wish.entry.missing():
            raise UsageError(missing)
        for name in ("size", "mode", "dtype", "batch", "seq", "attention"):
            settings[name] = getattr(request, name)
    else:
        asked = {"size": args.size, "mode": args.mode, "dtype": dtype, "batch": batch, "seq": args.seq}
        settings = {name: value for name, value in {**asked, "attention": args.attention}.items() if value is not None}
        if wish.target == "hub":
            settings["download"] = args.download
            settings.setdefault("dtype", "fp32" if device.device == "cpu" else "bf16")
    for name in ("windows", "seconds", "steps", "backend", "quant", "weights", "counters", "counters_every"):
        if getattr(args, name) is not None:
            settings[name] = getattr(args, name)
    if device.device == "meta":
        # One step says all: nothing varies where nothing is measured.
        settings |= {"windows": 1, "steps": 1, "warmup": 0, "timed_steps": 0}
    refuse_backend(settings, device.device)
    refuse_counters(settings, device.device)
    return Spec(
        name=args.name or wish.name,
        workload=wish.workload,
        target=wish.target,
        device=device.device,
        device_uuid=device.uuid or "",
        argv=wish.argv,
        cwd=str(Path.cwd()),
        keep_traces=args.keep_traces,
        **settings,
    )


def refuse_backend(settings: Mapping[str, Any], device: str) -> None:
    """Raise :class:`UsageError` where a backend or quantization is not installed here or does not go with the rest."""
    from profilers.collectors.backends import names

    backend, quant = names.parse(settings.get("backend", "eager")), settings.get("quant", "")
    problem = names.unfit(backend, quant, settings.get("mode", "infer"), device) or names.missing(backend, quant)
    if problem:
        raise UsageError(problem)


def refuse_counters(settings: Mapping[str, Any], device: str) -> None:
    """Raise :class:`UsageError` where counters were asked for and cannot be had. Permission is the driver's to refuse."""
    from profilers.collectors import counters

    if not settings.get("counters"):
        if settings.get("counters_every"):
            raise UsageError("--counters-every says which kernels --counters measures: add --counters")
        return
    if not device.startswith("cuda"):
        raise UsageError("--counters are a GPU's: use --device cuda:0 (elsewhere utilization is estimated)")
    if settings["counters"] in (counters.CUPTI, counters.PM):
        if settings.get("counters_every", 1) != 1:
            raise UsageError("CUPTI measures every kernel: leave --counters-every out")
        if settings["counters"] == counters.PM and not counters.find_sampling():
            raise UsageError(counters.PM_MISSING)
    elif counters.find_ncu() is None:
        raise UsageError(counters.NOT_HERE)
