"""Damaged text, odd containers, and reading in pieces: every complete event is kept, and what is lost is counted."""

from __future__ import annotations

import gc
import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from kineto_maker import check, codes, document, kernel, launch, note, op, read_text

from profilers.readers import kineto, text_source
from profilers.readers.errors import ReadError
from profilers.readers.salvage import repairs, scan
from profilers.tables import Recording


def some_events(count: int = 40) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [note("ProfilerStep#1", 0, 10_000)]
    for i in range(count):
        start = 100 * i + 1
        events += [
            op(f"aten::op{i % 7}", start, 50.25, **{"Input Dims": [[i, 2], []], "Input type": ["float", ""]}),
            launch(start + 5.125, i + 1),
            kernel(
                f"void kernel<{i % 5}>(float*, {{lambda}})",
                start + 20.5,
                10.001,
                i + 1,
                grid=[i + 1, 1, 1],
                block=[32, 1, 1],
            ),
        ]
    return events


def same(a: Recording, b: Recording) -> None:
    for name in ("operators", "kernels", "steps", "runtime"):
        same_rows(getattr(a, name), getattr(b, name))
    assert (a.origin.base_ns, a.origin.rank, a.devices) == (b.origin.base_ns, b.origin.rank, b.devices)


def same_rows(a: pd.DataFrame, b: pd.DataFrame) -> None:
    """Equal values; the order of a column's categories may differ."""
    pd.testing.assert_frame_equal(plain(a), plain(b))


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype({name: object for name, kind in frame.dtypes.items() if str(kind) == "category"})


@pytest.fixture
def whole() -> Recording:
    return read_text(document(some_events(), baseTimeNanoseconds=10**18))


@pytest.mark.parametrize("piece", [2, 7, 64, 300, 1000, 5000])
@pytest.mark.parametrize("indent", [None, 4])
def test_pieces_of_any_size_give_the_same(
    whole: Recording, piece: int, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_source, "PIECE", piece)
    about = {"schemaVersion": 1, "baseTimeNanoseconds": 10**18}
    text = json.dumps({**about, "traceEvents": some_events()}, indent=indent).encode()
    same(read_text(text), whole)
    text = json.dumps({"traceEvents": some_events(), **about}, indent=indent).encode()
    same(read_text(text), whole)
    same(read_text(gzip.compress(text)), whole)


def test_metadata_behind_the_events_that_looks_like_events(whole: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "PIECE", 400)
    about = {
        "baseTimeNanoseconds": 10**18,
        "deviceProperties": [{"id": i, "name": "NVIDIA H100", "numSms": 132} for i in range(8)],
        "distributedInfo": {"rank": 2, "world_size": 8, "pg_config": [{"name": "a"}, {"name": "b"}]},
    }
    recording = read_text(json.dumps({"traceEvents": some_events(), **about}).encode())
    same_rows(recording.kernels, whole.kernels)
    assert len(recording.devices) == 8
    assert recording.devices[7].sm_count == 132
    assert recording.origin.rank == 2
    assert codes(recording) == {}


@pytest.mark.parametrize("times", ["float", "int", "decimal"])
def test_ways_of_writing_times_may_change_in_a_file(times: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "PIECE", 500)
    start = {"float": 1000, "int": 1_700_000_000_000_000, "decimal": 1_700_000_000_000_000.5}[times]
    events = [op(f"early{i}", start + i, 1) for i in range(20)] + [
        op(f"late{i}", start + 100.5 + i, 1) for i in range(20)
    ]
    recording = read_text(document(events))
    assert recording.operators["start_ns"].tolist()[:3] == [0, 1_000, 2_000]
    assert recording.operators["start_ns"].tolist()[20:22] == [100_500, 101_500]


# Containers -----------------------------------------------------------------------------------------------------------


def test_gzip_members_and_trailing_bytes(whole: Recording) -> None:
    text = document(some_events(), baseTimeNanoseconds=10**18)
    half = len(text) // 2
    members = gzip.compress(text[:half]) + gzip.compress(text[half:])
    same(read_text(members), whole)
    recording = read_text(members + b"\0" * 99)
    same(recording, whole)
    assert codes(recording) == {"trailing_bytes": 99}


