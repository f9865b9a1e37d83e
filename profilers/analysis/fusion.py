"""What compiled kernels fuse: the operators inside each, and whose time its time is.

Two rules stand side by side. The 1,000-kernels study's: a kernel with any matrix multiply inside is a matrix multiply.
And a proportional split: each operator inside gets the part of the kernel's time that it would take alone, by its
operations and bytes over the device's peaks (the larger of the two, as in the roofline model). Views inside take
nothing. The parts of a kernel add up to its time; they are an estimate, since fusing is done to save just those bytes.

The operators inside come from the compiler's own provenance (``Origin.extra['fusion']``, JSON: kernel name -> rows of
the table of operators), never from the kernel's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis.calls import Call, numel, size_of
from profilers.analysis.costs import compute_dtype, costs
from profilers.analysis.options import Options
from profilers.analysis.peaks import Peaks, recording_peaks
from profilers.analysis.view import pct, view
from profilers.rules.load import load_rules
from profilers.rules.taxonomy import ATTENTION, CLASSES, GEMM
from profilers.tables import OPERATORS, Recording

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FUSION = "fusion"
"""Key of ``Origin.extra`` under which a recording carries what its kernels fuse."""

COLUMNS = (
    "kernel", "device", "calls", "time_us", "pct", "operators", "inside", "class_any_gemm",
    *(f"{name}_us" for name in CLASSES), "quantizes", "split",
)  # fmt: skip


class Inside(msgspec.Struct, frozen=True):
    """One operator inside a kernel, as in the table of operators."""

    name: str
    input_shapes: str = ""
    input_dtypes: str = ""
    input_values: str = ""


_MADE = frozenset(
    {"iota", "arange", "full", "zeros", "ones", "empty", "scalar_tensor", "full_like", "zeros_like", "ones_like"}
)
"""Values that a kernel makes where it needs them: nothing is moved."""

_COPIES = frozenset({"clone", "_to_copy", "copy", "convert_element_type"})
"""In a compiled graph these are no wrappers: nothing below them does the copying."""

_NARROW = ("torch.int8", "torch.float8", "signed char", "Float8")

_DECODER = msgspec.json.Decoder(dict[str, tuple[Inside, ...]])


@lru_cache(maxsize=16)
def decode(text: str) -> dict[str, tuple[Inside, ...]]:
    """Kernel name -> operators inside, in the graph's order; {} where the text is no such thing."""
    if not text:
        return {}
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError:
        return {}


def merge(texts: list[str]) -> str:
    """Several recordings' ``fusion`` as one ('' for none); the first that names a kernel says what is in it."""
    known = list(dict.fromkeys(text for text in texts if text))
    if len(known) < 2:
        return known[0] if known else ""
    merged: dict[str, tuple[Inside, ...]] = {}
    for text in known:
        merged = {**decode(text), **merged}
    return msgspec.json.encode(merged).decode()


