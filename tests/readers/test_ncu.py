"""Pages of Nsight Compute: real ones where they are at hand, and small ones made here, one per trap."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profilers.readers.errors import ReadError
from profilers.readers.ncu import join_counters, read
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS, Recording

FIXED = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
]
TIME = "gpu__time_duration.sum"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"


def quoted(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def fixed(number: int, name: str, block: str = "(32, 1, 1)", grid: str = "(4, 1, 1)", device: str = "0") -> list[str]:
    return [str(number), "9", "app", "127.0.0.1", name, "1", "7", block, grid, device, "9.0"]


def raw(
    path: Path, metrics: dict[str, str], kernels: list[tuple[str, list[str]]], before: str = "", **more: str
) -> Path:
    """A ``raw`` page: ``metrics`` maps names to units, each kernel has a name and its values."""
    rows = [[*FIXED, *metrics], ["" for _ in FIXED] + list(metrics.values())]
    rows += [[*fixed(i, name, **more), *values] for i, (name, values) in enumerate(kernels)]
    path.write_text(before + quoted(rows), encoding="utf-8")
    return path


def long(path: Path, rows: list[tuple[int, str, str, str, str, str]], before: str = "") -> Path:
    """A ``details`` page: (id, kernel, section, metric, unit, value)."""
    table = [[*FIXED, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]]
    table += [[*fixed(number, name), *rest] for number, name, *rest in rows]
    path.write_text(before + quoted(table), encoding="utf-8")
    return path


def codes(recording: Recording) -> dict[str, int]:
    return {note.code: note.count for note in recording.notes}


# Real pages


@pytest.mark.parametrize(
    ("file", "dur_ns", "traffic", "sm", "threads"),
    [
        ("rtx5070_gemm_naive.csv", 9_589_248, 54_207_744 + 26_601_216, 97.32, 4_194_304),
        ("rtx5070_gemm_tiled.csv", 10_195_552, 53_261_312 + 3_377_920, 88.90, 4_194_304),
        ("rtx5070_saxpy.csv", 292_928, 134_221_568 + 43_631_104, 22.30, 16_777_216),
        ("rtx5070_transpose_naive.csv", 163_072, 19_001_600 + 4_399_616, None, 4_194_304),
    ],
)
def test_real_pages(traces: Path, file: str, dur_ns: int, traffic: int, sm: float | None, threads: int) -> None:
    recording = read(traces / "ncu" / file)
    assert KERNELS.problems(recording.kernels) == []
    row = recording.kernels.iloc[0]
    assert len(recording.kernels) == 1
    assert (row["dur_ns"], row["bytes"], row["threads"]) == (dur_ns, traffic, threads)
    assert sm is None or row["sm_pct"] == sm
    assert (row["source"], row["device"], row["stream"]) == ("ncu", "cuda:0", 7)
    assert np.isnan(row["dram_pct"]) and np.isnan(row["flops"])
    assert recording.devices[0].compute_capability == "12.0"
    assert codes(recording) == {"no_clock": 1}


# Small ones, one per trap


def test_raw_page(tmp_path: Path) -> None:
    metrics = {
        "device__attribute_display_name": "",
        "device__attribute_multiprocessor_count": "",
        "dram__bytes_read.sum": "Mbyte",
        "dram__bytes_write.sum": "Kbyte",
        DRAM: "%",
        TIME: "usecond",
        "launch__registers_per_thread": "register/thread",
        "launch__shared_mem_per_block_dynamic": "Kbyte/block",
        "launch__shared_mem_per_block_static": "byte/block",
        SM: "%",
        TENSOR: "%",
    }
    values = ["NVIDIA H100", "132", "1,234.5", "2", "55.5", "1,000.25", "168", "227.328", "1,024", "80.1", "70"]
    other = ["NVIDIA H100", "132", "1", "n/a", "5", "3", "16", "0", "0", "(!) nan", ""]
    recording = read(raw(tmp_path / "a.csv", metrics, [("gemm<float>(float*)", values), ("copy(int)", other)]))
    assert KERNELS.problems(recording.kernels) == []
    first, second = recording.kernels.iloc[0], recording.kernels.iloc[1]
    assert (first["name"], first["grid"], first["block"], first["threads"]) == (
        "gemm<float>(float*)",
        "4x1x1",
        "32x1x1",
        128,
    )
    assert (first["dur_ns"], first["start_ns"], second["start_ns"]) == (1_000_250, 0, 1_000_250)
    assert (first["sm_pct"], first["dram_pct"], first["tensor_pct"]) == (80.1, 55.5, 70)
    assert first["bytes"] == pytest.approx(1_234.5e6 + 2e3)
    assert (first["registers"], first["shared_bytes"]) == (168, 227_328 + 1_024)
    assert np.isnan(second["bytes"]) and np.isnan(second["sm_pct"]) and second["dram_pct"] == 5
    assert (recording.devices[0].name, recording.devices[0].sm_count) == ("NVIDIA H100", 132)


@pytest.mark.parametrize(
    ("unit", "ns"),
    [
        ("ns", 1_500),
        ("nsecond", 1_500),
        ("us", 1_500_000),
        ("usecond", 1_500_000),
        ("msecond", 1_500_000_000),
        ("s", None),
        ("second", None),
    ],
)
def test_units_of_time(tmp_path: Path, unit: str, ns: int | None) -> None:
    recording = read(raw(tmp_path / "a.csv", {TIME: unit}, [("k", ["1,500"])]))
    assert recording.kernels["dur_ns"].tolist() == [ns or 1_500 * 10**9]


def test_a_unit_that_is_not_known_is_left_out_and_counted(tmp_path: Path) -> None:
    recording = read(raw(tmp_path / "a.csv", {TIME: "cycle", SM: "%"}, [("k", ["1,500", "3"])]))
    assert recording.kernels["dur_ns"].tolist() == [0]
    assert codes(recording) == {"unknown_unit": 1, "no_durations": 1, "no_clock": 1}


def test_details_page_keeps_sections_apart(tmp_path: Path) -> None:
    light, memory = "GPU Speed Of Light Throughput", "Memory Workload Analysis"
    rows = [
        (0, "gemm", light, "Memory Throughput", "%", "14.26"),
        (0, "gemm", light, "Duration", "us", "2.85"),
        (0, "gemm", light, "DRAM Throughput", "%", "12.5"),
        (0, "gemm", light, "Compute (SM) Throughput", "%", "61"),
        (0, "gemm", memory, "Memory Throughput", "Gbyte/s", "12,943"),
        (0, "gemm", "Launch Statistics", "Registers Per Thread", "register/thread", "32"),
        (0, "gemm", "Launch Statistics", "Dynamic Shared Memory Per Block", "Kbyte/block", "1.5"),
        (1, "copy", light, "Duration", "ns", "900"),
        (1, "copy", memory, "DRAM Throughput", "byte/s", "900"),
    ]
    kernels = read(long(tmp_path / "a.csv", rows)).kernels
    assert kernels["name"].tolist() == ["gemm", "copy"]
    assert kernels["dur_ns"].tolist() == [2_850, 900]
    np.testing.assert_array_equal(kernels["dram_pct"], [12.5, np.nan])
    np.testing.assert_array_equal(kernels["sm_pct"], [61, np.nan])
    assert (kernels["registers"].iloc[0], kernels["shared_bytes"].iloc[0]) == (32, 1_500)
    assert kernels["source"].tolist() == ["ncu", "none"]


def test_the_programs_output_before_and_between(tmp_path: Path) -> None:
    before = '\ufeff==PROF== Connected to process 9\nloss, 1,5\n"a quote that is not closed\n'
    path = raw(tmp_path / "a.csv", {TIME: "ns"}, [("k", ["1,500"]), ("k", ["1,600"]), ("m", ["7"])], before)
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith('"1"'))
    path.write_text("\r\n".join([*lines[:at], "==PROF== 50%", '3, "x', 'epoch 1, loss "2', *lines[at:], "done", ""]))
    assert read(path).kernels["dur_ns"].tolist() == [1_500, 1_600, 7]


def test_a_line_with_a_stray_quote_costs_only_itself(tmp_path: Path) -> None:
    path = raw(tmp_path / "a.csv", {TIME: "ns"}, [("k", ["1"]), ("k", ["2"]), ("k", ["3"]), ("k", ["4"])])
    path.write_text(path.read_text().replace('"k","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","2"', '"k","1","7","(32'))
    recording = read(path)
    assert recording.kernels["dur_ns"].tolist() == [1, 3, 4]
    assert codes(recording)["lost_lines"] == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_packed_whole_in_members_and_cut_off(tmp_path: Path, encoding: str) -> None:
    text = raw(tmp_path / "a.csv", {TIME: "ns"}, [("k", ["10"]), ("m", ["20"])]).read_text(encoding="utf-8")
    data = text.encode(encoding)
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(data[:100]) + gzip.compress(data[100:]))
    assert read(packed).kernels["dur_ns"].tolist() == [10, 20]
    assert "truncated_gzip" not in codes(read(packed))
    packed.write_bytes(gzip.compress(data)[:-9])
    assert codes(read(packed))["truncated_gzip"] == 1


def test_two_runs_in_one_file(tmp_path: Path) -> None:
    first = raw(tmp_path / "a.csv", {TIME: "ns", SM: "%"}, [("k", ["10", "5"])]).read_text()
    second = raw(tmp_path / "b.csv", {TIME: "us"}, [("m", ["20"])]).read_text()
    (tmp_path / "c.csv").write_text(first + "==PROF== again\n" + second)
    kernels = read(tmp_path / "c.csv").kernels
    assert kernels["name"].tolist() == ["k", "m"]
    assert kernels["dur_ns"].tolist() == [10, 20_000]
    assert kernels["start_ns"].tolist() == [0, 10]


def test_decimal_commas(tmp_path: Path) -> None:
    recording = read(raw(tmp_path / "a.csv", {TIME: "ns", SM: "%"}, [("k", ["1.500", "45,67"]), ("k", ["12", "5,1"])]))
    assert recording.kernels["dur_ns"].tolist() == [1_500, 12]
    assert recording.kernels["sm_pct"].tolist() == [45.67, 5.1]
    assert codes(recording)["decimal_comma"] == 1


def test_devices_and_their_own_order(tmp_path: Path) -> None:
    rows = [[*FIXED, TIME], ["" for _ in FIXED] + ["ns"]]
    rows += [[*fixed(i, "k", device=device), "10"] for i, device in enumerate("0101")]
    (tmp_path / "a.csv").write_text(quoted(rows))
    recording = read(tmp_path / "a.csv")
    assert recording.kernels["device"].tolist() == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert recording.kernels["start_ns"].tolist() == [0, 0, 10, 10]
    assert [device.id for device in recording.devices] == ["cuda:0", "cuda:1"]


def test_flops_from_instruction_counts(tmp_path: Path) -> None:
    names = [
        f"sm__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum" for kind in "fhd" for op in ("add", "mul", "fma")
    ]
    metrics = dict.fromkeys(names, "inst") | {TENSOR: "%"}
    numbers = [str(10**i) for i in range(9)]
    recording = read(
        raw(tmp_path / "a.csv", metrics, [("k", [*numbers, "0"]), ("m", [*numbers, "30"]), ("z", ["0"] * 10)])
    )
    flops = recording.kernels["flops"].tolist()
    assert flops[0] == 1 + 10 + 200 + 1e3 + 1e4 + 2e5 + 1e6 + 1e7 + 2e8
    # Tensor cores ran and nobody counted what they did.
    assert np.isnan(flops[1]) and flops[2] == 0
    assert codes(recording)["flops_without_tensor"] == 1


def test_flops_with_tensor_operations_and_of_one_precision_only(tmp_path: Path) -> None:
    metrics = {
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum": "Kinst",
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": "",
        "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_on.sum": "",
        TENSOR: "%",
    }
    kernels = read(
        raw(tmp_path / "a.csv", metrics, [("k", ["1.5", "1,000,000", "5", "9"]), ("half", ["0", "0", "0", "0"])])
    ).kernels
    # Only single precision was counted: none found does not mean none done.
    np.testing.assert_array_equal(kernels["flops"], [1_003_000, np.nan])


def test_tensor_activity_of_active_time_is_marked(tmp_path: Path) -> None:
    name = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
    recording = read(raw(tmp_path / "a.csv", {name: "%", TIME: "ns"}, [("k", ["33", "4"])]))
    assert recording.kernels["tensor_pct"].tolist() == [33]
    assert codes(recording)["tensor_of_active"] == 1


def test_sizes_from_metrics_where_the_columns_are_missing(tmp_path: Path) -> None:
    names = ["ID", "Process ID", "Kernel Name", TIME, "launch__thread_count"]
    names += [f"launch__{word}_dim_{axis}" for word in ("grid", "block") for axis in "xyz"]
    (tmp_path / "a.csv").write_text(
        quoted([names, ["", "", "", "ns"] + [""] * 7, ["0", "1", "k", "5", "1,024", *"411", *"811"]])
    )
    row = read(tmp_path / "a.csv").kernels.iloc[0]
    assert (row["grid"], row["block"], row["threads"], row["device"]) == ("4x1x1", "8x1x1", 32, "cuda:0")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("==PROF== nothing\n", "no table of ncu"),
        (quoted([[*FIXED, TIME]]), "without a kernel"),
        (quoted([[*FIXED, TIME]]) + "==PROF== no kernels were profiled\n", "without a kernel"),
    ],
)
def test_nothing_to_read(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ReadError, match=says):
        read(tmp_path / "a.csv")


# Counters onto another recording


def recording_of(rows: list[dict[str, Any]], source: str = "none", start: int = 0) -> Recording:
    base = {
        "kind": "kernel",
        "device": "cuda:0",
        "dur_ns": 5,
        "grid": "4x1x1",
        "block": "32x1x1",
        "threads": 128,
        "source": source,
    }
    made = [{**base, "start_ns": start + 10 * i, **row} for i, row in enumerate(rows)]
    return Recording(OPERATORS.empty(), KERNELS.conform(pd.DataFrame(made)), STEPS.empty(), RUNTIME.empty())


def measured(rows: list[dict[str, Any]]) -> Recording:
    return recording_of([{"sm_pct": float(i + 1), **row} for i, row in enumerate(rows)], "ncu")


def test_by_full_name_launch_and_order(tmp_path: Path) -> None:
    ours = recording_of(
        [{"name": "a(int)"}, {"name": "b"}, {"name": "a(int)"}, {"name": "copy", "kind": "memcpy"}, {"name": "x"}]
    )
    joined, hit, miss = join_counters(
        ours, measured([{"name": "a(int)"}, {"name": "a(int)", "bytes": 9.0}, {"name": "b"}, {"name": "c"}])
    )
    np.testing.assert_array_equal(joined.kernels["sm_pct"], [1, 3, 2, np.nan, np.nan])
    np.testing.assert_array_equal(joined.kernels["bytes"], [np.nan, np.nan, 9, np.nan, np.nan])
    assert joined.kernels["source"].tolist() == ["ncu", "ncu", "ncu", "none", "none"]
    assert (hit, miss) == (3, 1)
    assert codes(joined) == {"ncu_matched": 3, "ncu_unmatched": 1, "ncu_unused": 1}
    assert KERNELS.problems(joined.kernels) == []
    assert "out of 4" in joined.notes[0].text
    # The recording that was given is untouched.
    assert ours.kernels["sm_pct"].isna().all()


def test_more_steps_than_were_measured_repeat_the_counters() -> None:
    ours = recording_of([{"name": name} for name in "abaaba"])
    joined, hit, _ = join_counters(ours, measured([{"name": "a"}, {"name": "b"}, {"name": "a"}]))
    assert joined.kernels["sm_pct"].tolist() == [1, 2, 3, 1, 2, 3]
    assert hit == 6 and codes(joined) == {"ncu_matched": 6, "ncu_repeated": 3}


def test_the_same_name_with_other_dimensions_is_last_choice_and_said() -> None:
    ours = recording_of(
        [{"name": "a", "grid": "8x1x1"}, {"name": "a", "grid": "4x1x1"}, {"name": "a", "grid": "2x1x1"}]
    )
    joined, _, _ = join_counters(ours, measured([{"name": "a", "grid": "4x1x1"}, {"name": "a", "grid": "8x1x1"}]))
    assert joined.kernels["sm_pct"].tolist() == [2, 1, 1]
    assert codes(joined)["ncu_by_name"] == 1


@pytest.mark.parametrize(
    ("recorded", "profiled"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
            "(int, at::native::FillFunctor<float>)",
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, "
            "std::array<char *, (unsigned long)1>>(int, T2, T3)",
        ),
        ("(anonymous namespace)::gemm_naive(float const*, int)", "unnamed>::gemm_naive(const float *, int)"),
        ("void (anonymous namespace)::softmax<8, true>(float*)", "void <unnamed>::softmax<(int)8, (bool)1>(float *)"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"),
    ],
)
def test_spellings(recorded: str, profiled: str) -> None:
    # A second kernel of that bare name on our side: only the full names can tell which one is meant.
    bare = recorded.removeprefix("void ").split("<")[0].split("(float")[0]
    others = [{"name": f"{bare}<other>(int)"}]
    joined, hit, _ = join_counters(recording_of([{"name": recorded}, *others]), measured([{"name": profiled}]))
    assert hit == 1 and joined.kernels["source"].tolist() == ["ncu", "none"]


def test_different_functors_of_one_template_are_not_mixed_up() -> None:
    ours = recording_of([{"name": "void k<4, Add>(int)"}, {"name": "void k<4, Mul>(int)"}])
    joined, hit, miss = join_counters(
        ours, measured([{"name": "void k<(int)4, Mul>(int)"}, {"name": "void k<4, Fill>(int)"}])
    )
    np.testing.assert_array_equal(joined.kernels["sm_pct"], [np.nan, 1])
    assert (hit, miss) == (1, 1)


def test_bare_names_only_where_the_sequences_agree() -> None:
    names = ["void k<Add>(int)", "void k<Mul>(int)", "void k<Add>(int)", "void k<Mul>(int)"]
    ours = recording_of([{"name": name, "threads": 128 * (1 + i % 2)} for i, name in enumerate(names)])
    joined, hit, _ = join_counters(ours, measured([{"name": "k", "threads": 128}, {"name": "k", "threads": 256}]))
    assert hit == 4 and joined.kernels["sm_pct"].tolist() == [1, 2, 1, 2]
    _, hit, _ = join_counters(ours, measured([{"name": "k", "threads": 256}, {"name": "k", "threads": 128}]))
    assert hit == 0


def test_each_device_takes_its_own_counters_or_the_only_ones() -> None:
    ours = recording_of([{"name": "a", "device": device} for device in ("cuda:0", "cuda:1", "cuda:0", "cuda:1")])
    joined, _, _ = join_counters(ours, measured([{"name": "a"}, {"name": "a"}]))
    assert joined.kernels["sm_pct"].tolist() == [1, 1, 2, 2]
    joined, _, _ = join_counters(ours, measured([{"name": "a"}, {"name": "a", "device": "cuda:1"}]))
    assert joined.kernels["sm_pct"].tolist() == [1, 2, 1, 2]


def test_counters_without_percentages_do_not_claim_to_have_some() -> None:
    joined, hit, _ = join_counters(
        recording_of([{"name": "a"}]), measured([{"name": "a", "sm_pct": np.nan, "bytes": 7.0}])
    )
    assert hit == 1
    assert joined.kernels["source"].tolist() == ["none"] and joined.kernels["bytes"].tolist() == [7]


def test_nothing_to_join() -> None:
    ours = recording_of([{"name": "c", "kind": "memcpy"}])
    assert join_counters(ours, measured([{"name": "a"}])) == (ours, 0, 0)
    joined, hit, miss = join_counters(recording_of([{"name": "b"}]), measured([{"name": "a"}]))
    assert (hit, miss) == (0, 1) and codes(joined) == {"ncu_matched": 0, "ncu_unmatched": 1, "ncu_unused": 1}
