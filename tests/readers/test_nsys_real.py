"""Nsight Systems: real exports, where they are at hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from nsys_maker import codes, obeys

from profilers.readers.nsys import read


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
