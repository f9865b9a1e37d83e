"""``--device``: which devices are meant, and what they lack, said before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tui.cli.errors import UsageError
from tui.cli.output import talk

if TYPE_CHECKING:
    from profilers.collectors.telemetry.devices import DeviceRow
    from profilers.runs.spec import Spec

BF16_SINCE = (8, 0)
"""The first compute capability that computes in bf16 without emulation (Ampere)."""


def chosen_devices(
    text: str, rows: Sequence[DeviceRow] | None = None, build: str | None = None, ranks: int = 1
) -> list[DeviceRow]:
    """The devices of a list such as ``cuda:0,cuda:1``, ``cpu``, ``cuda`` or ``auto``, each once, in the order given.

    ``auto`` is the GPU that nobody uses and that has most free memory, else the CPU; ``cuda`` the same without falling
    back. Of several ``ranks`` each gets a GPU of its own. ``build`` says what torch was built for. Raises
    :class:`UsageError` that lists what there is.
    """
    if rows is None:
        from profilers.collectors.telemetry.devices import list_devices

        rows = list_devices()
    if build is None:
        from tui.cli.checks.packages import torch_build

        build = torch_build()
    chosen: list[DeviceRow] = []
    for word in (part.strip().lower() for part in text.split(",")):
        for row in _of_ranks(word, _one(word, rows, build), rows, ranks):
            if row not in chosen:
                chosen.append(row)
    for row in chosen:
        if row.busy:
            talk(f"note: {row.device} is {row.usage}: times will be longer than on a free device")
    return chosen


def _one(word: str, rows: Sequence[DeviceRow], build: str) -> DeviceRow:
    from profilers.collectors.telemetry.devices import best_first

    usable = best_first(rows)
    gpus = [row for row in rows if row.kind in ("cuda", "mig")]
    blind = "" if build.startswith(("CUDA", "ROCm")) else f"the installed torch cannot use a GPU ({build})"
    if word == "auto":
        if blind and gpus:
            talk(f"note: running on the CPU: {blind}")
        elif gpus and not usable:
            talk(f"note: running on the CPU: no GPU answers: {gpus[0].device}: {gpus[0].note}")
        word = "cuda" if usable and not blind else "cpu"
    if word.startswith("cuda") and gpus and blind:
        raise UsageError(f"{word}: {blind}; see https://pytorch.org for one that can")
    if word == "meta":
        from profilers.collectors.telemetry.devices import DeviceRow

        return DeviceRow("meta", "computed, not measured", "", "meta", None, None, None)
    if word == "cuda" and gpus:
        if not usable:
            raise UsageError(f"no GPU answers: {gpus[0].device}: {gpus[0].note}")
        return usable[0]
    for row in rows:
        if row.device == word and (row.kind == "amd" or row.lost):
            raise UsageError(f"{word} ({row.name}): {row.note}")
        if row.device == word:
            return row
    raise UsageError(f"no device is called '{word}'; there are {_named(rows)}{_why_no_gpu(word, gpus, rows)}")


def _of_ranks(word: str, best: DeviceRow, rows: Sequence[DeviceRow], ranks: int) -> list[DeviceRow]:
    """A GPU for each rank where none was named: the free ones first, then those with most free memory; in their order."""
    if ranks == 1 or word not in ("auto", "cuda") or best.kind == "cpu":
        return [best]
    from profilers.collectors.telemetry.devices import best_first

    gpus = best_first(rows)
    if len(gpus) < ranks:
        here = ", ".join(row.device for row in rows if row in gpus) or "none that answers"
        raise UsageError(f"{ranks} ranks need {ranks} GPUs or the CPU; here is {here}: fewer ranks, or --device cpu")
    return sorted(gpus[:ranks], key=list(rows).index)


def _named(rows: Sequence[DeviceRow]) -> str:
    return ", ".join(f"{row.device} ({row.name})" if row.name else row.device for row in rows)


def _why_no_gpu(word: str, gpus: Sequence[DeviceRow], rows: Sequence[DeviceRow]) -> str:
    if gpus or not word.startswith("cuda"):
        return ""
    reason = next((row.note for row in rows if row.note), "")
    return f"; no GPU: {reason}" if reason else ""


def refuse_what_devices_lack(
    specs: Sequence[Spec],
    devices: Sequence[DeviceRow],
    capability: Callable[[str], tuple[int, int] | None] | None = None,
) -> None:
    """Raise :class:`UsageError` for a spec that its device surely cannot run: a precision that it does not compute in,
    or more memory than it has (by the parameters alone, then by an estimate of a whole step).

    ``capability`` gives a GPU's compute capability by UUID, None where it is not known (then nothing is refused).
    """
    rows = {row.device: row for row in devices}
    for spec in specs:
        found = (capability or _capability)(spec.device_uuid) if spec.dtype == "bf16" and spec.device_uuid else None
        if found is not None and found < BF16_SINCE:
            what = f"{spec.device} (compute capability {found[0]}.{found[1]})"
            raise UsageError(f"{spec.name}: {what} has no bf16; use --dtype fp16 or fp32")
        room = rows[spec.device].memory_total_gb if spec.device in rows else None
        least, of = _least_gb(spec)
        if room is not None and least > room:
            raise UsageError(
                f"{spec.name} in {spec.dtype}: its {of} take {least:.1f} GB; {spec.device} has {room:.1f} GB"
            )
    from tui.cli.fitting import misfits

    for line in misfits(specs, {row.device: row.memory_total_gb for row in devices}):
        raise UsageError(line)


def _least_gb(spec: Spec) -> tuple[float, str]:
    """Decimal GB that a workload of the catalogue cannot do without, and what of: its published parameters in the run's
    precision, twice in training (their gradients). 0 where nothing is published."""
    from apps import catalogue

    if spec.target != "catalogue":
        return 0.0, ""
    size = catalogue.lookup(spec.workload).sizes[spec.size]
    weights = size.parameters * (4 if spec.dtype == "fp32" else 2) / 1e9
    return (2 * weights, "parameters and gradients") if spec.mode == "train" else (weights, "parameters")


def _capability(uuid: str) -> tuple[int, int] | None:
    from profilers.collectors.telemetry.nvml import Nvml

    nvml = Nvml()
    try:
        gpu = next((gpu for gpu in nvml.gpus if gpu.uuid == uuid), None)
        answer, _ = nvml.ask(gpu, "nvmlDeviceGetCudaComputeCapability") if gpu is not None else (None, "")
        return None if answer is None else (int(answer[0]), int(answer[1]))
    finally:
        nvml.close()
