"""The workloads that a name can mean, read from ``suites/*.toml``; loads neither torch nor a model library.

One file a suite::

    [suite]
    title = "..."            # one line
    order = 2                # place in listings
    include = ["gpt2"]       # workloads of other files that are part of this suite too, listed first

    [workload.NAME]          # NAME is unique over all files: lower case, digits, '-' and '.'
    title = "GPT-2"          # as people write it
    doc = "..."              # one line: what it is, which study or paper its shape is from
    task = "language model"
    builder = "apps.hf.causal:build"      # module:function, called with a workload.Request
    aliases = []             # other names; 'suite/alias' works too
    modes = ["infer", "train"]            # the first one is the default
    dtypes = ["fp32", "fp16", "bf16"]     # what may be asked for; the default depends on the device
    dtype = { cuda = "fp16" }             # only where the usual default (cuda bf16, cpu fp32) is wrong
    data_dependent = []      # modes whose sizes depend on the data: these cannot run on the meta device
    extra = "vision"         # optional dependencies needed, a key of EXTRAS
    items = "sequences"      # what the batch counts
    config = { ... }         # handed to the builder; every size starts from it

    [workload.NAME.sizes.full]            # 'full' and 'tiny' are required; others may follow
    batch = 1                # default; or { cpu = 1, cuda = 8 }
    max_batch = 1024         # limit (default 65536)
    seq = 256                # default, leave out where there is no sequence
    max_seq = 1024
    parameters = 124_439_808 # published count
    memory_gb = { infer = 0.5, train = 1.9 }  # estimated for the defaults on a GPU, decimal GB
    config = { ... }         # laid over the workload's own config, key by key
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from apps.workload import Built, Request

SUITES = Path(__file__).parent / "suites"
MODES = ("infer", "train", "prefill", "decode")
DTYPES = ("fp32", "fp16", "bf16")
ATTENTION = ("sdpa", "eager")

#: Optional dependencies: extra -> the modules it brings.
EXTRAS: dict[str, tuple[str, ...]] = {
    "vision": ("torchvision",),
    "diffusion": ("diffusers",),
    "segmentation": ("scipy",),
}


class UnknownWorkload(LookupError):
    """No workload or suite has this name; the message holds the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0])


class BadRequest(ValueError):
    """A wish that the workload cannot grant; one line that names what is allowed."""


class CatalogueError(ValueError):
    """A suite file does not follow the format; names the file and the workload."""


