"""Small recordings, one per trap of the format and of its history."""

from __future__ import annotations

import json

import pytest
from kineto_maker import TID, call, codes, document, kernel, launch, note, op, read, read_text

BASE = 1_751_410_836_000_000_000
EPOCH = 1_700_000_000_000_000


def test_2020_bare_list_with_string_threads() -> None:
    events = [
        op("aten::add", EPOCH, 30, "4093687616", cat="Operator", **{"Input dims": [[2, 3], []], "Input type": []}),
        call("cudaLaunchKernel", EPOCH + 5, 4, 11, "4093687616", cat="Runtime"),
        {
            **kernel("add_kernel", EPOCH + 20, 7, 11, cat="Kernel"),
            "tid": "stream 7",
            "args": {"device": 0, "stream": 7, "correlation": 11, "external id": 3},
        },
        {**kernel("Memset (Device)", EPOCH + 30, 1, 12, cat="Memset", bytes=64), "tid": "stream 7"},
    ]
    recording = read_text(json.dumps(events).encode())
    assert recording.operators["thread_id"].tolist() == [4093687616]
    assert recording.operators["input_shapes"].tolist() == ["[[2,3],[]]"]
    assert recording.kernels["op_id"].tolist() == [0, -1]
    assert recording.kernels["kind"].tolist() == ["kernel", "memset"]
    assert recording.kernels["bytes"].tolist()[1] == 64
    assert recording.origin.base_ns == EPOCH * 1000


def test_2021_steps_are_operators_and_properties_have_another_name() -> None:
    events = [
        op("ProfilerStep#3", EPOCH, 100, "77", cat="Operator"),
        op("Optimizer.step#SGD.step", EPOCH + 1, 90, "77", cat="Operator"),
        op("aten::mm", EPOCH + 2, 30, "77", cat="Operator", **{"Input Dims": [[4, 4], [4, 4]]}),
    ]
    properties = [{"id": 0, "name": "Tesla V100", "major": 7, "minor": 0, "multiProcessorCount": 80}]
    recording = read(events, computeProperties=properties)
    assert recording.operators["name"].tolist() == ["aten::mm"]
    assert recording.operators["depth"].tolist() == [0]
    assert recording.operators["step"].tolist() == [3]
    assert recording.steps["step"].tolist() == [3]
    assert recording.steps["dur_ns"].tolist() == [100_000]
    assert recording.devices[0].sm_count == 80
    assert recording.devices[0].compute_capability == "7.0"


def test_without_args_device_and_stream_come_from_the_row() -> None:
    bare = {"ph": "X", "cat": "kernel", "name": "k", "pid": 3, "tid": "stream 22", "ts": 10, "dur": 5}
    recording = read([bare])
    assert recording.kernels["device"].tolist() == ["cuda:3"]
    assert recording.kernels["stream"].tolist() == [22]
    assert codes(recording) == {"unlaunched_kernels": 1, "no_operators": 1}


def test_external_id_is_not_believed() -> None:
    """Its number space is the correlations': here it names the wrong operator."""
    events = [
        op("aten::wrong", 100, 10, **{"External id": 9}),
        op("aten::right", 200, 50, **{"External id": 2}),
        launch(210, 9),
        kernel("k", 300, 5, 9),
    ]
    recording = read(events)
    assert recording.operators.loc[recording.kernels["op_id"][0], "name"] == "aten::right"


