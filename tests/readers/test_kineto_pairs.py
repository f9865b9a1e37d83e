"""Durations in two halves (ph "B" and "E"): what is read of them is what the complete event (ph "X") would have given."""

from __future__ import annotations

import gzip
import json
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from kineto_maker import PID, TID, codes, kernel, launch, note, op, read, read_text
from test_kineto_damage import same

from profilers.readers import kineto, kineto_pairs, text_source
from profilers.tables import Recording

EPOCH = 1_700_000_000_000_000
CASES = 600 if os.environ.get("KERNELSCOPE_SOAK") == "1" else 60


def begin(name: str, ts: Any, tid: Any = TID, pid: Any = PID, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "B", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "args": args}


def end(ts: Any, tid: Any = TID, pid: Any = PID, **more: Any) -> dict[str, Any]:
    """Only what the format asks of an end."""
    return {"ph": "E", "pid": pid, "tid": tid, "ts": ts, **more}


def rows(recording: Recording, *columns: str) -> list[tuple[Any, ...]]:
    frame = recording.operators[list(columns)].astype(object)
    return list(frame.itertuples(index=False, name=None))


def test_nesting_and_times() -> None:
    """linear 1..11.5 holds addmm 2.001..9 (which holds copy 3..4), then relu begins where linear ends."""
    recording = read(
        [
            begin("linear", 1),
            begin("addmm", 2.001),
            begin("copy", 3),
            end(4),
            end(9),
            end(11.5),
            begin("relu", 11.5),
            end(12.25),
        ]
    )
    assert rows(recording, "name", "start_ns", "dur_ns", "self_ns", "parent_id", "depth") == [
        ("linear", 0, 10_500, 3_501, -1, 0),
        ("addmm", 1_001, 6_999, 5_999, 0, 1),
        ("copy", 2_000, 1_000, 1_000, 1, 2),
        ("relu", 10_500, 750, 750, -1, 0),
    ]
    assert codes(recording) == {"cpu_only": 1}


@pytest.mark.parametrize("first", ["1700000000000000.001", "1419247332972.313", "1700000000000001", "0.001"])
@pytest.mark.parametrize("piece", [40, 1 << 20])
def test_exact_to_the_nanosecond_across_pieces(first: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "PIECE", piece)
    after = Decimal(first) + Decimal("0.007") + 86_400_000_000  # A day later: not to be had by a float of epoch us.
    text = f"""[{{"ph":"B","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{first}}},
               {{"ph":"X","cat":"cpu_op","name":"x","pid":1,"tid":1,"ts":{first},"dur":0.001}},
               {{"ph":"E","pid":1,"tid":1,"ts":{after}}}]"""
    recording = read_text(text.encode())
    assert rows(recording, "name", "start_ns", "dur_ns") == [("a", 0, 86_400_000_000_007), ("x", 0, 1)]


def test_arguments_on_either_half() -> None:
    recording = read(
        [
            begin("a", 1, **{"Input Dims": [[2, 3]], "Sequence number": 7}),
            end(2, args={"Input type": ["float"]}),
            begin("b", 3, **{"Input Dims": [[9, 9]], "Input type": ["int"]}),
            end(4, args={"Input Dims": [[4, 5]]}),
            begin("c", 5),
            end(6, args={"Input Dims": [[6]], "Concrete Inputs": ["True"]}),
        ]
    )
    assert rows(recording, "input_shapes", "input_dtypes", "input_values") == [
        ("[[2,3]]", '["float"]', ""),
        ("[[4,5]]", '["int"]', ""),
        ("[[6]]", "", '["True"]'),
    ]


def test_threads_and_processes_have_their_own_nesting() -> None:
    recording = read(
        [
            begin("a", 1, tid=1),
            begin("b", 2, tid=2),
            begin("c", 3, tid=1, pid=7),
            end(4, tid=1),
            end(6, tid=2),
            end(9, tid=1, pid=7),
        ]
    )
    assert rows(recording, "name", "dur_ns", "depth") == [("a", 3_000, 0), ("b", 4_000, 0), ("c", 6_000, 0)]


