"""Nsight Systems exports: real ones where they are at hand, and small ones made here, one per trap."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profilers.readers.errors import ReadError
from profilers.readers.nsys import read
from profilers.readers.nsys_db import Database
from profilers.tables import SCHEMAS, Recording

PID_A, PID_B = (1 << 48) | (111 << 24), (1 << 48) | (112 << 24)
SECRET = "HF_TOKEN=hf_do_not_show"

Rows = list[dict[str, Any]]


def make(path: Path, **tables: Rows) -> Path:
    """A database whose tables have the columns of their first row."""
    with sqlite3.connect(path) as database:
        for name, rows in tables.items():
            columns = list(rows[0])
            database.execute(f'CREATE TABLE "{name}" ({", ".join(f"{chr(34)}{c}{chr(34)}" for c in columns)})')
            marks = ", ".join("?" * len(columns))
            database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [tuple(row.values()) for row in rows])
    database.close()
    return path


def kernel(start: int, end: int, correlation: int, pid: int = PID_A, name: int = 1, **more: Any) -> dict[str, Any]:
    row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": correlation}
    row |= {"globalPid": pid, "demangledName": name, "shortName": 2}
    row |= {"gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
    return row | more


def call(start: int, end: int, correlation: int, pid: int = PID_A, name: int = 10) -> dict[str, Any]:
    return {"start": start, "end": end, "globalTid": pid + 5, "correlationId": correlation, "nameId": name}


def span(start: int, end: int | None, text: str, pid: int = PID_A, kind: int = 59) -> dict[str, Any]:
    return {"start": start, "end": end, "eventType": kind, "text": text, "textId": None, "globalTid": pid + 5}


STRINGS: Rows = [
    {"id": 1, "value": "void gemm<float>(float*)"},
    {"id": 2, "value": "gemm"},
    {"id": 10, "value": "cudaLaunchKernel_v7000"},
    {"id": 11, "value": "cudaGraphLaunch_v10000"},
    {"id": 99, "value": SECRET},
]


def obeys(recording: Recording) -> None:
    for name in ("operators", "kernels", "steps", "runtime"):
        assert SCHEMAS[name].problems(getattr(recording, name)) == []


def codes(recording: Recording) -> dict[str, int]:
    return {note.code: note.count for note in recording.notes}


def everything(recording: Recording) -> str:
    frames = (recording.operators, recording.kernels, recording.steps, recording.runtime)
    parts = [frame.to_csv() for frame in frames]
    parts += [
        " ".join(str(c) for c in frame[name].cat.categories)
        for frame in frames
        for name in frame.select_dtypes("category")
    ]
    return "\n".join([*parts, repr(recording.devices), repr(recording.origin), repr(recording.notes)])


# Real exports


def test_two_gpus_2026(traces: Path) -> None:
    recording = read(traces / "nsys" / "h100_2gpu_1s_2026.sqlite")
    obeys(recording)
    kernels = recording.kernels[recording.kernels["kind"] == "kernel"]
    assert kernels.groupby("device", observed=True).size().to_dict() == {"cuda:0": 1721, "cuda:1": 1721}
    assert kernels.groupby("device", observed=True)["stream"].unique().map(list).to_dict() == {
        "cuda:0": [7],
        "cuda:1": [15],
    }
    # 1,799 ids occur in no call at all; 11 more only in a call of the other process.
    assert codes(recording)["unlaunched_kernels"] == 1810
    assert len(recording.operators) == 16_782
    assert not recording.operators["name"].astype(str).str.contains("op_id").any()
    assert recording.operators["thread_id"].nunique() == 2
    assert (recording.kernels["kind"] == "memcpy").sum() == 904


def test_sums_agree_with_sql(traces: Path) -> None:
    path = traces / "nsys" / "h100_2gpu_1s_2026.sqlite"
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    want = database.execute(
        'SELECT SUM("end" - start), SUM(gridX * gridY * gridZ * blockX * blockY * blockZ) '
        "FROM CUPTI_ACTIVITY_KIND_KERNEL"
    ).fetchone()
    names = dict(
        database.execute(
            "SELECT s.value, COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"
        )
    )
    database.close()
    recording = read(path)
    kernels = recording.kernels[recording.kernels["kind"] == "kernel"]
    assert (int(kernels["dur_ns"].sum()), int(kernels["threads"].sum())) == want
    assert kernels["name"].astype(str).value_counts().to_dict() == names


def test_two_processes_whose_ids_collide(traces: Path) -> None:
    recording = read(traces / "nsys" / "mfu_2gpu_before.sqlite")
    obeys(recording)
    kernels = recording.kernels[recording.kernels["kind"] == "kernel"]
    assert len(kernels) == 4010
    assert int((kernels["launch_ns"] >= 0).sum()) == 3986
    assert codes(recording)["unlaunched_kernels"] == 24
    # The launch is on a thread of the process whose device it is: each process drives one GPU here.
    with_op = kernels[kernels["op_id"] >= 0]
    threads = recording.operators["thread_id"].to_numpy()[with_op["op_id"].to_numpy()]
    owners = with_op.assign(owner=threads & ~0xFFFFFF).groupby("device", observed=True)["owner"].nunique()
    assert owners.to_dict() == {"cuda:0": 1, "cuda:1": 1}
    gemms = with_op[with_op["name"].astype(str).str.startswith("nvjet")]
    launchers = recording.operators["name"].astype(str).to_numpy()[gemms["op_id"].to_numpy()]
    assert len(gemms) and set(launchers) <= {"aten::addmm", "aten::mm", "aten::bmm"}


def test_thirteen_columns_and_no_process_id(traces: Path) -> None:
    recording = read(traces / "nsys" / "healthy_1pct.sqlite")
    obeys(recording)
    assert len(recording.kernels) == 400
    assert (recording.kernels["launch_ns"] >= 0).all()
    assert recording.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert recording.notes == ()
    # One call came before the export's own zero; times here count from it.
    assert int(recording.runtime["start_ns"].min()) == 0
    assert recording.origin.extra["session_ns"] == "-3000"


def test_nothing_traced_is_explained(traces: Path) -> None:
    recording = read(traces / "nsys" / "rtxa2000_no_cuda_tables.sqlite")
    obeys(recording)
    assert len(recording.kernels) == 0
    assert codes(recording) == {"no_device_activity": 1}
    assert recording.devices[0].name == "NVIDIA RTX A2000 12GB"
    assert recording.devices[0].compute_capability == "8.6"


def test_the_file_is_not_touched(traces: Path) -> None:
    folder = traces / "nsys"
    before = sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir())
    read(folder / "healthy_1pct.sqlite")
    assert sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()) == before


# Small ones, one per trap


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


def test_the_environment_is_out_of_reach(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 3)],
        TARGET_INFO_SYSTEM_ENV=[{"name": "EnvVars", "value": SECRET}],
        META_DATA_CAPTURE=[{"name": "COMMAND_LINE", "value": SECRET}],
        PROCESSES=[{"globalPid": PID_A, "pid": 111, "name": SECRET}],
    )
    assert SECRET not in everything(read(path))
    with Database(path) as database:
        assert database.table("TARGET_INFO_SYSTEM_ENV") is None
        for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "PROCESSES"):
            with pytest.raises(sqlite3.DatabaseError, match="prohibited"):
                database._connection.execute(f"SELECT * FROM {table}")
        for statement in ("ATTACH ':memory:' AS x", "CREATE TABLE x (y)", "SELECT load_extension('x')"):
            with pytest.raises(sqlite3.Error):
                database._connection.execute(statement)


def test_a_view_in_the_file_reaches_nothing(tmp_path: Path) -> None:
    path = make(tmp_path / "a.sqlite", StringIds=STRINGS, TARGET_INFO_SYSTEM_ENV=[{"name": "EnvVars", "value": SECRET}])
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE VIEW NVTX_EVENTS AS SELECT 1 AS start, 5 AS end, value AS text FROM TARGET_INFO_SYSTEM_ENV"
        )
    database.close()
    assert SECRET not in everything(read(path))


def test_kernels_without_process_ids_of_several_processes(tmp_path: Path) -> None:
    row = {key: value for key, value in kernel(100, 200, 1).items() if key != "globalPid"}
    path = make(
        tmp_path / "a.sqlite",
        StringIds=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=[row],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(10, 20, 1), call(15, 20, 2, PID_B)],
    )
    recording = read(path)
    assert recording.kernels["launch_ns"].tolist() == [0]
    assert codes(recording) == {"no_process_ids": 1}


def test_calls_but_no_kernel(tmp_path: Path) -> None:
    recording = read(
        make(tmp_path / "a.sqlite", StringIds=STRINGS, CUPTI_ACTIVITY_KIND_RUNTIME=[call(10, 20, 1), call(30, 40, 2)])
    )
    assert codes(recording) == {"no_device_activity": 1}
    assert "2 CUDA calls but no kernel" in recording.notes[0].text


def test_a_file_cut_short_keeps_what_can_be_read(tmp_path: Path) -> None:
    rows = [kernel(10 * i, 10 * i + 5, i + 1) for i in range(20_000)]
    path = make(tmp_path / "a.sqlite", StringIds=STRINGS, CUPTI_ACTIVITY_KIND_KERNEL=rows)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    try:
        recording = read(path)
    except ReadError as error:
        assert "export it again" in str(error)
    else:
        assert 0 < len(recording.kernels) < 20_000
        assert codes(recording)["damaged_table"] >= 1


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("rocpd_kernel_dispatch", "rocprofv3"),
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "nvprof"),
        ("moz_places", "not an export of Nsight Systems"),
    ],
)
def test_other_databases_are_named(tmp_path: Path, table: str, says: str) -> None:
    with pytest.raises(ReadError, match=says):
        read(make(tmp_path / "a.sqlite", **{table: [{"a": 1}]}))


def test_no_database_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 500)
    with pytest.raises(ReadError, match="not a readable SQLite file"):
        read(path)


def test_a_log_beside_the_file_is_mentioned(tmp_path: Path) -> None:
    path = make(tmp_path / "a.sqlite", StringIds=STRINGS, CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 3)])
    (tmp_path / "a.sqlite-wal").write_bytes(b"x")
    assert "unfinished_file" in codes(read(path))


def test_progress_ends_at_one_and_may_stop_the_reader(tmp_path: Path) -> None:
    path = make(tmp_path / "a?#%.sqlite", StringIds=STRINGS, CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 3)])
    seen: list[float] = []
    read(path, progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 1.0

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(path, progress=stop)
