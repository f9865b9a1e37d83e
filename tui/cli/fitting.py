"""Does a run fit its device? Asked of a process that may load torch, and only where the answer is not plain."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tui.cli.output import talk

if TYPE_CHECKING:
    from profilers.runs.spec import Spec

TIMEOUT_S = 120.0


def misfits(specs: Sequence[Spec], room_gb: Mapping[str, float | None]) -> list[str]:
    """One line for each spec that needs more memory than its device has, by an estimate on the meta device.

    ``room_gb``: decimal GB by device; None where it is not known. Only specs of the catalogue whose batch or sequence is
    above the default are asked about: the defaults are chosen to fit, and the question costs the seconds that torch
    takes to load. Where there is no answer, nothing is refused.
    """
    questions = [
        {
            "workload": spec.workload,
            "size": spec.size,
            "mode": spec.mode,
            "dtype": spec.dtype,
            "batch": spec.batch,
            "seq": spec.seq,
            "device": spec.device,
            "attention": spec.attention,
            "room": int(room * 1e9),
        }
        for spec in specs
        if (room := room_gb.get(spec.device)) is not None and _above_default(spec)
    ]
    if not questions:
        return []
    if sys.stderr.isatty():
        talk("estimating whether it fits ...")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "apps.fitting"],
            input=json.dumps(questions),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        answers = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        talk(f"note: whether it fits could not be estimated ({type(error).__name__}); the run will tell")
        return []
    return [answer for answer in answers if answer]


def _above_default(spec: Spec) -> bool:
    from apps import catalogue

    if spec.target != "catalogue":
        return False
    size = catalogue.lookup(spec.workload).sizes[spec.size]
    kind = spec.device.split(":", 1)[0]
    usual = size.batch.get(kind, size.batch["cpu"])
    return spec.batch > usual or (spec.seq or 0) > (size.seq or 0)