def test_beside_complete_events_on_one_thread() -> None:
    """A complete event in a pair, a pair in a complete event, and one that begins in a pair and outlives it."""
    recording = read([op("x", 2, 3), begin("a", 1), end(9), op("y", 20, 10), begin("b", 22), end(25), op("z", 24, 5)])
    assert rows(recording, "name", "self_ns", "parent_id", "depth") == [
        ("a", 5_000, -1, 0),
        ("x", 3_000, 0, 1),
        ("y", 3_000, -1, 0),
        ("b", 3_000, 2, 1),
        ("z", 5_000, 2, 1),
    ]


def test_kernels_launches_steps_and_modules() -> None:
    steps = {"cat": "user_annotation", "tid": 5}
    recording = read(
        [
            begin("ProfilerStep#4", 1, **steps),
            begin("nn.Module: Linear_0", 2, cat="python_function"),
            begin("aten::mm", 3),
            begin("cudaLaunchKernel", 4, cat="cuda_runtime", correlation=11),
            end(5),
            end(6),
            end(7),
            end(90, tid=5),
            begin("gemm", 30, tid="stream 7", pid=0, cat="kernel", correlation=11, grid=[4, 2, 1]),
            end(40.125, tid="stream 7", pid=0, args={"block": [64, 1, 1], "bytes": 3}),
            begin("Memcpy HtoD", 41, tid=7, pid=0, cat="gpu_memcpy", device=0, stream=7, bytes=64),
            end(42, tid=7, pid=0),
        ]
    )
    assert recording.steps[["step", "dur_ns"]].to_numpy().tolist() == [[4, 89_000]]
    assert rows(recording, "name", "module", "step", "device_ns") == [("aten::mm", "Linear", 4, 10_125)]
    kernels = recording.kernels
    assert kernels["kind"].tolist() == ["kernel", "memcpy"]
    assert kernels["stream"].tolist() == [7, 7]
    assert kernels["dur_ns"].tolist() == [10_125, 1_000]
    assert kernels["threads"].tolist()[0] == 512
    assert kernels["op_id"].tolist() == [0, -1]
    assert recording.runtime["kind"].tolist() == ["launch"]


def test_a_file_in_the_order_of_completion() -> None:
    """Some writers note both halves when the inner one is done: the order of time decides, not that of the file."""
    recording = read([begin("in", 2), end(3), begin("out", 1), end(9), begin("b", 5), end(6)])
    assert rows(recording, "name", "dur_ns", "depth") == [("out", 8_000, 0), ("in", 1_000, 1), ("b", 1_000, 1)]


def test_equal_times_keep_the_order_of_the_file() -> None:
    recording = read([begin("out", 1), begin("in", 1), begin("none", 5), end(5), end(5), end(5), begin("b", 5), end(8)])
    assert rows(recording, "name", "dur_ns", "depth", "parent_id")[:2] == [("out", 4_000, 0, -1), ("in", 4_000, 1, 0)]
    assert sorted(rows(recording, "name", "dur_ns"))[::2] == [("b", 3_000), ("none", 0)]


def test_halves_alone_are_named_and_cost_no_one_else() -> None:
    recording = read(
        [
            end(1, name="before"),
            begin("a", 2),
            begin("lost its end", 3),
            begin("b", 4),
            end(5, name="b"),
            end(6, name="lost its begin"),
            end(7, name="a"),
            end(8),
            begin("cut \x1b[31m off", 9, tid=3),
        ]
    )
    assert rows(recording, "name", "start_ns", "dur_ns", "depth") == [("a", 0, 5_000, 0), ("b", 2_000, 1_000, 1)]
    assert codes(recording) == {"unmatched_begins": 2, "unmatched_ends": 3, "cpu_only": 1}
    texts = {one.code: one.text for one in recording.notes}
    assert "1 lost its end" in texts["unmatched_begins"] and r"1 cut \x1b[31m off" in texts["unmatched_begins"]
    assert texts["unmatched_ends"].endswith("(1 before, 1 lost its begin, 1 without a name)")