def test_gzip_cut_off_and_damaged() -> None:
    rng = random.Random(1)
    events = [op(f"aten::{rng.random()}", i, 1) for i in range(4000)]
    packed = gzip.compress(document(events))
    recording = read_text(packed[: len(packed) * 6 // 10])
    assert 2000 < len(recording.operators) < 4000
    assert {"truncated_gzip", "unclosed"} <= set(codes(recording))
    broken = bytearray(packed)
    broken[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    recording = read_text(bytes(broken))
    assert 500 < len(recording.operators) < 4000
    assert "damaged_gzip" in codes(recording)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_encodings(whole: Recording, encoding: str) -> None:
    text = document(some_events(), baseTimeNanoseconds=10**18).decode()
    if encoding == "utf-16-be":
        text = "\ufeff" + text
    same(read_text(text.encode(encoding)), whole)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty (0 bytes)"),
        (b" \n\n ", "holds no text"),
        (b"<!DOCTYPE html><html>", "begins with b'<!DOCTYPE"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "begins with b'version https"),
        (b'{"a": 1}', "without a list of traceEvents"),
        (b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "rocprofv3"),
        (b'{"schema": "1.1", "pid": 3, "nodes": []}', "execution trace"),
        (b'{"traceEvents": []}', "holds no events"),
        (b"[]", "holds no events"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "overhead", "name": "Buffer Flush", "ts": 1, "dur": 2}]}',
            "overhead (1)",
        ),
        (b'[{"ph": "b", "cat": "request", "name": "REQUEST_START", "ts": 1, "id": "3"}]', "no operators, kernels or"),
        (b'{"traceEvents": [', "holds no events"),
        (gzip.compress(b"", mtime=0), "holds no text"),
    ],
)
def test_what_is_no_recording_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(ReadError) as caught:
        kineto.read_bytes(data, "/some/where/x.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("x.json")
    assert "\n" not in str(caught.value)


def test_a_second_recording_behind_the_first_is_named(whole: Recording) -> None:
    text = document(some_events(), baseTimeNanoseconds=10**18)
    recording = read_text(text + document([op("other", 1, 2)]))
    same_rows(recording.kernels, whole.kernels)
    assert "second_recording" in codes(recording)


def test_progress_and_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "PIECE", 1000)
    path = tmp_path / "x.json"
    path.write_bytes(document(some_events()))
    shares: list[float] = []
    check(kineto.read(path, progress=shares.append))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 5

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kineto.read(path, progress=stop)
    assert gc.isenabled()
    with pytest.raises(FileNotFoundError):
        kineto.read(tmp_path / "absent.json")


# Damage ---------------------------------------------------------------------------------------------------------------


def spoiled(name: str, by: bytes) -> bytes:
    """A recording with the event called ``name`` spoiled: its name is replaced, in the text, by other bytes."""
    return document(some_events(), baseTimeNanoseconds=10**18).replace(json.dumps(name).encode(), by, 1)


@pytest.mark.parametrize(
    ("by", "kind", "name"),
    [
        (b'"a\nb"', "control character", "a\nb"),
        (b'"a\x01\x00b"', "control character", "a\x01\x00b"),
        (b'"C:\\Users\\new\\x.py(3)"', "unescaped backslash", "C:\\Users\\new\\x.py(3)"),
        (b'"a "quoted", "name" here"', "unescaped quote", 'a "quoted", "name" here'),
        (b'"a\\ud800b"', "half of a character", "a\ufffdb"),
        (b'"a \xff\xfe"', "bad UTF-8", "a \ufffd\ufffd"),
        (b'"a", "n": NaN', "NaN or infinity", "a"),
        (b'"a", "n": [inf, -Infinity]', "NaN or infinity", "a"),
        (b'"a", "n": [1, 2,]', "trailing comma", "a"),
    ],
)
def test_mended_names(by: bytes, kind: str, name: str) -> None:
    recording = read_text(spoiled("aten::op3", by))
    assert len(recording.operators) == 40
    assert name in set(recording.operators["name"])
    assert codes(recording) == {"repaired_events": 1}
    assert f"({kind})" in recording.notes[0].text


def test_an_event_beyond_repair_is_lost_alone() -> None:
    recording = read_text(spoiled("aten::op3", b'"a" "b" "c'))
    assert len(recording.operators) == 39
    assert len(recording.kernels) == 40
    assert codes(recording) == {"lost_events": 1}


def test_items_that_are_no_events() -> None:
    recording = read_text(b'[null, 3, "x, {y}", [1, {"ph": 2}], ' + json.dumps(some_events())[1:].encode())
    assert len(recording.operators) == 40
    assert codes(recording) == {"lost_events": 4}


def test_glued_events_without_a_comma() -> None:
    text = json.dumps(some_events()).replace("}}, {", "}}{").encode()
    recording = read_text(text)
    assert len(recording.operators) == 40
    assert len(recording.kernels) == 40
    assert set(codes(recording)) <= {"repaired_events"}