def test_the_innermost_operator_holding_the_launch() -> None:
    events = [
        op("aten::linear", 100, 100),
        op("aten::addmm", 110, 50),
        op("aten::expand", 112, 5),
        launch(120, 1),
        launch(180, 2),
        launch(250, 3),
        op("aten::other_thread", 90, 400, tid=9),
        kernel("gemm", 300, 40, 1),
        kernel("bias", 340, 4, 2),
        kernel("stray", 344, 2, 3),
    ]
    recording = read(events)
    names = recording.operators["name"].astype(object).to_dict()
    assert [names.get(row) for row in recording.kernels["op_id"]] == ["aten::addmm", "aten::linear", None]
    assert recording.kernels["launch_ns"].tolist() == [30_000, 90_000, 160_000]
    ops = recording.operators.set_index(recording.operators["name"].astype(object))
    assert ops["device_ns"].to_dict() == {
        "aten::linear": 44_000,
        "aten::addmm": 40_000,
        "aten::expand": 0,
        "aten::other_thread": 0,
    }
    assert ops["self_ns"].to_dict()["aten::linear"] == 50_000
    assert ops["depth"].to_dict() == {"aten::linear": 0, "aten::addmm": 1, "aten::expand": 2, "aten::other_thread": 0}


def test_driver_and_hip_launches_link() -> None:
    events = [
        op("triton", 100, 50),
        call("cuLaunchKernelEx", 110, 5, 1, cat="cuda_driver"),
        call("hipExtModuleLaunchKernel", 120, 5, 2),
        kernel("triton_poi_0", 200, 5, 1),
        kernel("Cijk_", 210, 5, 2, device=2),
    ]
    recording = read(events)
    assert recording.kernels["op_id"].tolist() == [0, 0]
    assert recording.runtime["kind"].tolist() == ["launch", "launch"]
    assert recording.kernels["device"].tolist() == ["cuda:0", "cuda:2"]


def test_kernels_launched_before_the_window_count() -> None:
    recording = read([op("aten::add", 100, 50), launch(110, 5), kernel("early", 90, 5, 1), kernel("late", 120, 5, 5)])
    assert recording.kernels["name"].tolist() == ["early", "late"]
    assert recording.kernels["launch_ns"].tolist() == [-1, 20_000]
    assert recording.kernels["op_id"].tolist() == [-1, 0]
    assert codes(recording) == {"unlaunched_kernels": 1}


def test_a_graph_replay_keeps_every_kernels_own_name() -> None:
    events = [op("replay", 100, 50), call("cudaGraphLaunch", 110, 20, 7)]
    events += [kernel(f"node_{i}", 200 + 10 * i, 5, 7) for i in range(4)]
    recording = read(events)
    assert recording.kernels["graph"].all()
    assert recording.kernels["name"].tolist() == ["node_0", "node_1", "node_2", "node_3"]
    assert recording.kernels["op_id"].tolist() == [0] * 4
    assert codes(recording) == {}


def test_a_graph_replayed_from_before_the_window() -> None:
    events = [op("x", 100, 50), *(kernel(f"node_{i}", 200 + 10 * i, 5, 7) for i in range(3)), kernel("one", 300, 5, 8)]
    recording = read(events)
    assert recording.kernels["graph"].tolist() == [True, True, True, False]
    assert codes(recording) == {"unlaunched_kernels": 4}


def test_identical_records_count_once() -> None:
    twice = kernel("k", 200, 5, 1)
    recording = read([op("x", 100, 50), launch(110, 1), twice, dict(twice), kernel("k", 200, 5, 1, stream=8)])
    assert len(recording.kernels) == 2
    assert codes(recording)["duplicate_kernels"] == 1


def test_zero_length_kernels_count() -> None:
    recording = read([op("x", EPOCH, 50), launch(EPOCH, 1), kernel("k", EPOCH + 60, 0, 1)])
    assert recording.kernels["dur_ns"].tolist() == [0]
    assert recording.kernels["flag"].tolist() == [""]


