"""Every identity on every real recording beside the checkout, and their independent sums."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from test_properties import check

from profilers.analysis.options import Options
from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.readers import read
from profilers.tables import Recording

NAMES = [
    "a100_cupti_counters_no_kernels.json.gz", "a100_ddp8_rank3_2022.json.gz", "a100_event_sync_multistream.json.gz",
    "a100_launches_but_no_kernels.json", "a100_nccl_meta_2024.json.gz", "a100_triton_one_kernel.json.gz",
    "b200_vllm_tp8_rank0.json.gz", "cpu_only_rank34.json.gz", "dlrm128_rank0_2023.json.gz", "gpu_metrics_2021.json",
    "h100_bert_small.json.gz", "h100_owlv2.json.gz", "h100_qwen_decode.json.gz", "mi210_gpu_only.json.gz",
    "mi250_toy.json.gz", "mi300x_bert_small.json.gz", "mi300x_sglang_decode.json.gz",
    "mi300x_torch_compile_triton.json.gz", "mi3xx_vllm_hipgraph_decode.json.gz", "noschema_resnet50_2020.json.gz",
    "rtx2080ti_resnet_extid_is_corr.json.gz", "v100_ddp2_rank1_2022.json.gz", "v100dgx_resnet50_2021.json.gz",
]  # fmt: skip


@cache
def _prepared(*paths: Path) -> Recording:
    return prepare(read(paths))


@pytest.mark.parametrize("name", NAMES)
def test_identities(traces: Path, name: str) -> None:
    check(_prepared(traces / "kineto" / name))


@pytest.mark.parametrize("name", NAMES)
def test_sums_are_those_worked_out_independently(traces: Path, name: str) -> None:
    expected = json.loads((traces / "expected.json").read_text())[name]["devices"]
    summary = TABLES["summary"].compute(_prepared(traces / "kineto" / name))
    if name.startswith("cpu_only"):
        assert summary["device"].tolist() == ["cpu"]
        return
    assert len(summary) == len(expected)
    for row, values in zip(summary.itertuples(), (expected[key] for key in sorted(expected, key=int)), strict=True):
        assert row.kernels == values["kernels"] and row.distinct_kernels == values["distinct_names"]
        # The sums in the file are rounded to a microsecond.
        assert row.kernel_time_us == pytest.approx(values["kernel_sum_us"], abs=1)
        assert row.busy_us == pytest.approx(values["gpu_union_us"], abs=1)
        assert row.span_us == pytest.approx(values["span_us"], abs=1)
        assert row.unlaunched_kernels == values["kernels_without_launch"]


@pytest.mark.parametrize(
    "name",
    [
        "nsys/h100_2gpu_1s_2026.sqlite",
        "nsys/healthy_1pct.sqlite",
        "nsys/mfu_2gpu_before.sqlite",
        "nsys/rtxa2000_no_cuda_tables.sqlite",
        "ncu/rtx5070_gemm_naive.csv",
        "ncu/rtx5070_saxpy.csv",
    ],
)
def test_identities_of_nsight_recordings(traces: Path, name: str) -> None:
    check(_prepared(traces / name))


def test_ranks_read_together_keep_their_own_steps_and_sums(traces: Path) -> None:
    paths = [traces / "kineto" / f"dlrm128_rank{rank}_2023.json.gz" for rank in (0, 1)]
    both = _prepared(*paths)
    check(both)
    together = TABLES["summary"].compute(both)
    alone = [TABLES["summary"].compute(_prepared(path)) for path in paths]
    for column in ("kernels", "kernel_time_us", "busy_us", "span_us", "gemm_pct", "communication_pct", "steps"):
        assert together[column].tolist() == pytest.approx([frame[column].iloc[0] for frame in alone])
    walls = TABLES["shares"].compute(both).query("share == 'wall'").groupby("device")["time_us"].sum().tolist()
    for path, wall in zip(paths, walls, strict=True):
        shares = TABLES["shares"].compute(_prepared(path)).query("share == 'wall'")
        assert shares["time_us"].sum() == pytest.approx(wall)


def test_the_shape_study_of_a_real_decoder(traces: Path) -> None:
    """Qwen1.5-0.5B on an H100: 24 layers, each with four square projections; none faster than the device."""
    gemms = TABLES["gemms"].compute(_prepared(traces / "kineto" / "h100_qwen_decode.json.gz"))
    known = gemms[gemms["shape"] != ""]
    assert known.loc[known["op"] == "aten::_flash_attention_forward", "calls"].tolist() == [24]
    assert (known["pct_of_peak"] > 0).all() and (known["pct_of_peak"] <= 100).all()
    assert set(known["dtype"]) <= {"bf16", "fp32"}


def test_communication_that_is_not_named_nccl(traces: Path) -> None:
    summary = TABLES["summary"].compute(_prepared(traces / "kineto" / "b200_vllm_tp8_rank0.json.gz")).iloc[0]
    assert summary["communication_pct"] == pytest.approx(100 * 2_142 / 10_863, abs=0.1)


def test_attention_can_be_taken_out_of_gemm(traces: Path) -> None:
    made = _prepared(traces / "kineto" / "h100_qwen_decode.json.gz")
    with_, without = (TABLES["summary"].compute(made, Options(attention_as_gemm=on)).iloc[0] for on in (True, False))
    assert with_["gemm_pct"] - without["gemm_pct"] == pytest.approx(with_["attention_pct"])
