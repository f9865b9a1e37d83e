"""Nsight Systems: small exports made here, one per trap."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from nsys_maker import PID_A, PID_B, SECRET, STRINGS, call, codes, everything, kernel, make, obeys, span

from profilers.readers.nsys import read


def test_launch_and_operator_of_a_kernel(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=[
            kernel(2_000, 2_600, 1, registersPerThread=32, staticSharedMemory=16, dynamicSharedMemory=48)
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(1_050, 1_060, 1)],
        NVTX_EVENTS=[
            span(1_000, 1_100, "aten::linear, op_id = 7"),
            span(
                1_040,
                1_090,
                "aten::addmm, seq = 3, op_id = 8, sizes = [[8], [8, 128], [128, 64], []], input_op_ids = [(7, 0)]",
            ),
        ],
    )
    recording = read(path)
    obeys(recording)
    row = recording.kernels.iloc[0]
    assert row["name"] == "void gemm<float>(float*)"
    assert (row["grid"], row["block"], row["threads"]) == ("4x2x1", "128x1x1", 1024)
    assert (row["registers"], row["shared_bytes"]) == (32, 64)
    assert (row["start_ns"], row["dur_ns"], row["launch_ns"]) == (1_000, 600, 50)
    operators = recording.operators
    assert operators["name"].tolist() == ["aten::linear", "aten::addmm"]
    assert operators["parent_id"].tolist() == [-1, 0]
    assert operators["self_ns"].tolist() == [50, 50]
    assert operators["device_ns"].tolist() == [600, 600]
    assert operators["input_shapes"].tolist() == ["", "[[8],[8,128],[128,64],[]]"]
    assert row["op_id"] == 1
    assert recording.runtime["name"].tolist() == ["cudaLaunchKernel"]
    assert recording.runtime["kind"].tolist() == ["launch"]


def test_the_same_id_in_two_processes(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=[
            kernel(100, 200, 5),
            kernel(300, 400, 5, PID_B, deviceId=1),
            kernel(500, 600, 6, PID_B),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(10, 20, 5), call(250, 260, 5, PID_B), call(30, 40, 6)],
    )
    recording = read(path)
    assert len(recording.kernels) == 3
    assert recording.kernels["launch_ns"].tolist() == [0, 240, -1]
    assert recording.kernels["correlation"].nunique() == 3
    joined = recording.kernels.merge(recording.runtime, on="correlation", how="left")
    assert len(joined) == 3
    assert codes(recording) == {"unlaunched_kernels": 1}


def test_a_graph_replay_keeps_each_name_and_one_launch(tmp_path: Path) -> None:
    rows = [kernel(100 * i, 100 * i + 50, 9, name=1 + i % 2, graphNodeId=40 + i, graphId=3) for i in range(1, 5)]
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=rows,
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(10, 20, 9, name=11)],
    )
    kernels = read(path).kernels
    assert kernels["graph"].all() and len(kernels) == 4
    assert kernels["name"].tolist() == ["gemm", "void gemm<float>(float*)"] * 2
    assert kernels["launch_ns"].tolist() == [0] * 4


def test_graphs_recorded_whole_count_and_say_so(tmp_path: Path) -> None:
    row = {
        "start": 100,
        "end": 900,
        "deviceId": 0,
        "streamId": 7,
        "correlationId": 9,
        "globalPid": PID_A,
        "graphId": 1,
        "graphExecId": 1,
    }
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[row],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(10, 20, 9, name=11)],
    )
    recording = read(path)
    assert recording.kernels["dur_ns"].tolist() == [800]
    assert recording.kernels["graph"].tolist() == [True]
    assert codes(recording) == {"whole_graphs": 1}
    assert "--cuda-graph-trace=node" in recording.notes[0].text


def test_table_suffix_and_column_spelling(tmp_path: Path) -> None:
    old = {key.upper(): value for key, value in kernel(100, 200, 1).items()}
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 3)],
        CUPTI_ACTIVITY_KIND_KERNEL_V3=[old, {**old, "START": 300, "END": 350}],
        CUPTI_ACTIVITY_KIND_RUNTIME_V2=[call(10, 20, 1)],
        EXPORT_META_DATA=[
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2021.3.1"},
            {"name": "EXPORT_USER", "value": SECRET},
        ],
    )
    recording = read(path)
    assert recording.kernels["dur_ns"].tolist() == [100, 50]
    assert recording.origin.tool == "Nsight Systems 2021.3.1"
    assert SECRET not in everything(recording)


def test_an_empty_newer_table_does_not_hide_the_filled_one(tmp_path: Path) -> None:
    path = make(tmp_path / "a.sqlite", StringIds=STRINGS, CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 3)])
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V2 (start, end)")
    database.close()
    assert len(read(path).kernels) == 1


def test_processes_that_each_call_their_gpu_zero(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(100, 200, 1), kernel(300, 400, 1, PID_B)],
        TARGET_INFO_CUDA_DEVICE=[
            {"gpuId": 0, "cudaId": 0, "pid": 111, "uuid": ""},
            {"gpuId": 1, "cudaId": 0, "pid": 112, "uuid": ""},
        ],
        TARGET_INFO_GPU=[
            {"id": 0, "name": "A", "smCount": 8},
            {"id": 1, "name": "B", "smCount": 9},
            {"id": 2, "name": "C", "smCount": 9},
        ],
    )
    recording = read(path)
    assert recording.kernels["device"].tolist() == ["cuda:0", "cuda:1"]
    assert [(device.id, device.name, device.sm_count) for device in recording.devices] == [
        ("cuda:0", "A", 8),
        ("cuda:1", "B", 9),
    ]


def test_lengths_that_cannot_be_are_marked_and_left_out(tmp_path: Path) -> None:
    rows = [
        kernel(1_000, 2_000_000_000, 1),
        kernel(2_000, 3_000, 2),
        kernel(4_000, 3_000, 3),
        kernel(0, 0, 4),
        kernel(9_000, 2**62, 5, streamId=8),
    ]
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=rows,
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(900 + i, 901 + i, i) for i in range(1, 6)],
        NVTX_EVENTS=[span(800, 1_000, "aten::mm, op_id = 1")],
    )
    recording = read(path)
    marks = dict(zip(recording.kernels["correlation"], recording.kernels["flag"], strict=True))
    assert marks == {1: "overrun", 2: "", 3: "negative", 4: "zero_time", 5: "overflow"}
    assert recording.operators["device_ns"].tolist() == [1_000]
    assert {key: n for key, n in codes(recording).items() if key.startswith("flag_")} == dict.fromkeys(
        ("flag_overrun", "flag_negative", "flag_zero_time", "flag_overflow"), 1
    )
    unfinished = recording.kernels[recording.kernels["flag"] == "zero_time"].iloc[0]
    assert (unfinished["start_ns"], unfinished["dur_ns"]) == (-1, 0)


def test_copies_and_sets_are_named_as_torch_names_them(tmp_path: Path) -> None:
    base = {"start": 5, "end": 9, "deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": PID_A}
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_MEMCPY=[
            {**base, "bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2},
            {**base, "start": 6, "bytes": None, "copyKind": 77, "srcKind": None, "dstKind": 2},
        ],
        CUPTI_ACTIVITY_KIND_MEMSET=[{**base, "start": 7, "bytes": 64, "value": 0, "memKind": 2}],
    )
    kernels = read(path).kernels
    assert kernels["name"].tolist() == ["Memcpy HtoD (Pageable -> Device)", "Memcpy of unknown kind", "Memset (Device)"]
    assert kernels["kind"].tolist() == ["memcpy", "memcpy", "memset"]
    np.testing.assert_array_equal(kernels["bytes"].to_numpy(), [4096, np.nan, 64])


def test_steps_from_ranges(tmp_path: Path) -> None:
    ranges = [span(1_000 * i, 1_000 * i + 900, f"ProfilerStep#{i + 4}") for i in range(1, 4)]
    ranges += [span(1_000 * i + 10, 1_000 * i + 500, f"step {i}", PID_B) for i in range(1, 4)]
    ranges += [span(1_100, 1_200, "aten::mm, op_id = 1"), span(2_950, 2_960, "aten::add, op_id = 2")]
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        NVTX_EVENTS=ranges,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(2_100, 2_200, 1), kernel(3_990, 4_000, 2)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(1_150, 1_160, 1)],
    )
    recording = read(path)
    assert recording.steps["step"].tolist() == [5, 6, 7]
    assert recording.steps["dur_ns"].tolist() == [900] * 3
    assert recording.operators["step"].tolist() == [5, -1]
    # The first was launched in step 5 though it ran in step 6; the second has no launch and ran outside every step.
    assert recording.kernels["step"].tolist() == [5, -1]
    assert codes(recording)["other_steps"] == 3


@pytest.mark.parametrize(
    ("labels", "steps"),
    [
        (["step 1", "step 2"], [1, 2]),
        (["iteration_3", "iteration_9"], [3, 9]),
        (["train_step", "train_step"], [0, 1]),
        (["Iter: 7", "forward"], [7]),
        (["step 1", "step 1"], [0, 1]),
        (["stepwise", "steps of doom"], []),
        (["step 99999999999", "step 3"], [0, 1]),
    ],
)
def test_which_ranges_look_like_steps(tmp_path: Path, labels: list[str], steps: list[int]) -> None:
    ranges = [span(100 * i, 100 * i + 90, label) for i, label in enumerate(labels)]
    got = read(make(tmp_path / "a.sqlite", NVTX_EVENTS=ranges)).steps["step"].tolist()
    assert got == steps


def test_annotations_are_not_operators_unless_there_is_nothing_else(tmp_path: Path) -> None:
    mixed = [
        span(0, 100, "forward"),
        span(10, 20, "aten::mm, op_id = 1"),
        span(30, None, "aten::add, op_id = 2"),
        span(40, None, "mark", kind=34),
    ]
    recording = read(make(tmp_path / "a.sqlite", NVTX_EVENTS=mixed))
    assert recording.operators["name"].tolist() == ["aten::mm"]
    assert codes(recording) == {"open_ranges": 1, "other_ranges": 1, "no_device_activity": 1}
    engine = [span(0, 100, "layer1"), span(10, 20, "conv"), span(5, 50, "async", kind=60)]
    recording = read(make(tmp_path / "b.sqlite", NVTX_EVENTS=engine))
    assert recording.operators["name"].tolist() == ["layer1", "conv"]
    assert codes(recording) == {"nvtx_as_operators": 2, "other_ranges": 1, "no_device_activity": 1}


def test_labels_by_id(tmp_path: Path) -> None:
    rows = [{**span(0, 100, ""), "text": None, "textId": 50}, {**span(10, 20, ""), "text": None, "textId": 51}]
    strings = [*STRINGS, {"id": 50, "value": "aten::linear, op_id = 3"}]
    recording = read(make(tmp_path / "a.sqlite", NVTX_EVENTS=rows, StringIds=strings))
    assert recording.operators["name"].tolist() == ["aten::linear"]


def test_text_that_is_no_utf8_and_a_name_with_a_dump_behind_it(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 3, name=60), kernel(3, 4, 5, name=61)],
    )
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO StringIds VALUES (60, CAST(X'6B65726EFF656C' AS TEXT))")
        database.execute("INSERT INTO StringIds VALUES (61, ?)", (f"kernel\0{SECRET}",))
    database.close()
    recording = read(path)
    assert recording.kernels["name"].tolist() == ["kern\ufffdel", "kernel"]
    assert SECRET not in everything(recording)


def test_kernels_without_a_text_have_a_name_that_says_so(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 3, name=777), kernel(3, 4, 5, name=777, shortName=778)],
    )
    assert read(path).kernels["name"].tolist() == ["gemm", "(kernel without a name)"]
