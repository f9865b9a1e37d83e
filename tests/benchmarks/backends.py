"""Backends and number formats side by side on this machine's processors: one Markdown row a run.

    python -m tests.benchmarks.backends [--models gpt2,bert-base] [--size tiny] [--seq 128] [--windows 3]

Every row is a run of ``kernelscope run MODEL --device cpu --backend B --quant Q``. Step times are medians of unprofiled
steps; shares are of kernel time in the windows (``Q/DQ fused``: kernels that quantize or dequantize among other things,
which also count under GEMM or the other column); memory is the most that was resident while stepping (the Python process
with its libraries included). ``own profiler``: kernel time here over the sum that the raw traces themselves give.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from profilers.analysis.registry import TABLES
from profilers.runs.folder import RunFolder, list_runs

MODELS = "gpt2,bert-base,swin-t,resnet-50"
CASES = (
    ("eager", ""),
    ("inductor", ""),
    ("onnxruntime", ""),
    ("eager", "int8dyn"),
    ("inductor", "int8dyn"),
    ("onnxruntime", "int8dyn"),
)
HEAD = (
    "model",
    "backend",
    "numbers",
    "step ms",
    "GEMM %",
    "Q/DQ %",
    "Q/DQ fused %",
    "other non-GEMM %",
    "memory MB",
    "own profiler",
)


def main(arguments: list[str] | None = None) -> int:
    """Run all, print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--size", default="full")
    parser.add_argument("--windows", default="3")
    parser.add_argument("--seq", default="", help="tokens, for models that have a sequence")
    parser.add_argument("--runs", type=Path)
    args = parser.parse_args(arguments)
    root = args.runs or Path(tempfile.mkdtemp(prefix="backends-"))
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "|".join("---" if index < 3 else "---:" for index in range(len(HEAD))) + "|", flush=True)
    for model in args.models.split(","):
        for backend, quant in CASES:
            cells = measure(root, model, args, backend, quant)
            print("| " + " | ".join([model, backend, quant or "fp32", *cells]) + " |", flush=True)
    return 0


def measure(root: Path, model: str, args: argparse.Namespace, backend: str, quant: str) -> list[str]:
    """The cells of one run, or why there is none."""
    command = [sys.executable, "-m", "tui.cli", "run", model, "--size", args.size, "--device", "cpu", "--batch", "1"]
    command += ["--backend", backend, "--windows", args.windows, "--keep-traces", "--no-tui", "--runs", str(root)]
    command += ["--dtype", "fp32", *(["--quant", quant] if quant else []), *(["--seq", args.seq] if args.seq else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    runs = list_runs(root)
    if done.returncode or not runs:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "failed")
        return [last[:80], *[""] * 6]
    return cells_of(runs[0])


def cells_of(run: RunFolder) -> list[str]:
    """Step, shares, memory and agreement of a finished run."""
    status, recording = run.status(), run.recording()
    groups = TABLES["groups"].compute(recording)
    total = float(groups["time_us"].sum())
    heavy = float(groups.loc[groups["class"].isin(["gemm", "attention"]), "time_us"].sum())
    casts = float(groups.loc[groups["group"] == "quantization", "time_us"].sum())
    fused = TABLES["fusion"].compute(recording)
    within = float(fused.loc[fused["quantizes"].astype(bool), "time_us"].sum())
    own = sum(profiled_us(path) for path in sorted((run.path / "traces").iterdir()))
    memory = (status.peak_memory_bytes or 0) / 1e6
    return [
        f"{status.step_ms:.1f} ± {status.step_ms_spread:.1f}",
        f"{100 * heavy / total:.1f}",
        f"{100 * casts / total:.1f}",
        f"{100 * within / total:.1f}",
        f"{100 * (total - heavy - casts) / total:.1f}",
        f"{memory:,.0f}",
        f"{total / own:.4f}",
    ]


def profiled_us(path: Path) -> float:
    """What a raw trace itself says was spent: nodes of ONNX Runtime, or what the outermost operators of torch.profiler
    cover (the ranges around modules are marks, no operators)."""
    value = json.loads(path.read_text())
    if isinstance(value, list):
        return float(sum(event["dur"] for event in value if event.get("cat") == "Node"))
    events = [e for e in value["traceEvents"] if e.get("ph") == "X" and e.get("cat") == "cpu_op"]
    total, reach = 0.0, float("-inf")
    for start, length in sorted((e["ts"], e["dur"]) for e in events if not e["name"].startswith("nn.Module: ")):
        total += max(0.0, start + length - max(start, reach))
        reach = max(reach, start + length)
    return total


if __name__ == "__main__":
    sys.exit(main())
