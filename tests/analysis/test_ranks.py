"""Per-rank rows: who works longest, who waits, and that the parts add up to the step."""

from __future__ import annotations

import pytest
from tables_maker import US, kernel, operator, random_recording, recording, step  # type: ignore[import-not-found]

from profilers.analysis.options import Options
from profilers.analysis.ranks import ranks
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
