"""The spec: everything that is asked of one run, written before anything starts. ``spec.json`` in the run folder."""

from __future__ import annotations

from typing import Any

import msgspec


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=False, kw_only=True):
    """One run. ``target`` says how ``workload`` is meant: a ``catalogue`` name, a ``callable`` (file.py:name), a
    ``script`` with ``argv`` (a file, or where ``module`` is set a module's dotted name, as ``python -m`` takes it), a
    ``hub`` id or local model folder, or a ``replay`` of a recording.

    ``windows`` or ``seconds`` bound the profiled part (whichever comes first); ``steps`` is the steps in one window.
    ``counters`` asks for a second pass: six | full under Nsight Compute, of every ``counters_every``-th invocation,
    cupti, or pm (sampled).
    ``launch`` groups the runs that were started together. ``ranks``: processes of a script, as torchrun starts
    them; ``more_devices``: name and UUID of the GPUs of ranks 1, 2 ... (``device`` is rank 0's).
    A script decides its own mode, precision and batch: there they are ``script``, '' and 0. ``download``: a model by id
    may be fetched from the network.
    """

    name: str
    workload: str
    target: str = "catalogue"
    size: str = "full"
    mode: str = "infer"
    dtype: str = "fp32"
    batch: int = 1
    seq: int | None = None
    device: str = "cpu"
    device_uuid: str = ""
    backend: str = "eager"
    quant: str = ""
    attention: str = "sdpa"
    warmup: int = 3
    timed_steps: int = 10
    windows: int = 20
    seconds: float | None = None
    steps: int = 1
    keep_traces: bool = False
    weights: str = "random"
    download: bool = False
    module: bool = False
    ranks: int = 1
    more_devices: tuple[tuple[str, str], ...] = ()
    argv: tuple[str, ...] = ()
    cwd: str = ""
    seed: int = 0
    launch: str = ""
    speed: float = 1.0
    counters: str = ""
    counters_every: int = 1
    extra: dict[str, Any] = {}

    @property
    def devices(self) -> tuple[tuple[str, str], ...]:
        """Name and UUID of every device of this run; of most runs it is one."""
        return ((self.device, self.device_uuid), *self.more_devices)

    def facts(self) -> tuple[str, ...]:
        """What was asked, in the words that lists and titles show."""
        words = [self.mode]
        if self.dtype:
            words.append(self.dtype)
        if self.batch:
            words.append(f"b{self.batch}")
        if self.ranks > 1:
            words.append(f"{self.ranks} ranks")
        if self.device == "meta":
            words.append("computed, not measured")
        return tuple(words)


def encode(spec: Spec) -> bytes:
    """The spec as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(spec), indent=2)


def decode(data: bytes) -> Spec:
    """A spec from ``spec.json``. Raises :class:`msgspec.ValidationError` with the field's name when it is not one."""
    return msgspec.json.decode(data, type=Spec)
