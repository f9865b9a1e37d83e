"""Every rule on a recording where it fires, with the gain worked out by hand, and on one where it must not."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tables_maker import US, kernel, operator, random_recording, recording, step, sync

from profilers.analysis.advice import (
    copies,
    launches,
    layouts,
    loading,
    norms,
    optimizers,
    overlap,
    pointwise,
    rotary,
    scores,
    syncs,
    tiles,
)
from profilers.analysis.advice.case import Case, Finding
from profilers.analysis.advise import MOST, RULES, advice, findings
from profilers.analysis.options import Options
from profilers.analysis.prepare import prepare
from profilers.readers import read
from profilers.tables import Recording


def run(rule: Any, made: Recording) -> Finding | None:
    found: Finding | None = rule(Case(made, Options()))
    return found


def gains(rule: Any, made: Recording) -> tuple[float, float]:
    found = run(rule, made)
    assert found is not None
    return found.priced.device_speedup, found.priced.wall_speedup


def back_to_back(rows: list[tuple[str, str, int]], **more: Any) -> list[dict[str, Any]]:
    """Kernels (name, group, us) one after the other, launched long before they run."""
    made, now = [], 100 * US
    for name, group, length in rows:
        made.append(kernel(now, length * US, name, group, launch_ns=now - 90 * US, step=0, **more))
        now += length * US
    return made


def test_launches() -> None:
    # Two kernels of 10 us; the second is launched 60 us after the first ends: 60 of 100 us of the step are lost.
    late = [kernel(0, 10 * US, step=0), kernel(70 * US, 10 * US, launch_ns=66 * US, step=0)]
    made = recording(late, steps=[step(0, 0, 100 * US)])
    assert gains(launches.find, made) == pytest.approx((1.0, 100 / 40))
    found = run(launches.find, made)
    assert found is not None and "60.0 % of wall time" in found.evidence and "CUDA graphs" in found.do
    replayed = recording([row | {"graph": True} for row in late], steps=[step(0, 0, 100 * US)])
    found = run(launches.find, replayed)
    assert found is not None and "larger batch" in found.do and "reduce-overhead" not in found.do
    busy = recording(back_to_back([("a", "matmul", 10), ("b", "matmul", 10)]))
    assert run(launches.find, busy) is None


def test_gaps_too_long_for_a_launch_ask_for_a_look_at_the_host() -> None:
    late = [kernel(0, 10 * US, step=0), kernel(5_010 * US, 10 * US, launch_ns=5_005 * US, step=0)]
    found = run(launches.find, recording(late, steps=[step(0, 0, 6_000 * US)]))
    assert (
        found is not None and "5 ms a gap" in found.evidence and "CUDA graphs" not in found.do and "py-spy" in found.do
    )


@pytest.mark.parametrize(
    ("name", "says"), [("_SingleProcess", "num_workers=4"), ("_MultiProcessing", "do not keep up")]
)
@pytest.mark.parametrize("how", ["call", "operator"])
def test_loading(how: str, name: str, says: str) -> None:
    # 60 idle us before the second kernel's launch, 40 of them in the loader, and a synchronising call beside it.
    name = f"enumerate(DataLoader)#{name}DataLoaderIter.__next__"
    fetch = sync(15 * US, 45 * US) | {"name": name, "kind": "loading"}
    ops = [operator(0, 15 * US, 45 * US, name)] if how == "operator" else []
    calls = [sync(20 * US, 2 * US)] + ([fetch] if how == "call" else [])
    late = [kernel(0, 20 * US, step=0), kernel(80 * US, 10 * US, launch_ns=75 * US, step=0)]
    made = recording(late, ops, [step(0, 0, 100 * US)], calls)
    assert gains(loading.find, made) == pytest.approx((1.0, 100 / 40))
    found = run(loading.find, made)
    assert found is not None and says in found.do
    assert "60.0 % of wall time in 1 gaps; 1.0 batches fetched a step" in found.evidence
    assert run(launches.find, made) is None and run(syncs.find, made) is None
    if how == "call":  # where processors compute, an operator is their work
        on_cpu = recording([row | {"device": "cpu"} for row in late], [], [step(0, 0, 100 * US)], calls)
        assert gains(loading.find, on_cpu) == pytest.approx((1.0, 100 / 40))
    short = recording(late, [], [step(0, 0, 100 * US)], [fetch | {"dur_ns": 10 * US}])
    assert run(loading.find, short) is None and run(launches.find, short) is not None, "less than half of the delay"


def test_syncs() -> None:
    # The host waits 40 of 60 idle us in a cudaStreamSynchronize that aten::item holds, then launches.
    made = recording(
        [kernel(0, 20 * US, step=0), kernel(80 * US, 10 * US, launch_ns=75 * US, step=0)],
        [operator(0, 15 * US, 50 * US, "aten::item")],
        [step(0, 0, 100 * US)],
        [sync(20 * US, 40 * US)],
    )
    assert gains(syncs.find, made) == pytest.approx((1.0, 100 / 40))
    found = run(syncs.find, made)
    assert found is not None and "aten::item" in found.evidence and "1.0 cudaStreamSynchronize a step" in found.evidence
    assert ".item() and printing" in found.do
    asking = recording(
        [kernel(0, 20 * US, step=0), kernel(80 * US, 10 * US, launch_ns=75 * US, step=0)],
        steps=[step(0, 0, 100 * US)],
        runtime=[sync(20 * US, 40 * US) | {"name": "cudaStreamWaitEvent"}],
    )
    assert run(syncs.find, asking) is None


def test_pointwise() -> None:
    rows = [("g", "matmul", 60), ("mul", "elementwise", 10), ("gelu", "activation", 20), ("add", "elementwise", 10)]
    made = recording(back_to_back(rows))
    # 40 us of chain cost as much as the longest, 20: 100 -> 80.
    assert gains(pointwise.find, made)[0] == pytest.approx(100 / 80)
    alone = recording(back_to_back([("mul", "elementwise", 10), ("g", "matmul", 60), ("add", "elementwise", 10)]))
    assert run(pointwise.find, alone) is None
    sizes = [dict(row, threads=index * 1000) for index, row in enumerate(back_to_back(rows), start=1)]
    assert run(pointwise.find, recording(sizes)) is None  # of different tensors: no one kernel can do them


@pytest.mark.parametrize("apart", [{"stream": 8}, {"step": 1}, {"device": "cuda:1"}])
def test_a_chain_ends_with_its_stream_step_and_device(apart: dict[str, Any]) -> None:
    first, second = back_to_back([("mul", "elementwise", 10), ("add", "elementwise", 10)])
    assert run(pointwise.find, recording([first, second])) is not None
    assert run(pointwise.find, recording([first, second | apart])) is None


def test_norms() -> None:
    parts = [("pow", "normalization", 10), ("mean", "normalization", 5), ("rsqrt", "normalization", 5)]
    made = recording(back_to_back([("g", "matmul", 60), *parts, ("mul", "normalization", 20)]))
    assert gains(norms.find, made)[0] == pytest.approx(100 / 80)
    assert run(pointwise.find, made) is None
    assert run(norms.find, recording(back_to_back([("g", "matmul", 60), *parts]))) is None  # batch norm in training
    # By the module where the group says nothing.
    ops = [operator(i, 0, 1, module="Qwen2RMSNorm") for i in range(4)]
    rows = back_to_back([("pow", "elementwise", 10)] * 4)
    made = recording([row | {"op_id": index} for index, row in enumerate(rows)], ops)
    assert gains(norms.find, made)[0] == pytest.approx(4.0)
    found = run(norms.find, made)
    assert found is not None and "Qwen2RMSNorm" in found.evidence
    assert run(pointwise.find, made) is None


def test_rotary() -> None:
    parts = [("neg", "elementwise", 5), ("CatArrayBatchedCopy", "memory", 5), ("mul", "elementwise", 10)]
    made = recording(back_to_back([("g", "matmul", 65), *parts, ("mul", "elementwise", 15)]))
    assert gains(rotary.find, made)[0] == pytest.approx(100 / 80)
    assert run(pointwise.find, made) is None
    without = recording(back_to_back([*parts[1:], ("mul", "elementwise", 15), ("add", "elementwise", 5)]))
    assert run(rotary.find, without) is None


@pytest.mark.parametrize(("way", "says"), [("Pageable", "pin_memory"), ("Pinned", "keep on the device")])
def test_copies(way: str, says: str) -> None:
    # 60 us of copying, 10 of them beside a kernel: 50 of 100 us of wall time could go.
    copy = kernel(
        20 * US, 60 * US, f"Memcpy HtoD ({way} -> Device)", "memory", kind="memcpy", stream=9, bytes=3e6, step=0
    )
    work = [kernel(0, 10 * US, step=0), kernel(70 * US, 20 * US, step=0)]
    steps = [step(0, 0, 100 * US)]
    made = recording([*work, copy], steps=steps)
    assert gains(copies.find, made) == pytest.approx((1.0, 100 / 50))
    found = run(copies.find, made)
    assert found is not None and says in found.do
    assert "0.003 GB at 50 GB/s, 50.0 % of wall time" in found.evidence
    inside = recording([*work, copy | {"name": "Memcpy DtoD (Device -> Device)"}], steps=steps)
    assert run(copies.find, inside) is None
    hidden = recording([kernel(0, 100 * US, step=0), copy], steps=steps)
    assert run(copies.find, hidden) is None


WRITTEN_OUT = [
    ("g", "matmul", 20),
    ("mul", "elementwise", 10),
    ("add", "elementwise", 5),
    ("softmax", "softmax", 25),
    ("copy", "memory", 10),
    ("g", "matmul", 30),
]


def test_attention_scores() -> None:
    # 50 of 100 us lie between the two products.
    made = recording(back_to_back(WRITTEN_OUT))
    assert gains(scores.find, made)[0] == pytest.approx(2.0)
    found = run(scores.find, made)
    assert found is not None and "1 times a recording" in found.evidence and "50.0 % of kernel time" in found.evidence
    for broken in (
        WRITTEN_OUT[:-1],  # a classifier ends with its softmax
        [row for row in WRITTEN_OUT if row[1] != "softmax"],
        [*WRITTEN_OUT[:4], ("topk", "routing", 5), *WRITTEN_OUT[4:]],  # a router
        [*WRITTEN_OUT[:4], *[("add", "elementwise", 1)] * 12, *WRITTEN_OUT[4:]],
    ):
        assert run(scores.find, recording(back_to_back(broken))) is None
    last = len(WRITTEN_OUT) - 1
    apart = [row | ({"stream": 9} if index == last else {}) for index, row in enumerate(back_to_back(WRITTEN_OUT))]
    assert run(scores.find, recording(apart)) is None


@pytest.mark.parametrize(("name", "fires"), [("aten::bmm", True), ("aten::baddbmm", True), ("aten::addmm", False)])
def test_attention_multiplies_batches(name: str, fires: bool) -> None:
    ops = [operator(0, 0, 1, name), operator(1, 2, 1, "aten::mul")]
    rows = [row | {"op_id": int(row["group"] != "matmul")} for row in back_to_back(WRITTEN_OUT)]
    assert (run(scores.find, recording(rows, ops)) is not None) is fires


def test_optimizers() -> None:
    passes = [("lerp", "optimizer", 30), ("addcmul", "optimizer", 40), ("addcdiv", "optimizer", 40)]
    made = recording(back_to_back([("g", "matmul", 90), *passes]))
    # 110 us become 40 x 7/4 = 70.
    assert gains(optimizers.find, made)[0] == pytest.approx(200 / 160)
    fused = recording(back_to_back([*passes, ("FusedAdamMathFunctor", "optimizer", 10)]))
    assert run(optimizers.find, fused) is None
    # What would take longer fused is not advised.
    assert (
        run(
            optimizers.find,
            recording(back_to_back([("a", "optimizer", 90), *(("b", "optimizer", 1), ("c", "optimizer", 1))])),
        )
        is None
    )


def test_layouts() -> None:
    made = recording(back_to_back([("nchwToNhwcKernel", "memory", 20), ("implicit_conv", "convolution", 80)]))
    assert gains(layouts.find, made)[0] == pytest.approx(100 / 80)
    assert run(layouts.find, recording(back_to_back([("implicit_conv", "convolution", 80)]))) is None


def gemm_case(n: int, slow_us: int, like: int = 512) -> Recording:
    """bf16 multiplies 1024 x n x 512 and, aligned, 1024 x 2048 x ``like`` at 100 us."""
    bf16 = '["c10::BFloat16","c10::BFloat16"]'
    ops = [
        operator(0, 0, 1, "aten::mm", group="matmul", input_shapes=f"[[1024,512],[512,{n}]]", input_dtypes=bf16),
        operator(1, 9, 1, "aten::mm", group="matmul", input_shapes=f"[[1024,{like}],[{like},2048]]", input_dtypes=bf16),
    ]
    rows = [
        row | {"op_id": index, "flops": 2.0 * 1024 * size * depth}
        for index, (row, size, depth) in enumerate(
            zip(back_to_back([("u", "matmul", slow_us), ("v", "matmul", 100)]), (n, 2048), (512, like), strict=True)
        )
    ]
    flops = [row["flops"] for row in rows]
    ops = [op | {"flops": value} for op, value in zip(ops, flops, strict=True)]
    return recording(rows, ops)


def test_tiles() -> None:
    # 2047 columns take 300 us; padded to 2048 at the aligned rate they take 100: 400 -> 200.
    assert gains(tiles.find, gemm_case(2047, 300))[0] == pytest.approx(2.0, rel=1e-3)
    found = run(tiles.find, gemm_case(2047, 300))
    assert found is not None and "n 2,047 to 2,048" in found.evidence
    assert run(tiles.find, gemm_case(2048, 300)) is None  # aligned, for whatever reason slow
    assert run(tiles.find, gemm_case(2047, 90)) is None  # unaligned but not slower
    assert run(tiles.find, gemm_case(2047, 300, like=8192)) is None  # nothing of like size to price it by


@pytest.mark.parametrize(
    ("shape", "dtype", "sides"),
    [
        ("m=8 n=50257 k=768", "bf16", {"n": (50257, 50264)}),
        ("m=1 n=4096 k=4096", "fp16", {}),
        ("m=1024 n=1000 k=1000", "int8", {"n": (1000, 1008), "k": (1000, 1008)}),
        ("m=1023 n=1023 k=1023", "fp32", {}),
        ("b=8 c=3 224x224 f=64 k=7x7 s=2x2", "bf16", {}),
    ],
)
def test_what_is_unaligned(shape: str, dtype: str, sides: dict[str, tuple[int, int]]) -> None:
    assert tiles.padded(shape, dtype) == sides


def test_overlap() -> None:
    work = kernel(0, 40 * US, "gemm", "matmul", step=0)
    talk = kernel(30 * US, 30 * US, "ncclAllReduce", "collective", stream=9, step=0)
    made = recording([work, talk], steps=[step(0, 0, 100 * US)])
    # 20 of 30 us are exposed: 100 -> 80 us of wall time.
    assert gains(overlap.find, made) == pytest.approx((1.0, 100 / 80))
    hidden = recording([kernel(0, 90 * US, "gemm", "matmul", step=0), talk], steps=[step(0, 0, 100 * US)])
    assert run(overlap.find, hidden) is None


def test_overlap_is_answered_by_what_talks() -> None:
    work, talk = kernel(0, 40 * US, "gemm", "matmul"), kernel(30 * US, 30 * US, "ncclAllReduce", "collective", stream=9)

    def do(*rows: dict[str, Any], ops: list[dict[str, Any]] | None = None) -> str:
        found = run(overlap.find, recording([work, *rows], ops or []))
        assert found is not None
        return found.do

    assert do(talk) == overlap.SERVING
    assert do(talk, ops=[operator(0, 0, 1, "MulBackward0")]) == overlap.TRAINING
    assert do(talk, kernel(70 * US, 5 * US, "adam", "optimizer")) == overlap.TRAINING
    assert do(talk | {"name": "ncclDevKernel_SendRecv"}) == overlap.EXCHANGE


@pytest.mark.parametrize("seed", range(4))
def test_few_findings_that_pay_in_order(seed: int) -> None:
    frame = advice(random_recording(seed), Options())
    assert 0 < len(frame) <= MOST
    assert frame["wall_speedup"].is_monotonic_decreasing
    best = frame[["device_speedup", "wall_speedup"]].max(axis=1)
    assert (best >= 1.02).all() and not frame.isna().any().any()
    assert all(math.isfinite(value) for value in best)
    assert set(frame["of"]) == {"wall: step time; device: kernel time"}


def test_nothing_of_nothing() -> None:
    assert advice(recording(), Options()).empty
    quiet = recording(back_to_back([("g", "matmul", 100)]))
    assert findings(quiet, Options()) == []


NSYS = "../nsys/h100_2gpu_1s_2026.sqlite"
FIRES = {
    NSYS: {"copies"},
    "a100_nccl_meta_2024.json.gz": {"launches", "layouts", "overlap"},
    "h100_qwen_decode.json.gz": {"rotary", "norms"},
    "h100_owlv2.json.gz": {"loading", "scores"},
    "v100dgx_resnet50_2021.json.gz": {"loading", "launches", "pointwise"},
    "rtx2080ti_resnet_extid_is_corr.json.gz": {"loading"},
}
SILENT = {
    NSYS: {"loading", "launches"},
    "a100_nccl_meta_2024.json.gz": {"loading", "norms", "rotary", "scores"},
    "h100_qwen_decode.json.gz": {"loading", "scores", "layouts", "overlap", "optimizers"},
    "h100_owlv2.json.gz": {"syncs", "layouts", "overlap", "optimizers"},
    "v100dgx_resnet50_2021.json.gz": {"overlap", "rotary"},
    "rtx2080ti_resnet_extid_is_corr.json.gz": {"overlap", "rotary"},
}


@cache
def prepared(path: Path) -> Recording:
    return prepare(read(path))


@pytest.mark.parametrize("name", FIRES)
def test_real_recordings(traces: Path, name: str) -> None:
    case = Case(prepared(traces / "kineto" / name), Options())
    found = {rule.__module__.rpartition(".")[2]: rule(case) for rule in RULES}
    fired = {what for what, finding in found.items() if finding is not None and finding.pays}
    assert fired >= FIRES[name]
    assert fired.isdisjoint(SILENT[name])


def test_a_replayed_decode_needs_no_advice_on_launches(traces: Path) -> None:
    frame = advice(prepared(traces / "kineto" / "mi3xx_vllm_hipgraph_decode.json.gz"), Options())
    assert "The device waits for launches" not in set(frame["finding"])
