"""Nsight Systems: databases of strangers, damaged ones, and others that are none of its."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from nsys_maker import PID_A, PID_B, SECRET, STRINGS, call, codes, everything, kernel, make

from profilers.readers.errors import ReadError
from profilers.readers.nsys import read
from profilers.readers.nsys_db import Database


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
