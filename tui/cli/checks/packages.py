"""Versions of what we stand on, and which optional packages are missing."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tui.cli.checks.check import Check

NEEDED = ("torch", "transformers", "textual", "rich", "pandas", "numpy", "pyarrow", "msgspec", "psutil", "nvidia-ml-py")
OPTIONAL = {
    "torchvision": "detectors run in kernelscope's own parts, without its kernels: pip install 'kernelscope[vision]'",
    "diffusers": "diffusion models cannot run: pip install 'kernelscope[diffusion]'",
    "onnxruntime": "--backend onnxruntime cannot run: pip install 'kernelscope[ort]'",
    "torchao": "--quant int8wo, int4wo and fp8 cannot run: pip install 'kernelscope[quant]'",
    "bitsandbytes": "--quant llmint8 and nf4 cannot run: pip install 'kernelscope[quant]'",
    "cupti-python": "--counters pm cannot run: see Counters in the README",
    "triton": "torch.compile cannot make GPU kernels",
}


def checks() -> Iterator[Check]:
    """Packages that runs need (a missing one is a problem) and packages that some runs need."""
    yield Check("software", "kernelscope", _version("kernelscope") or "not installed")
    yield Check("software", "python", sys.version.split()[0])
    for name in NEEDED:
        found = _version(name)
        if found is None:
            yield Check("software", name, "missing", "problem", f"runs need it: pip install {name}")
        elif name == "torch":
            yield Check("software", name, f"{found} ({torch_build()})")
        else:
            yield Check("software", name, found)
    for name, loss in OPTIONAL.items():
        found = _version(name)
        yield Check("software", name, found or "missing", "ok" if found else "note", "" if found else loss)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def torch_build() -> str:
    """What torch was built for, read from its own version file: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    try:
        text = (Path(folder or "") / "version.py").read_text(encoding="utf-8")
    except OSError:
        return "build not known"
    for name, label in (("cuda", "CUDA"), ("hip", "ROCm")):
        found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if found:
            return f"{label} {found[1]}"
    return "CPU only"
