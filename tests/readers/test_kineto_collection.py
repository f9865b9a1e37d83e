"""Real recordings of other people against sums that were computed independently of this project."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kineto_maker import busy_ns, codes, read_file

from profilers.tables import Recording

FILES = [
    "a100_cupti_counters_no_kernels.json.gz",
    "a100_ddp8_rank3_2022.json.gz",
    "a100_event_sync_multistream.json.gz",
    "a100_launches_but_no_kernels.json",
    "a100_nccl_meta_2024.json.gz",
    "a100_triton_one_kernel.json.gz",
    "b200_vllm_tp8_rank0.json.gz",
    "cpu_only_rank34.json.gz",
    "dlrm128_rank0_2023.json.gz",
    "dlrm128_rank1_2023.json.gz",
    "gpu_metrics_2021.json",
    "h100_bert_small.json.gz",
    "h100_owlv2.json.gz",
    "h100_qwen_decode.json.gz",
    "mi210_gpu_only.json.gz",
    "mi250_toy.json.gz",
    "mi300x_bert_small.json.gz",
    "mi300x_sglang_decode.json.gz",
    "mi300x_torch_compile_triton.json.gz",
    "mi3xx_vllm_hipgraph_decode.json.gz",
    "noschema_resnet50_2020.json.gz",
    "rtx2080ti_resnet_extid_is_corr.json.gz",
    "v100_ddp2_rank1_2022.json.gz",
    "v100dgx_resnet50_2021.json.gz",
]
LOSSES = {"lost_events", "repaired_events", "incomplete_events", "unclosed", "odd_types", "odd_host_times"}
ACTIVITIES = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}


def raw_events(path: Path) -> list[dict[str, Any]]:
    """The events as the standard library reads them, with decimals left as text."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    loaded = json.loads(text, parse_float=str)
    return loaded["traceEvents"] if isinstance(loaded, dict) else loaded


def exact_ns(number: Any) -> int:
    return number * 1000 if isinstance(number, int) else int(Decimal(number) * 1000)


@cache
def recording_of(path: Path) -> Recording:
    return read_file(path)


def test_the_list_is_whole(traces: Path) -> None:
    assert sorted(FILES) == sorted(path.name for path in (traces / "kineto").iterdir())


@pytest.mark.parametrize("name", FILES)
def test_sums(traces: Path, name: str) -> None:
    expected = json.loads((traces / "expected.json").read_text())[name]
    recording = recording_of(traces / "kineto" / name)
    assert recording.origin.extra["events"] == str(expected["events"])
    assert not LOSSES & set(codes(recording))
    assert recording.origin.rank == expected["distributed"].get("rank")
    assert recording.origin.world_size == expected["distributed"].get("world_size")
    kernels = recording.kernels
    assert {f"cuda:{index}" for index in expected["devices"]} == set(kernels["device"].unique())
    assert (kernels["flag"] == "").all()
    for index, want in expected["devices"].items():
        mine = kernels[kernels["device"] == f"cuda:{index}"]
        only = mine[mine["kind"] == "kernel"]
        ends = mine["start_ns"] + mine["dur_ns"]
        assert len(only) == want["kernels"]
        assert only["name"].nunique() == want["distinct_names"]
        assert (mine["kind"] == "memcpy").sum() == want["memcpy"]
        assert (mine["kind"] == "memset").sum() == want["memset"]
        assert mine["stream"].nunique() == want["streams"]
        assert (only["launch_ns"] < 0).sum() == want["kernels_without_launch"]
        assert codes(recording).get("unlaunched_kernels", 0) == want["kernels_without_launch"]
        assert only["dur_ns"].sum() == round(want["kernel_sum_us"] * 1000)
        # The reference took ends and their differences in floats of microseconds, each off by at most the float's
        # step at that time (0 for whole microseconds, which are exact).
        step = 0.0 if expected["baseTimeNanoseconds"] is None else np.spacing(8e12) * len(mine) + 0.001
        assert mine["dur_ns"].sum() / 1000 == pytest.approx(want["gpu_sum_us"], rel=0, abs=step)
        assert busy_ns(mine["start_ns"], mine["dur_ns"]) / 1000 == pytest.approx(want["gpu_union_us"], rel=0, abs=step)
        assert (ends.max() - mine["start_ns"].min()) / 1000 == pytest.approx(
            want["span_us"], rel=0, abs=0.0021 if step else 0
        )


@pytest.mark.parametrize("name", FILES)
def test_exact_to_the_nanosecond(traces: Path, name: str) -> None:
    """Every start and length, against decimal arithmetic on the file's own digits."""
    path = traces / "kineto" / name
    recording = recording_of(path)
    spans = [event for event in raw_events(path) if event.get("ph") == "X"]
    base = recording.origin.base_ns
    assert base is not None
    top = json.loads((traces / "expected.json").read_text())[name]
    base -= top["baseTimeNanoseconds"] or 0
    for frame, cats in (
        (recording.kernels, ACTIVITIES),
        (recording.runtime[recording.runtime["kind"] != "loading"], {"cuda_runtime", "cuda_driver", "runtime"}),
        (recording.operators, {"cpu_op"}),
    ):
        wanted = [
            (exact_ns(event["ts"]) - base, exact_ns(event["dur"]), event["name"])
            for event in spans
            if str(event.get("cat")).lower() in cats
        ]
        if cats == {"cpu_op"} and not wanted:
            continue  # The old schemas keep annotations among the operators; see the tests of schemas.
        found = zip(frame["start_ns"], frame["dur_ns"], frame["name"].astype(object), strict=True)
        assert Counter(found) == Counter(wanted)