def test_annotations_never_add_time() -> None:
    events = [
        op("aten::add", 100, 50),
        launch(110, 1),
        kernel("k", 200, 5, 1),
        note("ProfilerStep#1", 190, 5000, tid=7, pid=0, cat="gpu_user_annotation"),
        note("nccl:all_reduce", 190, 9000, tid=7, pid=0, cat="gpu_user_annotation"),
        note("PyTorch Profiler (0)", 0, 90000, tid="PyTorch Profiler", pid="Spans", cat="Trace"),
        note("Lazy Function Loading", 100, 20, tid=0, pid=-1, cat="overhead"),
        note("threading.py(1032): _bootstrap", 0, 9000, cat="python_function"),
        note("Stream Wait Event", 190, 70, tid=7, pid=0, cat="cuda_sync"),
    ]
    recording = read(events)
    assert recording.kernels["dur_ns"].sum() == 5_000
    assert len(recording.steps) == 0
    assert len(recording.operators) == 1
    assert recording.origin.base_ns == 100_000


def test_fetching_a_batch_is_kept_as_a_call_of_the_host() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    recording = read([note(name, 90, 400), op("aten::add", 500, 50), launch(510, 1), kernel("k", 600, 5, 1)])
    fetch = recording.runtime[recording.runtime["kind"] == "loading"]
    assert fetch["name"].tolist() == [name] and fetch["dur_ns"].tolist() == [400_000]
    assert fetch["correlation"].tolist() == [-1] and len(recording.operators) == 1


def test_corrupt_lengths_are_marked_and_left_out_of_operator_sums() -> None:
    events = [op("aten::add", EPOCH, 900), *(launch(EPOCH + i, i) for i in range(1, 7))]
    events += [
        kernel("overrun", EPOCH + 100, 2_000_000, 1),
        kernel("fine", EPOCH + 200, 5, 2),
        kernel("negative", EPOCH + 300, -4, 3),
        kernel("overflow", EPOCH + 400, 9223372036854776, 4),
        kernel("never", 0, 0, 5),
        kernel("good", EPOCH + 600, 6, 6),
    ]
    recording = read(events)
    assert dict(zip(recording.kernels["name"], recording.kernels["flag"], strict=True)) == {
        "overrun": "overrun",
        "fine": "",
        "negative": "negative",
        "overflow": "overflow",
        "never": "zero_time",
        "good": "",
    }
    assert recording.kernels.loc[recording.kernels["name"] == "never", "start_ns"].tolist() == [-1]
    assert recording.operators["device_ns"].tolist() == [11_000]
    assert codes(recording) == {"flag_overrun": 1, "flag_negative": 1, "flag_overflow": 1, "flag_zero_time": 1}


