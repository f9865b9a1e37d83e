"""What a file is, by content; what is said of those that cannot be read; and NVIDIA's tools as converters."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sqlite3
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from profilers import readers
from profilers.readers.errors import ReadError
from profilers.readers.sniff import sniff

EVENTS = [
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 10.0,
        "dur": 20.0,
        "args": {"External id": 1},
    },
    {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 1,
        "tid": 1,
        "ts": 15.0,
        "dur": 2.0,
        "args": {"correlation": 7},
    },
    {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm",
        "pid": 0,
        "tid": 7,
        "ts": 40.0,
        "dur": 5.0,
        "args": {"correlation": 7, "device": 0, "stream": 7},
    },
]
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}).encode()
NCU = (
    b'"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    b'"Section Name","Metric Name","Metric Unit","Metric Value"\n'
    b'"0","9","app","host","gemm(float*)","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","x","gpu__time_duration.sum","ns","1,500"\n'
)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def database(path: Path) -> Path:
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        made.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        made.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, demangledName)"
        )
        made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 30, 0, 7, 1, 1)")
    made.close()
    return path


def test_every_real_file(traces: Path) -> None:
    for path in [*(traces / "kineto").iterdir(), *(traces / "malformed").iterdir()]:
        if path.name == "empty.json":
            with pytest.raises(ReadError, match="empty"):
                sniff(path)
        else:
            assert sniff(path) == "kineto", path.name
    assert {sniff(path) for path in (traces / "nsys").iterdir()} == {"nsys"}
    assert {sniff(path) for path in (traces / "ncu").iterdir()} == {"ncu"}
    with pytest.raises(ReadError, match="rocprofv3"):
        readers.read(traces / "other" / "rocprofv3_results.json.gz")


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.sqlite", "a.nsys-rep", "a"])
def test_the_suffix_does_not_matter(tmp_path: Path, name: str) -> None:
    assert sniff(write(tmp_path / name, TRACE)) == "kineto"
    assert sniff(write(tmp_path / name, gzip.compress(TRACE))) == "kineto"
    assert sniff(write(tmp_path / name, b"\xef\xbb\xbf" + TRACE)) == "kineto"
    assert sniff(write(tmp_path / name, TRACE.decode().encode("utf-16"))) == "kineto"
    assert sniff(write(tmp_path / name, NCU)) == "ncu"
    assert sniff(write(tmp_path / name, NCU.decode().encode("utf-16"))) == "ncu"
    assert sniff(write(tmp_path / name, gzip.compress(NCU))) == "ncu"
    (tmp_path / name).unlink()
    assert sniff(database(tmp_path / name)) == "nsys"


@pytest.mark.parametrize(
    "banner",
    [
        b"",
        b"\xef\xbb\xbf==PROF== Connected to process 5\n",
        b"[INFO] training starts\n" * 10,
        b'{"loss": 3}\n',
        b"loss 1.5\n" * 100_000,
    ],
)
def test_a_table_of_ncu_behind_a_programs_output(tmp_path: Path, banner: bytes) -> None:
    path = write(tmp_path / "a.csv", banner + NCU)
    assert sniff(path) == "ncu"
    assert readers.read(path).kernels["dur_ns"].tolist() == [1500]


REFUSED = {
    "empty": (b"", "empty"),
    "blank": (b" \n\n", "blank"),
    "empty gzip": (gzip.compress(b""), "nothing in it"),
    "gzip cut in its head": (gzip.compress(b'{"traceEvents": []}')[:10], "cut off"),
    "packed tar": (gzip.compress(b"trace.json" + bytes(247) + b"ustar\0" + bytes(250)), "tar archive"),
    "damaged gzip": (b"\x1f\x8b\x08\x00garbage that is no deflate", "damaged gzip"),
    "packed database": (gzip.compress(b"SQLite format 3\0" + bytes(99)), "gunzip"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 134\n", "git lfs pull"),
    "login page": (b"\n<!DOCTYPE html>\n<html><head><title>Sign in</title>", "web page"),
    "page after a comment": (b"<!-- x --><HTML><body>", "web page"),
    "storage error": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "XML"),
    "rocprofv3": (b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "rocprofv3"),
    "packed rocprofv3": (gzip.compress(b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}'), "rocprofv3"),
    "ONNX Runtime": (
        b'[\n{"cat" : "Session","pid" :1,"name" :"model_loading_uri","args" : {}},\n{"cat" : "Node"}]',
        "ONNX Runtime",
    ),
    "execution trace": (b'{\n "schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [', "execution trace"),
    "trtexec": (b'[\n  { "count" : 200 }\n, { "name" : "conv1", "timeMs" : 1.0 }]', "TensorRT"),
    "proton": (b'[{"children": [], "frame": {"name": "ROOT", "type": "function"}}]', "Proton"),
    "speedscope": (b'{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[]}', "speedscope"),
    "notebook": (b'{\n "cells": [\n  {"cell_type": "code"}]}', "notebook"),
    "nsys JSON": (b'{"Type":80,"CudaEvent":{"startNs":"1"}}\n{"Type":80}\n', "--type sqlite"),
    "settings": (b'{"batch": 3, "lr": 0.1}', "without traceEvents"),
    "an error message": (b'{"message": "Not Found"}', "its keys: message"),
    "keys that would draw": (b'{"\\u001b[31mred": 3}', r"\\x1b\[31mred"),
    "pickle": (pickle.dumps({"a": 1}), "pickle"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(20), "zstd"),
    "xz": (b"\xfd7zXZ\0" + bytes(20), "xz"),
    "bzip2": (b"BZh91AY&SY" + bytes(20), "bzip2"),
    "tar": (b"trace.json" + bytes(247) + b"ustar\0" + bytes(250), "tar archive"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(20), "HDF5"),
    "Parquet": (b"PAR1" + bytes(20), "Parquet"),
    "program": (b"\x7fELF" + bytes(20), "a program"),
    "noise": (bytes(range(256)) * 10, "no known kind"),
    "prose": (b"Dear reader,\nthis is no trace.\n", "no known kind"),
    "ncu without a table": (b"==PROF== Connected to process 5\n==ERROR== ERR_NVGPUCTRPERM\n", "--csv --page raw"),
    "nsys stats": (b"Time (%),Total Time (ns),Instances,Avg (ns),Name\n50.0,100,1,100.0,gemm\n", "nsys stats"),
    "shell script": (b"#!/bin/sh\necho\n", "kernelscope run"),
}


@pytest.mark.parametrize(("data", "says"), REFUSED.values(), ids=REFUSED)
def test_others_are_named_in_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    path = write(tmp_path / "trace.json", data)
    with pytest.raises(ReadError, match=says) as caught:
        readers.read(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("name", "says"),
    [("a.qdstrm", "QdstrmImporter"), ("a.pftrace", "protobuf"), ("train.py", "kernelscope run train.py")],
)
def test_suffixes_help_where_content_does_not(tmp_path: Path, name: str, says: str) -> None:
    data = b"import torch\n" if name.endswith(".py") else b"\x0a\x00\x01\x02" * 50
    with pytest.raises(ReadError, match=says):
        sniff(write(tmp_path / name, data))


def test_archives_of_torch_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", b"cos\nsystem\n(S'touch /tmp/x'\ntR.")
    with pytest.raises(ReadError, match=r"torch\.save"):
        readers.read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("trace.json", TRACE)
    with pytest.raises(ReadError, match="zip archive"):
        readers.read(path)


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="no such file"):
        readers.read(tmp_path / "nothing.json")
    with pytest.raises(ReadError, match="null byte"):
        readers.read("a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReadError, match="not a regular file"):
        readers.read(tmp_path / "pipe")
    with pytest.raises(ReadError, match="not a regular file"):
        readers.read("/dev/zero")
    assert sniff(tmp_path) == "folder"


def test_reading_loads_only_the_reader_that_is_needed() -> None:
    code = (
        "import sys; import profilers.readers, profilers.readers.sniff; "
        "assert not {'pandas', 'numpy', 'torch', 'textual'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(readers.__file__).parents[2])


# Conversion


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("profilers.readers.convert._BESIDE_CUDA", folder)
    return folder


def test_a_report_of_nsys_is_exported(tmp_path: Path, tools: Path) -> None:
    database(tmp_path / "made.sqlite")
    tool(
        tools,
        "nsys",
        "import shutil, sys\n"
        f"open({str(tmp_path / 'called')!r}, 'w').write(repr(sys.argv[1:]))\n"
        "assert sys.argv[1:4] == ['export', '--type', 'sqlite']\n"
        f"shutil.copy({str(tmp_path / 'made.sqlite')!r}, sys.argv[sys.argv.index('--output') + 1])\n",
    )
    path = write(tmp_path / "-run; rm x.nsys-rep", b"\0\1\2binary")
    recording = readers.read(path)
    assert recording.kernels["dur_ns"].tolist() == [20]
    assert recording.origin.path == str(path)
    called = eval((tmp_path / "called").read_text())
    assert called[-1] == str(path)
    # What was made is gone.
    assert not Path(called[called.index("--output") + 1]).exists()


def test_a_report_of_ncu_is_imported(tmp_path: Path, tools: Path) -> None:
    tool(
        tools,
        "ncu",
        "import sys\n"
        "assert sys.argv[1] == '--import' and sys.argv[3:6] == ['--csv', '--page', 'raw']\n"
        "if '--print-units' in sys.argv: sys.exit('unrecognised option')\n"
        f"sys.stdout.buffer.write({NCU!r})\n",
    )
    path = write(tmp_path / "run.bin", b"NVR\0" + bytes(30))
    recording = readers.read(path)
    assert recording.kernels["name"].tolist() == ["gemm(float*)"]
    assert recording.origin.path == str(path)


def test_without_the_tool_the_command_is_named(tmp_path: Path, tools: Path) -> None:
    report = write(tmp_path / "run.nsys-rep", b"\0\1\2binary")
    with pytest.raises(ReadError, match=r"nsys export --type sqlite run\.nsys-rep") as caught:
        readers.read(report)
    assert "lies beside it" not in str(caught.value)
    database(tmp_path / "run.sqlite")
    with pytest.raises(ReadError, match=r"run\.sqlite, which lies beside it"):
        readers.read(report)
    with pytest.raises(ReadError, match=r"ncu --import run\.ncu-rep --csv --page raw > run\.csv"):
        readers.read(write(tmp_path / "run.ncu-rep", b"NVR\0" + bytes(30)))


def test_a_tool_that_fails_gives_its_reason(tmp_path: Path, tools: Path) -> None:
    report = write(tmp_path / "run.nsys-rep", b"\0\1\2binary")
    tool(tools, "nsys", "import sys; sys.exit('report is of a newer version\\x1b[31m')")
    with pytest.raises(ReadError, match=r"failed \(1\): report is of a newer version\?\[31m"):
        readers.read(report)
    tool(tools, "nsys", "pass")
    with pytest.raises(ReadError, match="without writing a file"):
        readers.read(report)
    (tools / "nsys").write_bytes(b"\x7fELF no program")
    with pytest.raises(ReadError, match="could not be started"):
        readers.read(report)
    tool(tools, "ncu", "print('==ERROR== The file could not be opened.')")
    with pytest.raises(ReadError, match="no table of ncu"):
        readers.read(write(tmp_path / "run.ncu-rep", b"NVR\0" + bytes(30)))