@dataclass(frozen=True)
class Split:
    """How a kernel's time divides over the operators inside: ``weights`` sum to 1; ``source`` says by what.

    ``quantizes``: something inside quantizes or dequantizes.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    weights: tuple[float, ...]
    source: str
    quantizes: bool = False

    @property
    def any_gemm(self) -> str:
        """The class by the study's rule."""
        for cls in (GEMM, ATTENTION):
            if cls in self.classes:
                return cls
        return max(zip(self.weights, self.classes, strict=True))[1] if self.classes else "unclassified"

    def by_class(self) -> dict[str, float]:
        """Weight of each class; they sum to 1."""
        found = dict.fromkeys(CLASSES, 0.0)
        for cls, weight in zip(self.classes, self.weights, strict=True):
            found[cls] += weight
        return found

    def inside(self) -> str:
        """``gelu 62 %, add 38 %, view``: largest first, operators of one name together."""
        sums: dict[str, float] = {}
        for name, weight in zip(self.names, self.weights, strict=True):
            short = name.rsplit("::", 1)[-1]
            sums[short] = sums.get(short, 0.0) + weight
        ordered = sorted(sums.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {100 * weight:.0f} %" if weight > 0 else name for name, weight in ordered)


def split(operators: tuple[Inside, ...], peaks: Peaks | None) -> Split:
    """Divide a kernel over the operators inside it.

    ``source``: ``shapes over peaks`` (time by operations and bytes), ``bytes`` where the device's peaks are not known
    (operations cannot be compared with bytes then), ``equal parts`` where no operator inside could be priced.
    """
    frame = OPERATORS.conform(
        pd.DataFrame(
            {
                "op_id": np.arange(len(operators)),
                "name": [one.name for one in operators],
                "input_shapes": [one.input_shapes for one in operators],
                "input_dtypes": [one.input_dtypes for one in operators],
                "input_values": [one.input_values for one in operators],
            }
        )
    )
    classified = load_rules().classify_operators(frame)
    classes = tuple(str(c) for c in classified["class"])
    quantizes = bool((classified["group"] == "quantization").any()) or any(map(_to_or_from_int8, operators))
    priced = costs(frame)
    seconds, source = _estimate(frame, priced.flops, priced.call_bytes, priced.call_items, classes, peaks)
    total = seconds.sum()
    if not total > 0:
        seconds, source = np.ones(len(operators)), "equal parts"
        total = seconds.sum()
    weights = seconds / total if len(operators) else seconds
    names = tuple(one.name for one in operators)
    return Split(names, classes, tuple(float(w) for w in weights), source, quantizes)


def _to_or_from_int8(one: Inside) -> bool:
    """Whether an operator converts between int8 (or a float8) and a wider type."""
    if one.name.rsplit("::", 1)[-1] not in _COPIES:
        return False
    return any(sign in one.input_values or sign in one.input_dtypes for sign in _NARROW)


def _estimate(
    frame: pd.DataFrame, flops: Floats, moved: Floats, items: Ints, classes: tuple[str, ...], peaks: Peaks | None
) -> tuple[Floats, str]:
    """Seconds of each operator alone (bytes, where no peak is known); those of which nothing is known get the mean of
    the others. Views and made-up constants take nothing."""
    moved, items = moved.copy(), items.copy()
    rates = np.full(len(frame), np.nan)
    for index, (row, cls) in enumerate(zip(frame.itertuples(index=False), classes, strict=True)):
        call = Call.parse(str(row.name), str(row.input_shapes), str(row.input_dtypes), str(row.input_values))
        if call.name in _MADE:
            moved[index] = 0.0
        elif call.name in _COPIES and (source := call.tensor(0)) is not None:
            items[index] = numel(source)
            moved[index] = 2.0 * items[index] * (size_of(call.dtype(0)) or 4)
        if peaks is not None:
            rates[index] = peaks.tflops(compute_dtype(call)) if cls in (GEMM, ATTENTION) else peaks.fp32
    if peaks is None:
        known = ~np.isnan(moved)
        return np.where(known, moved, moved[known].mean() if known.any() else 0.0), "bytes"
    work = np.where(np.isnan(flops), np.where((items > 0) & (moved != 0), items, 0), flops)
    with np.errstate(divide="ignore", invalid="ignore"):
        computing = np.nan_to_num(work / (rates * 1e12))
        moving = moved / (peaks.memory_gb_s * 1e9)
    seconds = np.fmax(computing, moving)
    known = ~np.isnan(moved) | (work > 0)
    return np.where(known, seconds, seconds[known].mean() if known.any() else 0.0), "shapes over peaks"


def fusion(recording: Recording, options: Options | None = None) -> pd.DataFrame:
    """One row a fused kernel (:data:`COLUMNS`): its calls and time, what is inside, its class by the study's rule, and
    its time divided over the classes of the operators inside (the ``*_us`` columns sum to ``time_us``).

    Kernels with one operator inside are not fused and have no row (views count as operators here); empty where the
    recording carries no provenance.
    """
    opts = options or Options()
    rows = []
    known = decode(recording.origin.extra.get(FUSION, ""))
    if not known:
        return pd.DataFrame({name: [] for name in COLUMNS})
    peaks = recording_peaks(recording, opts)
    for device, kernel, calls, time_ns, total_ns in _kernels(recording, known):
        made = split(known[kernel], peaks.get(device))
        parts = made.by_class()
        rows.append(
            {
                "kernel": kernel,
                "device": device,
                "calls": calls,
                "time_us": time_ns / 1e3,
                "pct": pct(time_ns, total_ns),
                "operators": len(made.names),
                "inside": made.inside(),
                "class_any_gemm": made.any_gemm,
                **{f"{name}_us": parts[name] * time_ns / 1e3 for name in CLASSES},
                "quantizes": made.quantizes,
                "split": made.source,
            }
        )
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.sort_values("time_us", ascending=False, kind="stable").reset_index(drop=True)


def _kernels(recording: Recording, known: dict[str, tuple[Inside, ...]]) -> list[tuple[str, str, int, int, int]]:
    """``(device, name, calls, ns, ns of all kernels)`` of every believed kernel whose inside is known and fused."""
    seen = view(recording)
    rows = seen.rows
    kernels = recording.kernels.iloc[rows]
    total = int(kernels["dur_ns"].sum())
    sums = kernels.groupby(["device", "name"], observed=True)["dur_ns"].agg(["size", "sum"])
    found = []
    for (device, name), (calls, time_ns) in zip(sums.index, sums.to_numpy(), strict=True):
        if len(known.get(str(name), ())) > 1:
            found.append((str(device), str(name), int(calls), int(time_ns), total))
    return found


def rates(recording: Recording, options: Options | None = None) -> pd.DataFrame:
    """How much was fused (NonGEMM Bench's fusion rate): a row for non-GEMM operators fused with a GEMM, fused with one
    another, and left alone; ``operators`` are calls in the recording, ``pct`` of all non-GEMM operators.

    Only operators that do something count (views do not). Those inside kernels come from the provenance; those left
    alone are the other kernels, without what a GEMM or attention operator calls. Empty where there is no provenance.
    """
    known = decode(recording.origin.extra.get(FUSION, ""))
    counts = {"fused with a GEMM": 0, "fused with non-GEMM": 0, "alone": 0}
    if known:
        peaks = recording_peaks(recording, options or Options())
        inside = set()
        for device, kernel, calls, _, _ in _kernels(recording, known):
            made = split(known[kernel], peaks.get(device))
            busy = [cls for cls, weight in zip(made.classes, made.weights, strict=True) if weight > 0]
            others = sum(cls not in (GEMM, ATTENTION) for cls in busy)
            if len(busy) > 1:
                counts["fused with a GEMM" if others < len(busy) else "fused with non-GEMM"] += others * calls
                inside.add(kernel)
        counts["alone"] = _alone(recording, inside)
    total = sum(counts.values())
    frame = pd.DataFrame(
        {
            "how": list(counts),
            "operators": list(counts.values()),
            "pct": [pct(count, total) for count in counts.values()],
        }
    )
    return frame.iloc[: len(counts) if known else 0]


def _alone(recording: Recording, fused: set[str]) -> int:
    """Kernels that are not fused, compute no product, move something, and are no part of a product's operator."""
    seen = view(recording)
    kernels = recording.kernels
    products = (GEMM, ATTENTION)
    outer = np.append(seen.outermost, -1)[seen.operator_row]
    product = np.append(recording.operators["class"].isin(products).to_numpy(bool), False)
    under = product[outer]
    free = ~kernels["name"].isin(list(fused)) & ~kernels["class"].isin(products) & (kernels["group"] != "other")
    return int((seen.is_kernel & free.to_numpy() & (kernels["bytes"].to_numpy() != 0) & ~under).sum())