def test_overlapping_events_keep_their_lengths_by_name() -> None:
    """The format forbids it; a writer that draws two streams in one row does it. The last ``a`` ends first, too."""
    recording = read(
        [
            begin("a", 1),
            begin("b", 3),
            end(5, name="a"),
            begin("a", 6),
            end(8, name="b"),
            begin("b", 9),
            end(10, name="a"),
            begin("c", 11),
            end(12),
            end(20, name="b"),
        ]
    )
    assert rows(recording, "name", "start_ns", "dur_ns") == [
        ("a", 0, 4_000),
        ("b", 2_000, 5_000),
        ("a", 5_000, 4_000),
        ("b", 8_000, 11_000),
        ("c", 10_000, 1_000),
    ]
    assert codes(recording) == {"cpu_only": 1}


def test_a_begin_that_was_passed_is_not_closed_by_a_nameless_end() -> None:
    recording = read([begin("p", 1), begin("a", 2), begin("lost", 3), end(4, name="a"), end(9)])
    assert rows(recording, "name", "dur_ns") == [("p", 8_000), ("a", 2_000)]
    assert codes(recording)["unmatched_begins"] == 1


def test_of_equal_names_that_were_passed_the_last_ends_first() -> None:
    recording = read(
        [begin("x", 1), begin("b", 2), begin("b", 3), end(4, name="x"), end(5, name="b"), end(9, name="b")]
    )
    assert rows(recording, "name", "dur_ns") == [("x", 3_000), ("b", 7_000), ("b", 2_000)]


def test_halves_without_a_time_or_a_name() -> None:
    recording = read([begin("a", 1), begin("b", None), end(None), end(4), {**begin("", 5), "name": None}, end(6)])
    assert rows(recording, "name", "dur_ns") == [("a", 3_000)]
    assert codes(recording)["incomplete_events"] == 3
    assert not codes(recording).keys() & {"unmatched_begins", "unmatched_ends"}


def test_a_name_and_a_category_may_stand_on_the_end() -> None:
    bare = {"ph": "B", "pid": PID, "tid": TID, "ts": 1}
    recording = read([bare, begin("in", 2), end(3), end(4, cat="cpu_op")])
    assert rows(recording, "name", "dur_ns") == [("in", 1_000)]
    assert codes(recording)["incomplete_events"] == 1
    nameless = {**begin("", 1), "name": "a", "cat": ""}
    assert rows(read([nameless, end(4, cat="cpu_op")]), "name", "dur_ns") == [("a", 3_000)]


def test_times_in_nanoseconds() -> None:
    recording = read([begin("a", EPOCH * 1000 + 1), op("x", EPOCH * 1000 + 5, 3), end(EPOCH * 1000 + 104)])
    assert rows(recording, "name", "start_ns", "dur_ns") == [("a", 0, 103), ("x", 4, 3)]
    assert codes(recording)["times_in_ns"] == 1


def test_pairs_alone_of_other_categories_are_no_recording() -> None:
    with pytest.raises(kineto.ReadError, match=r"no operators, kernels or runtime calls.*without an end.*1 task"):
        read([begin("task", 1, cat="toplevel"), begin("other", 2, cat="toplevel"), end(3)])


# Fuzz -----------------------------------------------------------------------------------------------------------------


def forest(rng: random.Random, ties: bool) -> list[list[tuple[str, int, int, int]]]:
    """Per thread (name, begin ns, end ns, depth) in the order of begin, properly nested, names unique.

    With ``ties``, intervals share their begins and ends; without, every instant is different.
    """
    threads = []
    for thread in range(rng.randint(1, 3)):
        clock, opened, made = rng.randrange(5), [], []
        for index in range(rng.randint(1, 40)):
            while opened and rng.random() < 0.45:
                row = opened.pop()
                made[row][2] = clock = clock + 1 + rng.randrange(3_000)
            clock += (0 if ties and rng.random() < 0.5 else 1) * (1 + rng.randrange(3_000))
            opened.append(len(made))
            made.append([f"{thread}.{index}", clock, 0, len(opened) - 1])
        while opened:
            made[opened.pop()][2] = clock = clock + (0 if ties else 1) + rng.randrange(1_000)
        threads.append([tuple(row) for row in made])
    return threads


