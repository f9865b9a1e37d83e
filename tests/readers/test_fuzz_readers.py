"""Damaged recordings: whatever is cut off, flipped, doubled or mixed in, a reader gives tables that obey or one clear line.

Seeded and bounded. ``KERNELSCOPE_SOAK=1`` tries many more.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from profilers import readers
from profilers.readers.errors import ReadError
from profilers.tables import SCHEMAS

CASES = 3_000 if os.environ.get("KERNELSCOPE_SOAK") == "1" else 30

TOKENS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"\xff",
    b"\0",
    b"\\",
    b"\n",
    b'""',
]
TOKENS += [str(number).encode() for number in (2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30, 0.1)]


def kineto() -> bytes:
    rows = []
    for i in range(40):
        at = 1_700_000_000_000_000 + i * 100
        rows += [
            {"ph": "X", "cat": "cpu_op", "name": f"aten::op{i % 5}", "pid": 1, "tid": 1 + i % 2, "ts": at, "dur": 50.5}
            | {"args": {"External id": i, "Input Dims": [[2, 3], []], "Sequence number": i}},
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 1,
                "tid": 1 + i % 2,
                "ts": at + 5,
                "dur": 3,
            }
            | {"args": {"correlation": i + 1}},
            {
                "ph": "X",
                "cat": "kernel",
                "name": f"void gemm<{i % 3}>(float*)",
                "pid": 0,
                "tid": 7,
                "ts": at + 20,
                "dur": 30.25,
            }
            | {"args": {"device": 0, "stream": 7, "correlation": i + 1, "grid": [4, 2, 1], "block": [64, 1, 1]}},
        ]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "GPU", "numSms": 8}],
        "distributedInfo": {"rank": 0},
    }
    return json.dumps({**head, "traceEvents": rows}).encode()


def halves() -> bytes:
    """The same with every second duration as a begin and an end, in the order of time."""
    whole = json.loads(kineto())
    rows = []
    for i, row in enumerate(whole["traceEvents"]):
        if i % 2:
            rows.append(row)
        else:
            length = row.pop("dur")
            rows += [row | {"ph": "B"}, {"ph": "E", "pid": row["pid"], "tid": row["tid"], "ts": row["ts"] + length}]
    whole["traceEvents"] = sorted(rows, key=lambda row: row["ts"])
    return json.dumps(whole).encode()


def layers() -> bytes:
    tensor = {"Dimensions": [1, 8, 4, 4], "Format/Datatype": "Half"}
    told = [
        {"Name": f"layer{i}", "LayerType": "CaskConvolution", "Inputs": [tensor], "Outputs": [tensor]}
        | {"Kernel": [3, 3], "OutMaps": 8, "Groups": 1, "TacticName": "sm80_xmma_fprop"}
        for i in range(8)
    ]
    runs = [
        {"start_ns": 10**18 + i * 10**6, "wall_ns": 900_000, "layers": [[f"layer{k}", 0.0625] for k in range(9)]}
        for i in range(8)
    ]
    return json.dumps({"tensorrt_layers": 1, "version": "10.0", "layers": told, "runs": runs}).encode()


def packed() -> bytes:
    return gzip.compress(kineto(), mtime=0)


def ncu() -> bytes:
    names = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "Device", "gpu__time_duration.sum"]
    names += ["sm__throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes_read.sum", "dram__bytes_write.sum"]
    rows = [names, [""] * 6 + ["us", "%", "Kbyte", "Kbyte"]]
    rows += [
        [str(i), "9", f"k<{i % 3}>(int)", "(32, 1, 1)", "(4, 1, 1)", "0", f"1,{i:03}.5", "55.5", "1.5", "2"]
        for i in range(40)
    ]
    return b"==PROF== Connected\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows).encode()


def details() -> bytes:
    names = [
        "ID",
        "Process ID",
        "Kernel Name",
        "Block Size",
        "Grid Size",
        "Section Name",
        "Metric Name",
        "Metric Unit",
        "Metric Value",
    ]
    light = "GPU Speed Of Light Throughput"
    rows = [names]
    for i in range(20):
        fixed = [str(i), "9", f"k{i % 3}", "(32, 1, 1)", "(4, 1, 1)", light]
        rows += [
            [*fixed, "Duration", "us", "1.5"],
            [*fixed, "DRAM Throughput", "%", "33.3"],
            [*fixed, "Memory Throughput", "%", "1"],
        ]
    return "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows).encode()


def nsys(folder: Path) -> bytes:
    path = folder / "whole.sqlite"
    with sqlite3.connect(path) as made:
        made.executescript(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName,"
            " gridX, gridY, gridZ, blockX, blockY, blockZ);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);"
            "CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid);"
            "CREATE TABLE TARGET_INFO_GPU (id, name, smCount, totalMemory);"
            "CREATE TABLE META_DATA_EXPORT (name, value);"
            "INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000');"
            "INSERT INTO TARGET_INFO_GPU VALUES (0, 'GPU', 8, 100);"
        )
        for i in range(60):
            at = i * 1_000
            made.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,0,7,?,16777216,1,4,1,1,32,1,1)",
                (at + 50, at + 90, i),
            )
            made.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,0,7,?,16777216,64,1)", (at + 91, at + 95, i + 100)
            )
            made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,16777217,?,2)", (at, at + 9, i))
            made.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?,?,59,?,16777217)", (at - 5, at + 20, f"aten::op{i % 4}, op_id = {i}")
            )
            made.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,59,?,16777217)", (at - 6, at + 900, f"step {i}"))
    made.close()
    return path.read_bytes()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to three hurts: cut, flip, delete, double, insert."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out) + 1)
        size = rng.choice((1, 2, 8, 64, 700))
        match rng.randrange(6):
            case 0:
                del out[at:]
            case 1:
                for place in range(at, min(at + rng.randint(1, 4), len(out))):
                    out[place] = rng.randrange(256)
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = out[at : at + size]
            case 4:
                out[at : at + rng.choice((0, 1, 3))] = rng.choice(TOKENS)
            case 5:
                other = rng.randrange(len(out) + 1)
                out[at : at + size] = out[other : other + size]
        if not out:
            break
    return bytes(out)


def holds(path: Path) -> bool:
    """Reads it. True where tables came of it, which then obey; False where it was refused in one line."""
    try:
        recording = readers.read(path)
    except ReadError as error:
        assert "\n" not in str(error) and str(error)
        return False
    for name in ("operators", "kernels", "steps", "runtime"):
        frame = getattr(recording, name)
        assert SCHEMAS[name].problems(frame) == []
    kernels, operators = recording.kernels, recording.operators
    believed = kernels[kernels["flag"] == ""]
    assert (believed["dur_ns"] >= 0).all()
    assert (kernels["op_id"] < len(operators)).all() and (operators["parent_id"] < len(operators)).all()
    assert (operators["self_ns"] >= 0).all() and (operators["self_ns"] <= operators["dur_ns"].clip(lower=0)).all()
    assert all(note.count >= 0 and note.text for note in recording.notes)
    return True


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("make", "least"),
    [(kineto, 0.9), (halves, 0.9), (layers, 0.03), (packed, 0.1), (ncu, 0.9), (details, 0.9), (nsys, 0.3)],
    ids=["kineto", "halves", "layers", "packed", "ncu", "details", "nsys"],
)
def test_damaged_recordings(tmp_path: Path, make: Callable[..., bytes], least: float) -> None:
    """``least``: the share of hurt files that must still be read (a cut in the head of a packed file leaves nothing)."""
    whole = make(tmp_path) if make is nsys else make()
    path = tmp_path / "recording"
    path.write_bytes(whole)
    assert holds(path)
    read = 0
    for seed in range(CASES):
        data = damaged(whole, random.Random(f"{make.__name__} {seed}"))
        path.write_bytes(data)
        try:
            read += holds(path)
        except Exception as error:
            raise AssertionError(f"{make.__name__}, seed {seed}: {type(error).__name__}: {error}") from error
    assert read >= CASES * least


ODD = [None, -1, 0, 2**31, 2**62, 2**63 - 1, -(2**63), 1e300, "text", b"\xff\x00", "", "9" * 30]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_odd_values_in_an_export(tmp_path: Path) -> None:
    """Whole files whose cells hold what they should not."""
    whole = nsys(tmp_path)
    path = tmp_path / "recording"
    for seed in range(CASES):
        rng = random.Random(seed)
        path.write_bytes(whole)
        with sqlite3.connect(path) as made:
            tables = [name for (name,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for _ in range(rng.randint(1, 12)):
                table = rng.choice(tables)
                columns = [row[1] for row in made.execute(f"PRAGMA table_info({table})")]
                column = rng.choice(columns)
                some = "" if rng.random() < 0.2 else f"WHERE rowid % {rng.randint(2, 9)} = 0"
                try:
                    made.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ? {some}', (rng.choice(ODD),))
                except sqlite3.IntegrityError:
                    pass
        made.close()
        try:
            assert holds(path)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
