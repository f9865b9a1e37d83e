"""Per-rank rows: who works longest, who waits, and that the parts add up to the step."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tables_maker import US, kernel, operator, random_recording, recording, step  # type: ignore[import-not-found]

from profilers.analysis.options import Options
from profilers.analysis.prepare import prepare
from profilers.analysis.ranks import ranks
from profilers.readers import read
from profilers.tables import Device

DEVICES = (Device("rank0/cuda:0", "a", rank=0), Device("rank1/cuda:1", "b", rank=1))


def two_ranks(second_work_us: int):
    """Steps of 100 us. Rank 0 works 20 us and is in the collective from 10 to 90; rank 1 works as said, from 0 on, and is
    in the collective for the rest up to 90, five of it hidden behind work."""
    kernels, operators, steps = [], [], []
    for rank, (work, talk_from) in enumerate(((20, 10), (second_work_us, second_work_us - 5))):
        for number in range(2):
            at, op = number * 100 * US, 10 * rank + number
            device = DEVICES[rank].id
            operators.append({**operator(op, at, US), "thread_id": rank + 1})
            steps.append({**step(op, at, 100 * US), "thread_id": rank + 1})
            kernels.append(kernel(at, work * US, "gemm", "matmul", device=device, op_id=op, step=op))
            kernels.append(
                kernel(
                    at + talk_from * US,
                    (90 - talk_from) * US,
                    "ncclAllReduce",
                    "collective",
                    device=device,
                    stream=8,
                    op_id=op,
                )
            )
    return recording(kernels, operators, steps, devices=DEVICES)


def test_the_rank_with_most_work_is_the_slowest() -> None:
    frame = ranks(two_ranks(70), Options()).set_index("device")
    fast, slow = frame.loc["rank0/cuda:0"], frame.loc["rank1/cuda:1"]
    assert (fast.steps, fast.step_us, fast.work_us, fast.exposed_us, fast.idle_us) == (2, 100, 20, 70, 10)
    assert (slow.steps, slow.step_us, slow.work_us, slow.exposed_us, slow.idle_us) == (2, 100, 70, 20, 10)
    assert (fast.communication_us, slow.communication_us) == (80, 25)
    assert (fast.exposed_pct, slow.exposed_pct) == (70, 20)
    assert (fast.behind_us, slow.behind_us) == (0, 50)
    assert (fast.slowest, slow.slowest) == ("", "slowest")


def test_equal_ranks_and_a_single_device_have_no_slowest() -> None:
    frame = ranks(two_ranks(20), Options())
    assert frame["slowest"].tolist() == ["", ""]
    alone = ranks(recording([kernel(0, 5 * US)], steps=[step(0, 0, 10 * US)]), Options())
    assert alone[["device", "steps", "step_us", "work_us", "slowest"]].values.tolist() == [["cuda:0", 1, 10, 5, ""]]
    assert len(ranks(recording(), Options())) == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_add_up_to_the_step(seed: int) -> None:
    frame = ranks(random_recording(seed), Options())
    assert len(frame) == 2
    parts = frame["work_us"] + frame["exposed_us"] + frame["idle_us"]
    assert parts.to_numpy() == pytest.approx(frame["step_us"].to_numpy())
    assert (frame["exposed_us"] <= frame["communication_us"] + 1e-9).all()
    assert (frame[["work_us", "exposed_us", "idle_us"]] >= 0).all().all()


def test_two_ranks_of_a_real_job_against_the_raw_events(traces: Path) -> None:
    paths = [traces / "kineto" / f"dlrm128_rank{rank}_2023.json.gz" for rank in range(2)]
    frame = ranks(prepare(read(paths)), Options()).set_index("device")
    assert frame["slowest"].tolist() == ["", "slowest"]
    for rank, path in enumerate(paths):
        row = frame.loc[f"rank{rank}/cuda:{rank}"]
        work, busy, wall, steps = by_hand(path)
        assert row.steps == steps
        assert row.step_us * steps == pytest.approx(wall, rel=1e-6)
        assert row.work_us * steps == pytest.approx(work, rel=1e-4)
        assert row.exposed_us * steps == pytest.approx(busy - work, rel=1e-4)


def by_hand(path: Path) -> tuple[float, float, float, int]:
    """Microseconds in the profiler's steps in which anything but NCCL, in which anything at all ran; all; and how many."""
    with gzip.open(path) as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    steps = [
        (e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].startswith("ProfilerStep") and "gpu" not in e["cat"]
    ]
    found = [e for e in events if e["cat"].lower() in ("kernel", "gpu_memcpy", "gpu_memset")]
    spans = {
        kind: [(e["ts"], e["ts"] + e["dur"]) for e in found if kind == "busy" or "nccl" not in e["name"].lower()]
        for kind in ("work", "busy")
    }
    return (
        *(sum(inside(spans[kind], *step) for step in steps) for kind in spans),
        sum(b - a for a, b in steps),
        len(steps),
    )  # type: ignore[return-value]


def inside(spans: list[tuple[float, float]], low: float, high: float) -> float:
    """How much of ``low`` to ``high`` the spans cover."""
    covered, reach = 0.0, low
    for begin, end in sorted(spans):
        begin, end = max(begin, reach), min(end, high)
        if end > begin:
            covered, reach = covered + end - begin, end
    return covered