def number(ns: int, how: str) -> Any:
    return ns / 1000 if how == "float" else Decimal(EPOCH) + Decimal(ns) / 1000 if how == "decimal" else EPOCH + ns


def written(events: Any) -> bytes:
    """As text, decimals digit by digit."""
    return json.dumps(events, default=lambda value: f"@@{value}@@").replace('"@@', "").replace('@@"', "").encode()


def complete(name: str, start: int, stop: int, tid: int, how: str, args: dict[str, Any]) -> dict[str, Any]:
    length = stop - start if how == "int" else (stop - start) / 1000
    return op(name, number(start, how), length, tid, **args)


def halves(
    name: str, start: int, stop: int, tid: int, how: str, args: dict[str, Any], rng: random.Random
) -> tuple[dict[str, Any], dict[str, Any]]:
    given = {key: value for key, value in args.items() if rng.random() < 0.5}
    rest = {key: value for key, value in args.items() if key not in given or rng.random() < 0.3}
    closing = end(number(stop, how), tid)
    if rest:
        closing["args"] = rest
    for key, value in (("name", name), ("cat", "cpu_op")):
        if rng.random() < 0.5:
            closing[key] = value
    return begin(name, number(start, how), tid, **given), closing


def cases(ties: bool) -> list[tuple[int, list[list[tuple[str, int, int, int]]], str]]:
    made = []
    for seed in range(CASES):
        rng = random.Random(f"{ties} {seed}")
        made.append((seed, forest(rng, ties), rng.choice(("float", "int", "decimal"))))
    return made


def arguments(rng: random.Random) -> dict[str, Any]:
    all_of_them = {"Input Dims": [[rng.randint(1, 9)], []], "Input type": ["float", "int"], "Concrete Inputs": ["1"]}
    return {key: value for key, value in all_of_them.items() if rng.random() < 0.7}


def interleaved(threads: list[list[tuple[int, int, dict[str, Any]]]], rng: random.Random) -> list[dict[str, Any]]:
    """The events of all threads, each thread's in order of (time, place), the threads mixed at random."""
    waiting = [sorted(thread, key=lambda one: one[:2])[::-1] for thread in threads]
    mixed = []
    while waiting := [thread for thread in waiting if thread]:
        mixed.append(rng.choice(waiting).pop()[2])
    return mixed


def test_pairs_read_as_the_complete_events_they_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, threads, how in cases(ties=False):
        rng = random.Random(seed)
        truth, mixed = [], []
        for tid, thread in enumerate(threads, 1):
            own: list[tuple[int, int, dict[str, Any]]] = []
            for place, (name, start, stop, _) in enumerate(thread):
                args = arguments(rng)
                whole = complete(name, start, stop, tid, how, args)
                truth.append(whole)
                if rng.random() < 0.4:
                    own.append((start, place, whole))
                else:
                    opening, closing = halves(name, start, stop, tid, how, args, rng)
                    own += [(start, place, opening), (stop, -place, closing)]
            mixed.append(own)
        expected = read_text(written(truth))
        monkeypatch.setattr(text_source, "PIECE", rng.choice((64, 500, 1 << 20)))
        monkeypatch.setattr(kineto_pairs, "_AT_A_TIME", rng.choice((1, 7, 1 << 16)))
        events = interleaved(mixed, rng)
        if rng.random() < 0.3:
            rng.shuffle(events)
        found = read_text(written(events))
        same(found, expected)
        depths = {name: depth for thread in threads for name, _, _, depth in thread}
        assert dict(rows(found, "name", "depth")) == depths, seed
        assert codes(found) == {"cpu_only": 1}, seed