@dataclass(frozen=True)
class Size:
    """One size of a workload. ``batch`` is the default per kind of device; ``seq`` is None where there is no sequence;
    ``memory_gb`` maps a mode to decimal GB at the defaults on a GPU (an estimate)."""

    batch: Mapping[str, int]
    max_batch: int = 65536
    seq: int | None = None
    max_seq: int | None = None
    parameters: int = 0
    memory_gb: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One workload of the catalogue. ``suites`` are all suites that list it, its own first."""

    name: str
    title: str
    doc: str
    task: str
    builder: str
    suites: tuple[str, ...]
    modes: tuple[str, ...]
    dtypes: tuple[str, ...]
    sizes: Mapping[str, Size]
    aliases: tuple[str, ...] = ()
    default_dtype: Mapping[str, str] = field(default_factory=dict)
    data_dependent: tuple[str, ...] = ()
    extra: str = ""
    items: str = "samples"

    @property
    def suite(self) -> str:
        return self.suites[0]

    @property
    def parameters(self) -> int:
        """Published parameter count of the full size."""
        return self.sizes["full"].parameters

    @property
    def memory_gb(self) -> Mapping[str, float]:
        """Estimated device memory of the full size per mode, decimal GB, at the defaults on a GPU."""
        return self.sizes["full"].memory_gb

    def missing(self) -> str:
        """What to install before this workload can be built, or '' when nothing is missing."""
        absent = [m for m in EXTRAS.get(self.extra, ()) if importlib.util.find_spec(m) is None]
        if not absent:
            return ""
        return f"{self.name} needs {', '.join(absent)}: pip install 'kernelscope[{self.extra}]'"

    def request(
        self,
        size: str | None = None,
        mode: str | None = None,
        dtype: str | None = None,
        batch: int | None = None,
        seq: int | None = None,
        device: str = "cpu",
        attention: str = "sdpa",
        seed: int = 0,
    ) -> Request:
        """The request with every default filled in for this kind of device. Raises :class:`BadRequest`."""
        size = size or "full"
        self._one_of("size", size, tuple(self.sizes))
        chosen = self.sizes[size]
        mode = mode or self.modes[0]
        self._one_of("mode", mode, self.modes)
        kind = device.split(":", 1)[0]
        if kind == "meta" and mode in self.data_dependent:
            raise BadRequest(
                f"{self.name}: in mode {mode} sizes depend on the data, so it cannot run on the meta device"
            )
        dtype = dtype or self._dtype_for(kind)
        self._one_of("dtype", dtype, self.dtypes)
        self._one_of("attention", attention, ATTENTION)
        if batch is None:
            batch = chosen.batch.get(kind, chosen.batch["cpu"])
        self._in_range("batch", batch, chosen.max_batch)
        if seq is None:
            seq = chosen.seq
        elif chosen.seq is None:
            raise BadRequest(f"{self.name}: has no sequence, so seq cannot be set")
        if seq is not None:
            self._in_range("seq", seq, chosen.max_seq or seq)
        return Request(self.name, size, mode, dtype, batch, seq, device, attention, seed, chosen.config)

    def load(self) -> Callable[[Request], Built]:
        """Import the builder (this loads torch). Raises :class:`BadRequest` when an extra is missing."""
        if missing := self.missing():
            raise BadRequest(missing)
        module, _, function = self.builder.partition(":")
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]

    def _dtype_for(self, kind: str) -> str:
        if kind in self.default_dtype:
            return self.default_dtype[kind]
        # The meta device answers for a GPU, so it takes a GPU's precision.
        wanted = ("fp32",) if kind == "cpu" else ("bf16", "fp16", "fp32")
        return next((d for d in wanted if d in self.dtypes), self.dtypes[0])

    def _one_of(self, what: str, value: str, allowed: tuple[str, ...]) -> None:
        if value not in allowed:
            raise BadRequest(f"{self.name}: {what} {value!r} is not offered; choose {_either(allowed)}")

    def _in_range(self, what: str, value: int, limit: int) -> None:
        if not 1 <= value <= limit:
            raise BadRequest(f"{self.name}: {what} {value} is out of range; choose 1 to {limit}")


def entries() -> list[Entry]:
    """Every workload, suite by suite in listing order."""
    return list(_catalogue()[0].values())


def suites() -> dict[str, list[str]]:
    """Suite name -> names of its workloads, in listing order."""
    return {name: list(members) for name, members in _catalogue()[1].items()}


def suite_titles() -> dict[str, str]:
    """Suite name -> its one-line title."""
    return dict(_catalogue()[2])


def lookup(name: str) -> Entry:
    """The workload of this name, alias, or ``suite/name``. Raises :class:`UnknownWorkload` with the nearest names."""
    by_name, members, _ = _catalogue()
    wanted = name.strip().lower().replace("_", "-")
    # Only a suite's name before the first slash is one: 'vit-b/16' is an alias.
    suite, _, rest = wanted.partition("/")
    within, bare = (suite, rest) if rest and suite in members else ("", wanted)
    for entry in by_name.values():
        if bare in (entry.name, *entry.aliases) and (not within or within in entry.suites):
            return entry
    if wanted in members:
        raise UnknownWorkload(f"{name} is a suite of {len(members[wanted])} workloads, not one workload")
    known = [*by_name, *members, *(a for e in by_name.values() for a in e.aliases)]
    near = difflib.get_close_matches(bare, known, n=4, cutoff=0.5)
    near += [k for k in known if bare and bare in k and k not in near][: 4 - len(near)]
    hint = f"the nearest names are {', '.join(near)}" if near else "see: kernelscope ls models"
    raise UnknownWorkload(f"no workload is called {name!r}; {hint}")


def expand(name: str) -> list[str]:
    """Names of the workloads of a suite, or the one workload of this name. Raises :class:`UnknownWorkload`."""
    members = _catalogue()[1].get(name.strip().lower())
    return list(members) if members is not None else [lookup(name).name]


def read(folder: Path) -> tuple[dict[str, Entry], dict[str, list[str]], dict[str, str]]:
    """Workloads by name, suites and suite titles from a folder of suite files. Raises :class:`CatalogueError`."""
    files = []
    for path in sorted(folder.glob("*.toml")):
        try:
            files.append((path.stem, tomllib.loads(path.read_text(encoding="utf-8"))))
        except tomllib.TOMLDecodeError as error:
            raise CatalogueError(f"{path.name}: {error}") from None
    files.sort(key=lambda f: (f[1].get("suite", {}).get("order", 99), f[0]))
    members = {stem: [*data["suite"].get("include", []), *data.get("workload", {})] for stem, data in files}
    listed_by: dict[str, list[str]] = {}
    for stem, names in members.items():
        for name in names:
            listed_by.setdefault(name, []).append(stem)
    by_name: dict[str, Entry] = {}
    for stem, data in files:
        for name, table in data.get("workload", {}).items():
            if name in by_name:
                raise CatalogueError(f"{stem}.toml: workload {name} is already in suite {by_name[name].suite}")
            others = tuple(s for s in listed_by[name] if s != stem)
            by_name[name] = _entry(name, (stem, *others), dict(table), f"{stem}.toml: {name}")
    for name, stems in listed_by.items():
        if name not in by_name:
            raise CatalogueError(f"{stems[0]}.toml: includes {name}, which no suite defines")
    return by_name, members, {stem: data["suite"].get("title", stem) for stem, data in files}


@cache
def _catalogue() -> tuple[dict[str, Entry], dict[str, list[str]], dict[str, str]]:
    return read(SUITES)


def _entry(name: str, suites: tuple[str, ...], table: dict[str, Any], where: str) -> Entry:
    try:
        shared, dtype = table.pop("config", {}), table.pop("dtype", {})
        sizes = {key: _size(dict(size), shared) for key, size in table.pop("sizes").items()}
        for key in ("modes", "dtypes", "aliases", "data_dependent"):
            if key in table:
                table[key] = tuple(table[key])
        entry = Entry(name=name, suites=suites, sizes=sizes, default_dtype=dtype, **table)
    except (KeyError, TypeError) as error:
        raise CatalogueError(f"{where}: {error}") from None
    unknown = (
        {*entry.modes, *entry.data_dependent} - {*MODES} | {*entry.dtypes} - {*DTYPES} | {entry.extra} - {*EXTRAS, ""}
    )
    if unknown or not {"full", "tiny"} <= {*sizes}:
        raise CatalogueError(f"{where}: " + (f"unknown {unknown}" if unknown else "sizes full and tiny are required"))
    return entry


def _size(table: dict[str, Any], shared: Mapping[str, Any]) -> Size:
    batch = table.pop("batch")
    config = {**shared, **table.pop("config", {})}
    return Size(batch={"cpu": batch} if isinstance(batch, int) else batch, config=config, **table)


def _either(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