@pytest.mark.parametrize("name", FILES)
def test_operators_of_kernels(traces: Path, name: str) -> None:
    """How often each operator launched each kernel, against an oracle made from launches and containment."""
    oracle = pd.read_csv(traces / "kernel_names_by_op.tsv", sep="\t", keep_default_na=False, quoting=3)
    oracle = oracle[oracle["trace"] == name]
    recording = recording_of(traces / "kineto" / name)
    only = recording.kernels[recording.kernels["kind"] == "kernel"]
    names = np.append(recording.operators["name"].astype(object).to_numpy(), "-")
    found = Counter(zip(only["name"].astype(object), names[only["op_id"]], strict=True))
    wanted: Counter[tuple[str, str]] = Counter()
    for kernel, operator, count in oracle[["kernel", "inner_op", "count"]].itertuples(index=False):
        wanted[kernel, operator] += int(count)
    assert found == wanted


@pytest.mark.parametrize("name", ["h100_bert_small.json.gz", "h100_qwen_decode.json.gz", "a100_nccl_meta_2024.json.gz"])
def test_links_agree_with_sound_external_ids(traces: Path, name: str) -> None:
    """Where a file's External id does name the operator (it often does not), the link by time finds the same one."""
    events = raw_events(traces / "kineto" / name)
    recording = recording_of(traces / "kineto" / name)
    operators = {
        event["args"]["External id"]: (event["name"], exact_ns(event["ts"]))
        for event in events
        if event.get("cat") == "cpu_op"
    }
    by_correlation = {
        event["args"]["correlation"]: event["args"].get("External id")
        for event in events
        if event.get("cat") == "kernel"
    }
    first = min(start for _, start in operators.values()) - recording.operators["start_ns"].min()
    compared = 0
    for correlation, row in recording.kernels[recording.kernels["op_id"] >= 0][["correlation", "op_id"]].itertuples(
        index=False
    ):
        external = by_correlation.get(correlation)
        if external in operators:
            own = recording.operators.iloc[row]
            assert (own["name"], own["start_ns"] + first) == operators[external]
            compared += 1
    assert compared >= 50


def test_devices_and_what_is_noted(traces: Path) -> None:
    def of(name: str) -> Any:
        return recording_of(traces / "kineto" / name)

    sglang = of("mi300x_sglang_decode.json.gz")
    device = next(one for one in sglang.devices if one.id == "cuda:9")
    assert (device.name, device.kind, device.sm_count) == ("AMD Instinct MI300X", "hip", 304)
    assert codes(sglang)["unlisted_devices"] == 1
    assert sglang.kernels["graph"].sum() == 544

    hipgraph = of("mi3xx_vllm_hipgraph_decode.json.gz")
    assert hipgraph.kernels["graph"].sum() == 421
    assert hipgraph.kernels.loc[hipgraph.kernels["graph"], "name"].nunique() == 20
    assert next(one for one in hipgraph.devices if one.id == "cuda:2").sm_count == 304

    counters = of("a100_cupti_counters_no_kernels.json.gz")
    assert codes(counters) == {"cupti_counters": 77, "no_device_activity": 77}
    launches = of("a100_launches_but_no_kernels.json")
    assert codes(launches) == {"no_device_activity": 260}
    assert next(one.text for one in launches.notes).startswith(
        "260 launches, 0 kernels: CUPTI recorded no GPU activity"
    )
    assert len(launches.operators) == 1206
    alone = of("cpu_only_rank34.json.gz")
    assert codes(alone) == {"cpu_only": 1}
    assert "CPU alone" in alone.notes[0].text
    gpu_only = of("mi210_gpu_only.json.gz")
    assert codes(gpu_only) == {"no_operators": 1}
    assert (gpu_only.kernels["launch_ns"] >= 0).all()


def test_modules_of_python_stacks(traces: Path) -> None:
    recording = recording_of(traces / "kineto" / "h100_qwen_decode.json.gz")
    modules = set(recording.operators["module"].unique())
    assert {"Linear", "Qwen2RMSNorm", "Qwen2MLP", "Qwen2Attention", "SiLU"} <= modules
    norm = recording.operators[recording.operators["module"] == "Qwen2RMSNorm"]
    assert {"aten::pow", "aten::mean", "aten::rsqrt"} <= set(norm["name"].unique())


def test_old_annotations_are_steps_and_no_operators(traces: Path) -> None:
    recording = recording_of(traces / "kineto" / "v100dgx_resnet50_2021.json.gz")
    assert recording.steps["step"].tolist() == [5, 6, 7, 8, 9, 10]
    names = set(recording.operators["name"].unique())
    assert not [name for name in names if name.startswith(("ProfilerStep", "Optimizer.", "enumerate(DataLoader)"))]
    assert "aten::cudnn_convolution" in names
    assert set(recording.kernels["step"].unique()) <= {-1, 5, 6, 7, 8, 9, 10}