def test_pairs_that_share_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves in the order of calls: the length of each is that of its own call, whatever falls together."""
    for seed, threads, how in cases(ties=True):
        rng = random.Random(seed)
        events = []
        for tid, thread in enumerate(threads, 1):
            opened: list[tuple[int, dict[str, Any]]] = []
            for name, start, stop, depth in thread:
                while len(opened) > depth:
                    events.append(opened.pop()[1])
                opening, closing = halves(name, start, stop, tid, how, {}, rng)
                events.append(opening)
                opened.append((depth, closing))
            events += [closing for _, closing in reversed(opened)]
        monkeypatch.setattr(text_source, "PIECE", rng.choice((64, 500, 1 << 20)))
        found = read_text(written(events))
        scale = 1000 if how == "int" else 1
        lengths = {name: (stop - start) * scale for thread in threads for name, start, stop, _ in thread}
        assert dict(rows(found, "name", "dur_ns")) == lengths, seed


def test_lost_halves_cost_their_own_event_only() -> None:
    for seed, threads, how in cases(ties=False):
        rng = random.Random(seed)
        kept, events, lost = [], [], {"B": 0, "E": 0}
        for tid, thread in enumerate(threads, 1):
            own: list[tuple[int, int, dict[str, Any]]] = []
            for place, (name, start, stop, _) in enumerate(thread):
                opening, closing = halves(name, start, stop, tid, how, {}, rng)
                both = [(start, place, opening), (stop, -place, closing | {"name": name})]
                if rng.random() < 0.25:
                    del both[rng.randrange(2)]
                    lost[both[0][2]["ph"]] += 1
                else:
                    kept.append(complete(name, start, stop, tid, how, {}))
                own += both
            events.append(own)
        kept.append(op("beside", number(0, how), 1, tid=99))
        mixed = interleaved(events, rng) + [kept[-1]]
        found = read_text(written(mixed))
        same(found, read_text(written(kept)))
        noted = {code: count for code, count in codes(found).items() if code != "cpu_only"}
        assert noted == {
            code: lost[phase] for code, phase in (("unmatched_begins", "B"), ("unmatched_ends", "E")) if lost[phase]
        }, seed


REAL = ("h100_bert_small", "mi210_gpu_only", "mi300x_torch_compile_triton", "dlrm128_rank0_2023", "mi250_toy")


@pytest.mark.parametrize("name", REAL)
def test_real_recordings_written_in_halves(traces: Path, name: str) -> None:
    """Every complete event of a real recording as two, in the order of time: the same rows, to the nanosecond."""
    data = gzip.decompress((traces / "kineto" / f"{name}.json.gz").read_bytes())
    document = json.loads(data, parse_float=Decimal, strict=False)
    events: list[tuple[Any, int, Any, int, Any]] = []
    for place, event in enumerate(document["traceEvents"]):
        if event.get("ph") != "X" or event.get("dur") is None or not event["ts"]:
            events.append((event.get("ts", 0), 1, 0, place, event))
            continue
        length = event["dur"]
        closing = {"ph": "E", "pid": event["pid"], "tid": event["tid"], "name": event["name"]}
        opening = {key: value for key, value in event.items() if key != "dur"} | {"ph": "B"}
        events.append((event["ts"], 1, -length, place, opening))
        # Where one ends and another begins: the end first, but that of an event without length.
        events.append(
            (event["ts"] + length, 0 if length else 2, -event["ts"], -place, closing | {"ts": event["ts"] + length})
        )
    document["traceEvents"] = [one[4] for one in sorted(events, key=lambda one: one[:4])]
    expected, found = read_text(data), read_text(written(document))
    for table, columns in (
        ("operators", ["name", "start_ns", "dur_ns", "device_ns", "input_shapes"]),
        ("kernels", ["name", "start_ns", "dur_ns", "stream", "correlation", "launch_ns", "grid"]),
        ("runtime", ["name", "start_ns", "dur_ns", "correlation"]),
        ("steps", ["step", "start_ns", "dur_ns"]),
    ):
        a, b = (sorted(map(tuple, getattr(one, table)[columns].astype(str).to_numpy())) for one in (expected, found))
        assert a == b, table
    assert codes(found) == codes(expected)


def test_a_deep_stack_and_ends_of_strangers() -> None:
    """Each half is looked at once, however many lie open around it."""
    count = 20_000
    events = [begin(f"b{i}", i) for i in range(count)]
    events += [end(count + i, name=f"e{i}") for i in range(count)]
    recording = read([*events, launch(1, 5), kernel("k", 5, 1, 5), note("ProfilerStep#1", 0, 9)])
    assert codes(recording)["unmatched_begins"] == codes(recording)["unmatched_ends"] == count