def test_a_last_kernel_that_outlives_the_recording() -> None:
    end = {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": EPOCH + 5000}
    events = [op("x", EPOCH, 90), launch(EPOCH + 1, 1), kernel("k", EPOCH + 100, 7_000_000, 1), end]
    assert read(events).kernels["flag"].tolist() == ["overrun"]
    assert read(events[:-1]).kernels["flag"].tolist() == [""]


def test_small_overlaps_on_one_stream_stay() -> None:
    events = [op("x", 0, 90), launch(1, 1), launch(2, 2), kernel("a", 100, 104, 1), kernel("b", 200.256, 59, 2)]
    recording = read(events)
    assert recording.kernels["flag"].tolist() == ["", ""]
    assert codes(recording) == {}


def test_a_clock_that_begins_at_zero() -> None:
    recording = read([op("x", 0, 50), launch(1, 1), kernel("k", 20, 5, 1)])
    assert recording.operators["start_ns"].tolist() == [0]
    assert recording.kernels["flag"].tolist() == [""]
    assert codes(recording) == {}


@pytest.mark.parametrize(
    "ts", ["1711964646000123.456", "1711964646000123.007", "6869181221029.473", "1711964646000123", "12.3456"]
)
def test_times_are_exact_to_the_last_decimal(ts: str) -> None:
    """Epoch microseconds with decimals do not fit a float: 0.25 us would be lost."""
    text = document([op("x", 1, 2), op("y", 3, 4)]).replace(b'"ts": 3', b'"ts": ' + ts.encode())
    recording = read_text(text.replace(b'"ts": 1,', b'"ts": 1.001,'))
    second = recording.operators["start_ns"].tolist()[1]
    whole, _, part = ts.partition(".")
    assert second == int(whole) * 1000 + round(float("0." + part) * 1000 if part else 0) - 1_001


def test_base_time_is_added() -> None:
    recording = read([op("x", 1419247332972.313, 2.5)], baseTimeNanoseconds=BASE, displayTimeUnit="ms")
    assert recording.origin.base_ns == BASE + 1419247332972313
    assert recording.operators["dur_ns"].tolist() == [2_500]


def test_display_time_unit_changes_nothing() -> None:
    assert read([op("x", 1.5, 2)], displayTimeUnit="ns").operators["dur_ns"].tolist() == [2_000]


@pytest.mark.parametrize("base", [None, BASE])
def test_nanoseconds_for_microseconds_are_seen(base: int | None) -> None:
    start = 1419247332972313 if base else EPOCH * 1000
    events = [op("x", start, 9_000), launch(start + 2_000, 1, 3_000), kernel("k", start + 10_000, 4_096, 1)]
    recording = read(events, **({"baseTimeNanoseconds": base} if base else {}))
    assert codes(recording) == {"times_in_ns": 1}
    assert recording.operators["dur_ns"].tolist() == [9_000]
    assert recording.kernels["dur_ns"].tolist() == [4_096]
    assert recording.kernels["start_ns"].tolist() == [10_000]
    assert recording.origin.base_ns == (base or 0) + start


def test_a_base_that_the_times_already_include() -> None:
    recording = read([op("x", EPOCH + 0.5, 9), op("y", EPOCH + 20, 9)], baseTimeNanoseconds=EPOCH * 1000 - 10**12)
    assert codes(recording)["base_already_added"] == 1
    assert recording.origin.base_ns == EPOCH * 1000 + 500
    assert recording.operators["start_ns"].tolist() == [0, 19_500]


def test_slow_launches_are_doubted() -> None:
    events = [op("x", 0, 900_000)]
    for i in range(12):
        events += [launch(i * 10_000, i + 1, 5_000), kernel("k", 200_000 + i * 5_000, 4_096, i + 1)]
    assert codes(read(events)) == {"implausible_times": 1}


def test_big_ids_stay_exact() -> None:
    stream, handle = 9156438538392218573, 18446744073709551615
    events = [
        op("x", 0, 90, **{"Comms Id": handle}),
        launch(1, 1),
        launch(2, 2),
        launch(3, 3),
        kernel("a", 100, 5, 1, stream=stream),
        kernel("b", 110, 5, 2, stream=stream + 1),
        kernel("c", 120, 5, 3, stream=handle),
    ]
    recording = read(events)
    assert recording.kernels["stream"].tolist() == [stream, stream + 1, handle - (1 << 64)]


def test_two_devices_with_one_stream_number() -> None:
    events = [
        kernel("a", 100, 500_000, 1, device=0),
        kernel("b", 200, 5, 2, device=1),
        kernel("c", 300, 5, 3, device=1),
    ]
    recording = read(events)
    assert recording.kernels["flag"].tolist() == ["", "", ""]
    assert [one.id for one in recording.devices] == ["cuda:0", "cuda:1"]


def test_unlisted_device_of_one_model_or_of_several() -> None:
    events = [kernel("a", 100, 5, 1, device=5)]
    one = [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304}]
    found = read(events, deviceProperties=one)
    assert [(device.id, device.name, device.kind) for device in found.devices] == [
        ("cuda:0", "AMD Instinct MI300X", "hip"),
        ("cuda:5", "AMD Instinct MI300X", "hip"),
    ]
    assert codes(found)["unlisted_devices"] == 1
    found = read(events, deviceProperties=[*one, {"id": 1, "name": "AMD Instinct MI210", "numSms": 104}])
    assert [device.name for device in found.devices] == ["AMD Instinct MI300X", "AMD Instinct MI210", ""]


