"""The names of backends and quantizations, and what each needs. Imports nothing heavy: the command line asks here."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.util import find_spec

INDUCTOR_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
ORT_MODES = ("default", "cpu", "cuda")
TENSORRT_MODES = ("default", "layers")
"""``layers``: windows are layer times by TensorRT's own profiler instead of kernels by torch.profiler."""

ALIASES = {"compile": "inductor", "ort": "onnxruntime", "trt": "tensorrt"}

MODES: dict[str, tuple[str, ...]] = {
    "eager": ("default",),
    "inductor": INDUCTOR_MODES,
    "onnxruntime": ORT_MODES,
    "tensorrt": TENSORRT_MODES,
}
"""Backend -> its modes, the usual one first. ``--backend inductor:max-autotune`` names both."""

QUANTS: dict[str, str] = {
    "int8wo": "int8 weights, computed in the model's precision (torchao)",
    "int8dyn": "int8 weights and activations, scaled as they come (torchao; without it torch.ao on a CPU)",
    "int4wo": "int4 weights in groups (torchao)",
    "llmint8": "LLM.int8(): int8 with outlier columns apart (bitsandbytes)",
    "nf4": "4-bit normal-float weights (bitsandbytes)",
    "fp8": "float8 weights and activations (torchao; a GPU of compute capability 8.9 or newer)",
}

_PACKAGES = {
    "onnxruntime": (("onnxruntime", "onnx", "onnxscript"), "ort"),
    "tensorrt": (("tensorrt", "onnx", "onnxscript"), "trt"),
    "llmint8": (("bitsandbytes",), "quant"),
    "nf4": (("bitsandbytes",), "quant"),
    "int8wo": (("torchao",), "quant"),
    "int4wo": (("torchao",), "quant"),
    "fp8": (("torchao",), "quant"),
}


class UnknownName(ValueError):
    """No backend or quantization is called so. The message is one line that names what there is."""


@dataclass(frozen=True)
class Backend:
    """``family`` is eager, inductor, onnxruntime or tensorrt; ``mode`` one of :data:`MODES`."""

    family: str
    mode: str

    def __str__(self) -> str:
        return self.family if self.mode == "default" else f"{self.family}:{self.mode}"


def spelled() -> tuple[str, ...]:
    """Every backend with each of its modes, as ``--backend`` takes them."""
    return tuple(str(Backend(family, mode)) for family, modes in MODES.items() for mode in modes)


def parse(text: str) -> Backend:
    """``inductor:max-autotune`` -> family and mode. Raises :class:`UnknownName`."""
    family, colon, mode = text.strip().lower().partition(":")
    family = ALIASES.get(family, family)
    if family not in MODES:
        raise UnknownName(f"no backend is called '{text}'{_near(family, MODES)}; there are {', '.join(MODES)}")
    if not colon:
        return Backend(family, MODES[family][0])
    if mode not in MODES[family]:
        modes = ", ".join(f"{family}:{name}" for name in MODES[family])
        raise UnknownName(f"{family} has no mode '{mode}'{_near(mode, MODES[family])}; there are {modes}")
    return Backend(family, mode)


def parse_quant(text: str) -> str:
    """A quantization's name, checked; '' is none. Raises :class:`UnknownName`."""
    name = text.strip().lower()
    if name in ("", "none"):
        return ""
    if name not in QUANTS:
        raise UnknownName(f"no quantization is called '{text}'{_near(name, QUANTS)}; there are {', '.join(QUANTS)}")
    return name


def own_profile(backend: str, device: str) -> str:
    """Whose own profiles a run's windows are: ``onnxruntime`` or ``tensorrt``; '' where they are torch.profiler's."""
    try:
        wanted = parse(backend)
    except UnknownName:
        return ""
    if wanted.family == "onnxruntime" and (wanted.mode == "cpu" or not device.startswith("cuda")):
        return "onnxruntime"
    return "tensorrt" if (wanted.family, wanted.mode) == ("tensorrt", "layers") else ""


def unfit(backend: Backend, quant: str, mode: str, device: str) -> str:
    """Why these cannot go together, in one line; '' where they can (whether the device is able is asked in the run)."""
    if backend.family in ("onnxruntime", "tensorrt") and mode == "train":
        return f"{backend.family} runs inference only: use --mode infer, or --backend inductor to train"
    if backend.family in ("onnxruntime", "tensorrt") and quant not in ("", "int8dyn"):
        return f"--quant {quant} is not for {backend.family}: use int8dyn, or another backend"
    if backend.family == "tensorrt" and quant:
        return f"--quant {quant} is not for tensorrt: use --dtype fp16, or another backend"
    if quant and mode == "train":
        return f"--quant {quant} is for inference: leave --mode train out"
    if backend.family == "tensorrt" and not device.startswith("cuda"):
        return "tensorrt needs a GPU: use --device cuda:0"
    if str(backend) == "onnxruntime:cuda" and not device.startswith("cuda"):
        return "onnxruntime:cuda needs a GPU: use --device cuda:0, or --backend onnxruntime"
    if quant == "fp8" and not device.startswith("cuda"):
        return "--quant fp8 needs a GPU of compute capability 8.9 or newer"
    return ""


def missing(backend: Backend, quant: str) -> str:
    """One line that says which extra is to be installed; '' where nothing is missing. Imports nothing."""
    wanted = backend.family if backend.family in _PACKAGES else ""
    for name in (wanted, quant):
        # ONNX Runtime quantizes with its own tools.
        if name == quant and wanted == "onnxruntime":
            continue
        packages, extra = _PACKAGES.get(name, ((), ""))
        absent = [package for package in packages if find_spec(package) is None]
        if absent:
            what = f"--backend {backend}" if name == wanted else f"--quant {quant}"
            return f"{what} needs {' and '.join(absent)}: pip install 'kernelscope[{extra}]'"
    return ""


def _near(name: str, known: object) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)  # type: ignore[call-overload]
    return f" (did you mean {near[0]}?)" if near else ""
