"""Several files as one job: which rank is which, no id that collides, and clocks only where they are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profilers import readers
from profilers.readers.errors import ReadError
from profilers.tables import SCHEMAS, Recording

EPOCH_US = 1_700_000_000_000_000
CSV = (
    '"ID","Process ID","Kernel Name","Block Size","Grid Size","Device","Metric Name","Metric Unit","Metric Value"\n'
    '"0","9","gemm","(32, 1, 1)","(4, 1, 1)","0","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","77"\n'
    '"0","9","gemm","(32, 1, 1)","(4, 1, 1)","0","gpu__time_duration.sum","us","3"\n'
)


def trace(path: Path, rank: int | None = None, begin_us: float = EPOCH_US, kernel_us: float = 5.0, **more: Any) -> Path:
    """A step with an operator, its launch and its kernel; ids are the same in every file."""

    def event(cat: str, name: str, at: float, dur: float, tid: int, **args: Any) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": 1,
            "tid": tid,
            "ts": begin_us + at,
            "dur": dur,
            "args": args,
        }

    events = [
        event("user_annotation", "ProfilerStep#3", 0, 100, 1),
        event("cpu_op", "aten::linear", 10, 30, 1),
        event("cpu_op", "aten::mm", 15, 20, 1),
        event("cuda_runtime", "cudaLaunchKernel", 20, 2, 1, correlation=7),
        event("kernel", "gemm", 40, kernel_us, 7, correlation=7, device=0, stream=7, grid=[4, 1, 1], block=[32, 1, 1]),
    ]
    data = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100"}], "traceEvents": events, **more}
    if rank is not None:
        data["distributedInfo"] = {"rank": rank, "world_size": 2}
    path.write_text(json.dumps(data))
    return path


def codes(recording: Recording) -> dict[str, int]:
    return {note.code: note.count for note in recording.notes}


def coherent(recording: Recording) -> None:
    """Every link still leads where it led."""
    for name in ("operators", "kernels", "steps", "runtime"):
        assert SCHEMAS[name].problems(getattr(recording, name)) == []
    operators, kernels, runtime = recording.operators, recording.kernels, recording.runtime
    assert operators["op_id"].tolist() == list(range(len(operators)))
    names = operators["name"].astype(str).to_numpy()
    assert set(names[kernels["op_id"]]) == {"aten::mm"}
    assert set(names[operators["parent_id"][operators["parent_id"] >= 0]]) == {"aten::linear"}
    joined = kernels.merge(runtime, on="correlation")
    assert len(joined) == len(kernels)
    np.testing.assert_array_equal(joined["start_ns_y"], kernels["launch_ns"])
    threads = operators["thread_id"].to_numpy()[kernels["op_id"]]
    np.testing.assert_array_equal(joined["thread_id"], threads)
    assert len(set(threads)) == len(kernels)
    steps = recording.steps.set_index("step")
    assert steps.index.is_unique
    np.testing.assert_array_equal(steps.loc[kernels["step"], "thread_id"], threads)


def test_real_ranks(traces: Path) -> None:
    folder = traces / "kineto"
    parts = [readers.read(folder / f"dlrm128_rank{rank}_2023.json.gz") for rank in (0, 1)]
    # Given the wrong way round: the recordings know better.
    whole = readers.read([folder / "dlrm128_rank1_2023.json.gz", folder / "dlrm128_rank0_2023.json.gz"])
    assert list(whole.kernels["device"].cat.categories) == ["rank0/cuda:0", "rank1/cuda:1"]
    assert len(whole.operators) == sum(len(part.operators) for part in parts)
    assert whole.kernels["dur_ns"].sum() == sum(part.kernels["dur_ns"].sum() for part in parts)
    assert whole.origin.world_size == 128
    assert [device.rank for device in whole.devices] == [0, 1]
    assert whole.kernels["correlation"].nunique() == sum(part.kernels["correlation"].nunique() for part in parts)


def test_ranks_from_the_recordings(tmp_path: Path) -> None:
    paths = [trace(tmp_path / "a.json", rank=5), trace(tmp_path / "b.json", rank=2, begin_us=EPOCH_US + 50)]
    recording = readers.read(paths)
    coherent(recording)
    assert recording.kernels["device"].tolist() == ["rank2/cuda:0", "rank5/cuda:0"]
    assert [(device.id, device.name, device.rank) for device in recording.devices] == [
        ("rank2/cuda:0", "H100", 2),
        ("rank5/cuda:0", "H100", 5),
    ]
    # One clock: the second began 50 us after the first.
    assert recording.kernels["start_ns"].tolist() == [90_000, 40_000]
    assert codes(recording) == {"ranks_aligned": 1}
    assert recording.origin.base_ns == EPOCH_US * 1000
    assert recording.origin.path == "a.json, b.json"
    assert recording.origin.extra["ranks"] == "2,5"


@pytest.mark.parametrize(
    ("names", "ranks", "code"),
    [
        (["rank-1.json", "rank-0.json"], [0, 1], "ranks_by_name"),
        (["host.worker3.pt.trace.json", "host.worker12.pt.trace.json"], [3, 12], "ranks_by_name"),
        (["rank_7.json", "RANK8.json"], [7, 8], "ranks_by_name"),
        (["first.json", "second.json"], [0, 1], "ranks_by_order"),
        (["rank1.json", "other.json"], [0, 1], "ranks_by_order"),
        (["crank1.json", "crank2.json"], [0, 1], "ranks_by_order"),
        (["rank1_a.json", "rank1_b.json"], [0, 1], "ranks_by_order"),
    ],
)
def test_ranks_from_names_else_from_order(tmp_path: Path, names: list[str], ranks: list[int], code: str) -> None:
    recording = readers.read([trace(tmp_path / name) for name in names])
    coherent(recording)
    assert [device.rank for device in recording.devices] == ranks
    assert codes(recording)[code] == 1


def test_two_files_that_claim_one_rank_are_told_apart(tmp_path: Path) -> None:
    recording = readers.read([trace(tmp_path / "a.json", rank=3), trace(tmp_path / "b.json", rank=3)])
    coherent(recording)
    assert [device.rank for device in recording.devices] == [0, 1]
    assert codes(recording)["ranks_by_order"] == 1


@pytest.mark.parametrize("begins", [(500.0, 900.0), (EPOCH_US, EPOCH_US + 3_600e6)])
def test_clocks_that_do_not_meet_are_not_aligned(tmp_path: Path, begins: tuple[float, float]) -> None:
    paths = [trace(tmp_path / f"rank{i}.json", begin_us=begin) for i, begin in enumerate(begins)]
    recording = readers.read(paths)
    coherent(recording)
    assert recording.kernels["start_ns"].tolist() == [40_000, 40_000]
    assert codes(recording)["ranks_not_aligned"] == 1
    assert recording.origin.base_ns is None


def test_notes_say_whose_they_are(tmp_path: Path) -> None:
    broken = trace(tmp_path / "rank1.json")
    broken.write_text(broken.read_text()[:-30])
    recording = readers.read([trace(tmp_path / "rank0.json"), broken])
    texts = [note.text for note in recording.notes]
    assert any(text.startswith("rank 1: ") for text in texts)
    assert not any(text.startswith("rank 0: ") for text in texts)


def test_a_folder_with_other_things_in_it(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json")
    trace(tmp_path / "rank1.json")
    (tmp_path / "README.md").write_text("# what this is\n")
    (tmp_path / ".hidden.json").write_text("x")
    (tmp_path / "sub").mkdir()
    recording = readers.read(tmp_path)
    coherent(recording)
    assert len(recording.kernels) == 2
    assert codes(recording)["passed_over"] == 1
    assert recording.origin.path == str(tmp_path)


def test_a_folder_with_one_recording_is_that_recording(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json")
    recording = readers.read(tmp_path)
    assert recording.kernels["device"].tolist() == ["cuda:0"]
    assert codes(recording) == {}


def test_counters_in_the_folder_go_to_the_kernels(tmp_path: Path) -> None:
    trace(tmp_path / "trace.json")
    (tmp_path / "counters.csv").write_text(CSV)
    recording = readers.read(tmp_path)
    coherent(recording)
    assert recording.kernels["sm_pct"].tolist() == [77]
    assert recording.kernels["dur_ns"].tolist() == [5_000]
    assert recording.kernels["source"].tolist() == ["ncu"]
    assert codes(recording) == {"ncu_matched": 1}


def test_pages_of_ncu_alone_follow_each_other(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(CSV)
    recording = readers.read(tmp_path)
    assert recording.kernels["start_ns"].tolist() == [0, 3_000]
    assert recording.kernels["device"].tolist() == ["cuda:0", "cuda:0"]
    assert codes(recording) == {"no_clock": 2}


def test_a_report_beside_its_export_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(CSV)
    (tmp_path / "run.ncu-rep").write_bytes(b"NVR\0" + bytes(20))
    recording = readers.read(tmp_path)
    assert len(recording.kernels) == 1
    assert codes(recording)["passed_over"] == 1


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="no recording among the 0 files"):
        readers.read(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(ReadError, match="among the 1 files in this folder; recordings in its 1 subfolders"):
        readers.read(tmp_path)
    good = trace(tmp_path / "a.json")
    with pytest.raises(ReadError, match="no known kind"):
        readers.read([good, tmp_path / "a.txt"])
    with pytest.raises(ReadError, match="twice"):
        readers.read([good, good])
    with pytest.raises(ReadError, match="a folder among files"):
        readers.read([good, tmp_path / "sub"])
    with pytest.raises(ReadError, match="no file"):
        readers.read([])


def test_progress_over_several_files(tmp_path: Path) -> None:
    seen: list[float] = []
    readers.read([trace(tmp_path / f"rank{i}.json") for i in range(3)], progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 1.0 and len(seen) > 3