def test_threads_of_several_processes_stay_apart() -> None:
    events = [
        op("outer", 100, 100, tid=1, pid=10),
        op("not inside", 110, 10, tid=1, pid=20),
        op("own thread", 110, 10, tid=2, pid=20),
    ]
    recording = read(events)
    assert recording.operators["depth"].tolist() == [0, 0, 0]
    assert recording.operators["thread_id"].nunique() == 3
    assert 2 in set(recording.operators["thread_id"])


def test_one_correlation_launched_twice_is_left_open() -> None:
    events = [
        op("a", 100, 50, tid=1, pid=10),
        op("b", 100, 50, tid=1, pid=20),
        launch(110, 5, tid=1, pid=10),
        launch(112, 5, tid=1, pid=20),
        kernel("k", 200, 5, 5),
        kernel("k", 300, 5, 5, device=1),
    ]
    recording = read(events)
    assert recording.kernels["op_id"].tolist() == [-1, -1]
    assert codes(recording)["ambiguous_launches"] == 2


def test_a_launch_wins_over_other_calls_of_its_number() -> None:
    events = [
        op("a", 100, 50),
        op("b", 200, 50, tid=9),
        call("cudaStreamIsCapturing", 210, 1, 5, tid=9),
        launch(110, 5),
        kernel("k", 300, 5, 5),
    ]
    recording = read(events)
    assert recording.kernels["op_id"].tolist() == [0]


def test_a_kernel_that_starts_before_its_launch_stays_linked() -> None:
    recording = read([op("x", 100, 50), launch(110, 1), kernel("k", 105, 5, 1)])
    assert recording.kernels["op_id"].tolist() == [0]


def test_modules_from_python_and_from_ranges() -> None:
    events = [
        note("nn.Module: Net_0", 100, 100, cat="python_function"),
        note("nn.Module: LlamaRMSNorm_12", 110, 20, cat="python_function"),
        note("net.py(3): forward", 111, 10, cat="python_function"),
        op("aten::pow", 112, 5),
        op("aten::mm", 140, 5),
        op("outside", 300, 5),
        note("nn.Module: Linear", 400, 50),
        op("aten::linear", 410, 30),
        op("aten::addmm", 412, 20),
        op("other thread", 412, 20, tid=5),
    ]
    recording = read(events)
    assert dict(zip(recording.operators["name"], recording.operators["module"], strict=True)) == {
        "aten::pow": "LlamaRMSNorm",
        "aten::mm": "Net",
        "outside": "",
        "aten::linear": "Linear",
        "aten::addmm": "Linear",
        "other thread": "",
    }


def test_backward_operators_take_the_module_of_their_forward() -> None:
    events = [
        note("nn.Module: Attention", 100, 50),
        op("aten::detach", 105, 1, **{"Sequence number": 5, "Fwd thread id": 0}),
        note("nn.Module: Linear", 110, 20),
        op("aten::addmm", 112, 10, **{"Sequence number": 5, "Fwd thread id": 0}),
        op("AddmmBackward0", 300, 40, tid=8, **{"Sequence number": 5, "Fwd thread id": 1}),
        op("aten::mm", 310, 20, tid=8),
        op("MulBackward0", 400, 10, tid=8, **{"Sequence number": 9, "Fwd thread id": 1}),
    ]
    recording = read(events)
    modules = dict(zip(recording.operators["name"], recording.operators["module"], strict=True))
    assert modules["AddmmBackward0"] == "Linear"
    assert modules["aten::mm"] == "Linear"
    assert modules["aten::detach"] == "Attention"
    assert modules["MulBackward0"] == ""


