"""Time and memory of reading a large recording, alone or beside Holistic Trace Analysis on the same file.

    python tests/benchmarks/read_kineto.py [--events N] [--file TRACE] [--hta]

Without ``--file`` a recording of about N events (1.2 million by default, more than 300 MB) is generated: training steps
of a transformer, with operators three deep, python frames, launches, kernels, flow arrows and annotations, one event in
one object as the profiler writes them. Each reader runs in a process of its own; the times are those of the read
without imports (on a busy machine the processor time is the one to compare); memory is the process's peak
(``ru_maxrss``), imports included.

``--hta`` installs HolisticTraceAnalysis into a scratch environment (nothing of it is a dependency of ours) and runs its
kernel breakdown, which is the least that reads the whole file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LAYER = (
    ("LlamaRMSNorm", ("aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul"), ()),
    ("Linear", ("aten::linear",), ("aten::t", "aten::matmul", "aten::mm")),
    ("LlamaAttention", ("aten::scaled_dot_product_attention",), ("aten::_flash_attention_forward",)),
    ("Linear", ("aten::linear",), ("aten::t", "aten::matmul", "aten::mm")),
    ("SiLU", ("aten::silu",), ()),
    ("Linear", ("aten::linear",), ("aten::t", "aten::matmul", "aten::mm")),
)
KERNELS = {
    "aten::mm": "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{}x{}_64x3_tn_align8>(Params)",
    "aten::_flash_attention_forward": "void flash_fwd_kernel<Flash_fwd_kernel_traits<{}, {}, 64, 4, false, false>>(Flash_fwd_params)",
}
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<{}, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, {}ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
PID = 19392


class Clock:
    def __init__(self) -> None:
        self.host, self.device, self.ids = 1_419_247_332_972_000, 1_419_247_333_400_000, 0  # ns

    def number(self) -> int:
        self.ids += 1
        return self.ids


def us(ns: int) -> float:
    return round(ns / 1000, 3)


def event(cat: str, name: str, ts: int, dur: int, pid: int = PID, tid: int = PID, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": us(ts), "dur": us(dur), "args": args}


def operator(clock: Clock, name: str, inner: tuple[str, ...], index: int) -> Iterator[dict[str, Any]]:
    """One operator with its children; the innermost launches a kernel."""
    begin = clock.host
    clock.host += 1_130
    number = clock.number()
    shapes = [[8, 128 * (index % 7 + 1), 768], [768, 768], []]
    if inner:
        yield from operator(clock, inner[0], inner[1:], index)
    else:
        yield from launched(clock, name, number, index)
    clock.host += 870
    yield event(
        "cpu_op",
        name,
        begin,
        clock.host - begin,
        **{
            "External id": number,
            "Record function id": 0,
            "Sequence number": number // 4,
            "Fwd thread id": 0,
            "Concrete Inputs": ["", "", "1"],
            "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"],
            "Input Strides": [[98304, 768, 1], [1, 768], []],
            "Input Dims": shapes,
            "Ev Idx": number,
        },
    )


def launched(clock: Clock, name: str, external: int, index: int) -> Iterator[dict[str, Any]]:
    correlation = 10_000_000 + clock.number()
    begin = clock.host
    clock.host += 4_210
    flow = {"id": correlation, "cat": "ac2g", "name": "ac2g"}
    yield event("cuda_runtime", "cudaLaunchKernel", begin, 3_910, cbid=211, correlation=correlation)
    yield {"ph": "s", **flow, "pid": PID, "tid": PID, "ts": us(begin)}
    clock.device = max(clock.device + 512, begin + 6_000)
    length = 2_016 + 37 * (index * 131 % 97) * (9 if name in KERNELS else 1)
    yield {"ph": "f", **flow, "pid": 0, "tid": 7, "ts": us(clock.device), "bp": "e"}
    yield event(
        "kernel",
        KERNELS.get(name, POINTWISE).format(64 * (index % 3 + 1), 4 + index % 11),
        clock.device,
        length,
        0,
        7,
        **{
            "External id": external,
            "queued": 0,
            "device": 0,
            "context": 1,
            "stream": 7,
            "correlation": correlation,
            "registers per thread": 96,
            "shared memory": 16384,
            "blocks per SM": 1.185185,
            "warps per SM": 9.481481,
            "grid": [index % 132 + 1, 4, 1],
            "block": [128, 1, 1],
            "est. achieved occupancy %": 27,
        },
    )
    clock.device += length


def frame(clock: Clock, name: str, begin: int) -> dict[str, Any]:
    args = {"Python parent id": clock.ids, "Python id": clock.number(), "Ev Idx": clock.ids}
    return event("python_function", name, begin, clock.host - begin, **args)


def module(
    clock: Clock, name: str, ops: tuple[str, ...], inner: tuple[str, ...], index: int
) -> Iterator[dict[str, Any]]:
    begin = clock.host
    clock.host += 2_000
    for op in ops:
        start = clock.host
        clock.host += 410
        yield from operator(clock, op, inner, index)
        clock.host += 410
        for depth in range(3):
            yield frame(
                clock, f"transformers/models/llama/modeling_llama.py({60 + depth}): forward", start + 10 * depth
            )
        yield frame(clock, f"<built-in method {op[6:]} of Tensor object at 0x7f{index:010x}>", start)
    clock.host += 1_000
    yield frame(clock, f"nn.Module: {name}_{index % 12}", begin)


def step(clock: Clock, number: int, layers: int = 12) -> Iterator[dict[str, Any]]:
    begin = clock.host
    for layer in range(layers):
        for name, ops, inner in LAYER:
            yield from module(clock, name, ops, inner, number * layers + layer)
    yield event("user_annotation", f"ProfilerStep#{number}", begin, clock.host - begin, **{"External id": number})
    clock.host += 5_000


def generate(path: Path, events: int) -> int:
    """Write a recording of at least so many events; how many it has."""
    clock, count, number = Clock(), 0, 0
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1751410836000000000,
    }
    with path.open("w") as file:
        file.write(json.dumps(head)[:-1] + ',\n  "traceEvents": [\n')
        while count < events:
            rows = [json.dumps(one) for one in step(clock, number)]
            file.write((",\n  " if count else "  ") + ",\n  ".join(rows))
            count += len(rows)
            number += 1
        file.write('\n  ],\n  "traceName": "made.json"\n}\n')
    return count


OURS = """
import resource, sys, time
from pathlib import Path
from profilers.readers import kineto
begin, start = time.perf_counter(), time.process_time()
recording = kineto.read(Path(sys.argv[1]))
seconds, cpu = time.perf_counter() - begin, time.process_time() - start
linked = int((recording.kernels["op_id"] >= 0).sum())
print(seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(recording.kernels), linked)
"""
THEIRS = """
import resource, sys, time, os, contextlib
from hta.trace_analysis import TraceAnalysis
begin, start = time.perf_counter(), time.process_time()
with contextlib.redirect_stdout(sys.stderr):
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
seconds, cpu = time.perf_counter() - begin, time.process_time() - start
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(seconds, cpu, peak / 1024, len(kernels), -1)
"""


def run(python: Path, code: str, path: Path) -> tuple[float, float, float, int, int]:
    """Wall seconds, processor seconds, peak MiB, and two counts, from a fresh process."""
    done = subprocess.run([str(python), "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"failed:\n{done.stderr[-2000:]}")
    seconds, cpu, peak, first, second = done.stdout.split()[-5:]
    return float(seconds), float(cpu), float(peak), int(first), int(second)


def install_hta(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "HolisticTraceAnalysis"], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_200_000)
    parser.add_argument("--file", type=Path, help="read this recording instead of a generated one")
    parser.add_argument("--hta", action="store_true", help="run Holistic Trace Analysis on the same file")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = options.file.resolve() if options.file else Path(scratch) / "made.json"
        if not options.file:
            count = generate(path, options.events)
            print(f"generated {count:,} events, {path.stat().st_size / 1e6:,.0f} MB")
        ours = [run(Path(sys.executable), OURS, path) for _ in range(options.repeat)]
        for seconds, cpu, mib, kernels, linked in ours:
            print(f"kernelscope: {told(seconds, cpu, mib)}  {kernels:,} device activities, {linked:,} linked")
        if options.hta:
            python = install_hta(Path(scratch) / "hta")
            seconds, cpu, mib, rows, _ = run(python, THEIRS, path)
            print(f"HTA:         {told(seconds, cpu, mib)}  {rows:,} kernel rows")
            wall, processor = (min(column) for column in list(zip(*ours, strict=True))[:2])
            most = max(one[2] for one in ours)
            print(
                f"ratio: {seconds / wall:.1f} x in wall time, {cpu / processor:.1f} x in processor time, {most / mib:.2f} of the memory"
            )


def told(seconds: float, cpu: float, mib: float) -> str:
    return f"{seconds:6.2f} s wall  {cpu:6.2f} s processor  {mib:7,.0f} MiB peak"


if __name__ == "__main__":
    main()
