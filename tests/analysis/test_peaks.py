"""Which device has which peak, where it comes from, and that nothing is made up for a device nobody knows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tables_maker import kernel, recording

from profilers.analysis.options import Options
from profilers.analysis.peaks import (
    Peaks,
    PeaksError,
    cpu_estimate,
    device_peaks,
    local_cpu,
    recording_peaks,
    remember,
    to_toml,
    user_file,
)
from profilers.tables import Device


@pytest.mark.parametrize(
    ("name", "memory_gb", "entry", "fp16", "gb_s"),
    [
        ("Tesla P100-PCIE-16GB", None, "P100 PCIe", 18.7, 732),
        ("Tesla P100-SXM2-16GB", None, "P100 SXM2", 21.2, 732),
        ("Tesla V100-SXM2-16GB", None, "V100 SXM2 and DGX Station", 125, 900),
        ("Tesla V100-PCIE-32GB", None, "V100 PCIe", 112, 900),
        ("Tesla V100-DGXS-32GB", None, "V100 SXM2 and DGX Station", 125, 900),
        ("Tesla T4", None, "T4", 65, 320),
        ("NVIDIA GeForce RTX 2080 Ti", None, "RTX 2080 Ti", 53.8, 616),
        ("NVIDIA A100-PG509-200", 42.5, "A100 40GB", 312, 1555),
        ("NVIDIA A100-PG509-200", 85.1, "A100 SXM 80GB", 312, 2039),
        ("NVIDIA A100-PG509-200", None, "A100 40GB", 312, 1555),
        ("NVIDIA A100-SXM4-40GB", 42.4, "A100 40GB", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", 85.1, "A100 SXM 80GB", 312, 2039),
        ("NVIDIA A100 80GB PCIe", 85.0, "A100 PCIe 80GB", 312, 1935),
        ("NVIDIA A10G", None, "A10", 125, 600),
        ("NVIDIA A30", None, "A30", 165, 933),
        ("NVIDIA A40", None, "A40", 149.7, 696),
        ("NVIDIA RTX A6000", None, "RTX A6000", 154.8, 768),
        ("NVIDIA RTX A2000 12GB", None, "RTX A2000 12GB", 31.9, 288),
        ("NVIDIA L4", None, "L4", 121, 300),
        ("NVIDIA L40S", None, "L40S", 362, 864),
        ("NVIDIA GeForce RTX 3090", None, "RTX 3090", 71.2, 936),
        ("NVIDIA GeForce RTX 4090", None, "RTX 4090", 165.2, 1008),
        ("NVIDIA GeForce RTX 5090", None, "RTX 5090", 209.5, 1792),
        ("NVIDIA H100 80GB HBM3", 85.0, "H100 SXM", 989.4, 3352),
        ("NVIDIA H100 PCIe", None, "H100 PCIe", 756, 2039),
        ("NVIDIA H100 NVL", None, "H100 NVL", 835.5, 3938),
        ("NVIDIA H200", None, "H200 SXM", 989.4, 4800),
        ("NVIDIA GH200 480GB", 102.0, "GH200 (96GB HBM3)", 989.4, 4000),
        ("NVIDIA B200", None, "B200", 2250, 8000),
        ("AMD Instinct MI210", None, "MI210", 181, 1638),
        ("AMD Instinct MI250X", None, "MI250X (one of its two dies)", 191.5, 1638),
        ("AMD Instinct MI300X VF", None, "MI300X", 1307.4, 5325),
        ("AMD Instinct MI325X", None, "MI325X", 1307.4, 6000),
        ("AMD Instinct MI355X", None, "MI355X", 2516.6, 8000),
    ],
)
def test_names_as_drivers_write_them(name: str, memory_gb: float | None, entry: str, fp16: float, gb_s: float) -> None:
    memory = None if memory_gb is None else int(memory_gb * 1e9)
    peaks = device_peaks(Device("cuda:0", name, memory_bytes=memory))
    assert peaks is not None and (peaks.name, peaks.tflops("fp16"), peaks.memory_gb_s) == (entry, fp16, gb_s)
    assert peaks.source == "table" and peaks.cite


@pytest.mark.parametrize("name", ["", "AMD Radeon Graphics", "NVIDIA GeForce RTX 4090 Laptop GPU", "Quadro P4000"])
def test_an_unknown_device_has_no_peak(name: str) -> None:
    assert device_peaks(Device("cuda:0", name)) is None


def test_a_slice_of_a_device_has_a_slice_of_its_peak() -> None:
    peaks = device_peaks(Device("cuda:0", "NVIDIA H100 80GB HBM3", sm_count=66))
    assert peaks is not None and peaks.source == "estimated"
    assert peaks.tflops("bf16") == pytest.approx(989.4 / 2) and "66 of 132" in peaks.cite


def test_types_that_a_device_lacks_are_not_known() -> None:
    peaks = device_peaks(Device("cuda:0", "Tesla V100-SXM2-16GB"))
    assert peaks is not None
    assert math.isnan(peaks.tflops("fp8")) and math.isnan(peaks.tflops("bf16")) and math.isnan(peaks.tflops("int64"))
    assert peaks.tflops("tf32") == peaks.tflops("") == peaks.fp32 == 15.7


def test_the_users_file_comes_first_and_keeps_what_it_had(tmp_path: Path) -> None:
    measured = Peaks("NVIDIA H200", fp32=60.0, fp16=800.0, memory_gb_s=4300.0, source="measured", cite='8192^3, "cold"')
    path = remember([measured])
    assert path == user_file()
    assert device_peaks(Device("cuda:0", "NVIDIA H200")) == measured
    remember([Peaks("My Card", fp32=1.0, memory_gb_s=10.0, source="given")])
    assert device_peaks(Device("cuda:0", "NVIDIA H200")) == measured
    mine = device_peaks(Device("cuda:0", "My Card"))
    assert mine is not None and mine.source == "given" and mine.fp32 == 1.0
    again = Peaks("NVIDIA H200", fp32=61.0, source="measured")
    remember([again])
    found = device_peaks(Device("cuda:0", "NVIDIA H200"))
    assert found is not None and found.fp32 == 61.0 and path.read_text().count("NVIDIA H200") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[device]", "peaks.toml"),
        ("[[device]]\nfp32 = 1", "number 1"),
        ('[[device]]\nname = "x"\nfp32 = 0', "above 0"),
        ('[[device]]\nname = "x"\npattern = "("', "number 1"),
        ('[[device]]\nname = "x"\nfp32 = "fast"', "number 1"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "peaks.toml"
    path.write_text(text)
    with pytest.raises(PeaksError, match=says):
        device_peaks(Device("cuda:0", "NVIDIA H200"), path)


def test_written_peaks_read_back_the_same(tmp_path: Path) -> None:
    items = [
        Peaks('a\\b "c"', fp32=1.5, sm_count=3, source="measured", cite="x"),
        Peaks("d", memory_gb_s=2.0, source="given"),
    ]
    path = tmp_path / "peaks.toml"
    path.write_text(to_toml(items))
    for item in items:
        found = device_peaks(Device("cuda:0", item.name), path)
        assert found is not None and to_toml([found]) == to_toml([item])


def test_processors_are_estimated_from_cores_clock_and_vectors() -> None:
    wide = cpu_estimate("x", 8, 2.5, ["avx2", "fma", "avx512f", "amx_bf16", "avx512_vnni"])
    assert wide.fp32 == pytest.approx(8 * 2.5 * 64 / 1e3) and wide.bf16 == pytest.approx(16 * wide.fp32)
    assert wide.source == "estimated" and "estimated from core count" in wide.cite
    assert cpu_estimate("x", 8, 2.5, ["avx2", "fma"]).fp32 == pytest.approx(wide.fp32 / 2)
    assert cpu_estimate("x", 1, 1.0, []).fp32 == pytest.approx(0.016)
    assert local_cpu().fp32 > 0 and local_cpu().memory_gb_s > 0


def test_only_this_machines_processors_are_estimated() -> None:
    assert device_peaks(Device("cpu", local_cpu().name, kind="cpu")) == local_cpu()
    assert device_peaks(Device("cpu", "Somebody Else's CPU", kind="cpu")) is None


def test_given_peaks_come_before_all() -> None:
    given = Peaks("here", fp32=1.0, source="given")
    made = recording([kernel(0, 10)])
    assert recording_peaks(made)["cuda:0"].name == "H100 SXM"
    assert recording_peaks(made, Options(peaks={"cuda:0": given}))["cuda:0"] is given