def test_steps_reach_operators_and_kernels_of_any_thread() -> None:
    events = [
        note("ProfilerStep#4", 100, 100),
        note("ProfilerStep#5", 200, 100),
        op("fwd", 110, 20),
        op("bwd", 210, 20, tid=8),
        op("before", 50, 20),
        launch(120, 1),
        kernel("k", 250, 5, 1),
        kernel("unlaunched", 260, 5, 99),
        kernel("after", 900, 5, 98),
    ]
    recording = read(events)
    assert dict(zip(recording.operators["name"], recording.operators["step"], strict=True)) == {
        "fwd": 4,
        "bwd": 5,
        "before": -1,
    }
    assert recording.kernels["step"].tolist() == [4, 5, -1]
    assert recording.steps["step"].tolist() == [4, 5]
    assert recording.steps["thread_id"].tolist() == [TID, TID]


def test_step_numbers_that_repeat_are_made_unique() -> None:
    recording = read([note("ProfilerStep#1", 100, 10), note("ProfilerStep#1", 200, 10), op("x", 205, 1)])
    assert recording.steps["step"].tolist() == [0, 1]
    assert recording.operators["step"].tolist() == [1]
    assert codes(recording)["repeated_steps"] == 1


def test_shapes_types_and_values_are_json_texts() -> None:
    args = {"Input Dims": [[8, 128], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "[1, 2]"]}
    text = json.dumps({"traceEvents": [op("aten::add", 1, 2, **args)]}, indent=4).encode()
    row = read_text(text).operators.iloc[0]
    assert row["input_shapes"] == "[[8,128],[]]"
    assert row["input_dtypes"] == '["float","Scalar"]'
    assert row["input_values"] == '["","[1, 2]"]'


def test_launch_sizes() -> None:
    more = {"grid": [8, 16, 5], "block": [128, 1, 1], "registers per thread": 122, "shared memory": 12544}
    recording = read([kernel("a", 1, 2, 1, **more), kernel("b", 5, 2, 2)])
    row = recording.kernels.iloc[0]
    assert (row["grid"], row["block"], row["threads"]) == ("8x16x5", "128x1x1", 8 * 16 * 5 * 128)
    assert (row["registers"], row["shared_bytes"]) == (122, 12544)
    row = recording.kernels.iloc[1]
    assert (row["grid"], row["threads"], row["registers"]) == ("", -1, -1)
    damaged = read([kernel("c", 1, 2, 1, grid=[-(10**18), 64, 1], block=[32, 1, 1])])
    assert damaged.kernels["threads"].tolist() == [-1]


def test_hip_copies_write_their_size_as_text() -> None:
    events = [
        op("x", 1, 50),
        op("hipMemcpyAsync", 2, 3, cat="cuda_runtime", correlation=1, bytes="9216", stream="0x0"),
        kernel("Memcpy DtoD", 60, 2, 1, cat="gpu_memcpy", bytes="9216"),
    ]
    recording = read(events)
    assert recording.kernels["bytes"].tolist() == [9216.0]
    assert recording.runtime["kind"].tolist() == ["copy"]
    assert codes(recording) == {}


def test_host_events_with_impossible_times() -> None:
    events = [op("fine", EPOCH, 50), op("open", EPOCH + 10, -7), op("never", 0, 5), op("long", EPOCH + 60, 1e18)]
    recording = read(events)
    assert dict(zip(recording.operators["name"], recording.operators["dur_ns"], strict=True)) == {
        "fine": 50_000,
        "open": 0,
        "long": 0,
    }
    assert codes(recording)["odd_host_times"] == 3


def test_counter_ranges_are_named() -> None:
    ranges = [op("k", 5 + i, 1, 0, 0, "cuda_profiler_range", **{"sm__cycles.sum": 3}) for i in range(3)]
    recording = read([op("x", 0, 90), launch(1, 1), *ranges])
    assert codes(recording) == {"cupti_counters": 3, "no_device_activity": 1}


def test_rank_and_versions() -> None:
    recording = read(
        [op("x", 1, 2)], distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8}, cuda_runtime_version=12040
    )
    assert (recording.origin.rank, recording.origin.world_size) == (3, 8)
    assert recording.origin.extra["cuda_runtime_version"] == "12040"
    assert recording.origin.path == "made.json"