def test_damage_in_the_metadata() -> None:
    text = (
        document(some_events())[:-1]
        + b', "distributedInfo": {"rank": 5, "x": nan,}, "deviceProperties": [{"id": 0, "name": "H100"'
    )
    recording = read_text(text)
    assert recording.origin.rank == 5
    assert codes(recording) == {"repaired_metadata": 1}
    assert "NaN or infinity, cut off, trailing comma" in recording.notes[0].text
    text = text.replace(b'"x": nan,}', b'"x": nan, "y" 3 4}')
    recording = read_text(text)
    assert recording.origin.rank is None
    assert codes(recording) == {"damaged_metadata": 1}
    assert len(recording.kernels) == 40


def test_brackets_nested_thousands_deep() -> None:
    deep = op("deep", 1, 2, q="HERE")
    text = document([deep, op("b", 3, 4)])
    recording = read_text(text.replace(b'"HERE"', b"[" * 100_000 + b"]" * 100_000))
    assert recording.operators["name"].tolist() == ["b"]
    assert codes(recording)["lost_events"] == 1
    for bare in (b"[" * 100_000, b'{"a": ' * 100_000 + b'"traceEvents": []'):
        with pytest.raises(ReadError):
            kineto.read_bytes(bare, "x")


def test_brackets_left_open_between_events_are_one_loss() -> None:
    """Each open bracket for itself would look through all that follows: minutes for a hundred thousand of them."""
    text = document([op("a", 1, 2), op("b", 3, 4)]).replace(b"}}, {", b"}}, " + b"[" * 100_000 + b", {", 1)
    recording = read_text(text)
    assert recording.operators["name"].tolist() == ["a", "b"]
    assert codes(recording)["lost_events"] == 1


@pytest.mark.parametrize("share", [0.1, 0.35, 0.5, 0.77, 0.98])
def test_a_file_cut_anywhere_keeps_every_complete_event(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "PIECE", 700)
    text = document(some_events())
    cut = text[: int(len(text) * share)]
    recording = read_text(cut)
    complete = cut.count(b"}}, {") + cut.endswith(b"}}")
    assert int(recording.origin.extra["events"]) == complete
    assert codes(recording)["unclosed"] == 1


def test_random_damage_never_escapes() -> None:
    """Whatever happens to the bytes: a recording whose losses are noted, or one clear line."""
    rng = random.Random(7)
    text = document(some_events(15), baseTimeNanoseconds=10**18, distributedInfo={"rank": 1, "world_size": 2})
    read = 0
    for _ in range(120):
        data = bytearray(text)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            way = rng.randrange(4)
            if way == 0:
                data[at] = rng.randrange(256)
            elif way == 1:
                del data[at : at + rng.randint(1, 30)]
            elif way == 2:
                data[at:at] = bytes(rng.choice(b'"{}[],:\\\n\0x9eN') for _ in range(rng.randint(1, 5)))
            else:
                other = rng.randrange(len(data))
                data[at:at] = data[other : other + rng.randint(1, 200)]
        try:
            check(kineto.read_bytes(bytes(data), "x.json"))
            read += 1
        except ReadError as error:
            assert "\n" not in str(error)
    assert read > 100


# The scanner itself ---------------------------------------------------------------------------------------------------


def test_scan_stops_at_the_end_of_the_list() -> None:
    found = scan(b'{"ph": "X", "v": NaN},\n {"ph": "Y"} ], "deviceProperties": [{"id": 0}]}', msgspec.json.decode)
    assert found.items == [{"ph": "X", "v": None}, {"ph": "Y"}]
    assert found.tail == 37
    assert found.lost == []


def test_scan_joins_an_event_with_a_list_of_objects_inside() -> None:
    found = scan(b'{"ph": "X", "args": {"list": [{"name": "a"}, {"name": "b"}]}}, {"ph": "Y", "q', msgspec.json.decode)
    assert found.items == [{"ph": "X", "args": {"list": [{"name": "a"}, {"name": "b"}]}}]
    assert found.lost == [(63, "cut off")]


def test_repairs_leave_good_text_alone() -> None:
    good = b'{"a": "NaN, inf \\n \\u00e9", "b": [1, -2.5e-3, null, true], "c": "x\\"y"}'
    version, kinds = next(iter(repairs(good)))
    assert version == good
    assert kinds == []


def test_gzip_of_nothing_but_a_header() -> None:
    with pytest.raises(ReadError):
        kineto.read_bytes(gzip.compress(document(some_events()))[:12], "x")
    source = text_source.Source(io.BytesIO(b"\x1f\x8b"), "x", 2)
    assert list(source.pieces()) == [b""]
