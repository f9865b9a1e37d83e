"""Which device has which peak, where it comes from, and that nothing is made up for a device nobody knows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tables_maker import kernel, operator, recording

from profilers.analysis.gemms import gemms
from profilers.analysis.options import Options
from profilers.analysis.peaks import (
    Peaks,
    PeaksError,
    cpu_estimate,
    device_peaks,
    known_devices,
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
        ("NVIDIA A10", None, "A10", 125, 600),
        ("NVIDIA A10G", None, "A10G", 70, 600),
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
        ("NVIDIA H800 PCIe", None, "H800 PCIe", 756, 2039),
        ("NVIDIA H800", None, "H800 SXM", 989.4, 3352),
        ("NVIDIA H200 NVL", None, "H200 NVL", 835.5, 4800),
        ("NVIDIA GH200 144G HBM3e", 151.0, "GH200 (144GB HBM3e)", 989.4, 4900),
        ("NVIDIA B200", None, "B200", 2250, 8000),
        ("NVIDIA B300 SXM6 AC", None, "B300", 2250, 8000),
        ("NVIDIA GB200", None, "GB200 (one of its GPUs)", 2500, 8000),
        ("NVIDIA GB300", None, "GB300 (one of its GPUs)", 2500, 8000),
        ("AMD Instinct MI210", None, "MI210", 181, 1638),
        ("AMD Instinct MI250X", None, "MI250X (one of its two dies)", 191.5, 1638),
        ("AMD Instinct MI300X VF", None, "MI300X", 1307.4, 5325),
        ("AMD Instinct MI325X", None, "MI325X", 1307.4, 6000),
        ("AMD Instinct MI350X", None, "MI350X", 2306.9, 8000),
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


FP32_CLOCKS = {
    # Name -> (MHz at which the datasheet's fp32 is reached, fp32 operations a cycle of one SM or compute unit).
    "P100 PCIe": (1303, 128),
    "P100 SXM2": (1480, 128),
    "V100S PCIe": (1597, 128),
    "V100 PCIe": (1380, 128),
    "V100 SXM2 and DGX Station": (1530, 128),
    "T4": (1590, 128),
    "RTX 2080 Ti": (1545, 128),
    "A100 PCIe 80GB": (1410, 128),
    "A100 SXM 80GB": (1410, 128),
    "A100 40GB": (1410, 128),
    "A10G": (1710, 256),
    "A10": (1695, 256),
    "A30": (1440, 128),
    "A40": (1740, 256),
    "RTX A6000": (1800, 256),
    "RTX A2000 12GB": (1200, 256),
    "L40S": (2520, 256),
    "L40": (2490, 256),
    "L4": (2040, 256),
    "RTX 3090": (1695, 256),
    "RTX 4090": (2520, 256),
    "RTX 5070": (2512, 256),
    "RTX 5090": (2407, 256),
    "GH200 (144GB HBM3e)": (1980, 256),
    "GH200 (96GB HBM3)": (1980, 256),
    "H200 NVL": (1785, 256),
    "H200 SXM": (1980, 256),
    "H100 NVL": (1785, 256),
    "H100 PCIe": (1755, 256),
    "H800 PCIe": (1755, 256),
    "H100 SXM": (1980, 256),
    "H800 SXM": (1980, 256),
    "B200": (1965, 256),
    "GB200 (one of its GPUs)": (2062, 256),
    "B300": (1965, 256),
    "GB300 (one of its GPUs)": (2062, 256),
    "MI210": (1700, 256),
    "MI250X (one of its two dies)": (1700, 256),
    "MI250 (one of its two dies)": (1700, 256),
    "MI300A": (2100, 256),
    "MI300X": (2100, 256),
    "MI325X": (2100, 256),
    "MI350X": (2200, 256),
    "MI355X": (2400, 256),
}

FP16 = {
    # Operations a cycle of one SM or compute unit, with fp32 accumulate: only where fp16 and fp32 are of one clock.
    **dict.fromkeys(("P100 PCIe", "P100 SXM2"), 256),
    **dict.fromkeys(("RTX 2080 Ti", "A10G", "L40", "RTX 3090", "RTX 4090", "RTX 5070", "RTX 5090"), 512),
    **dict.fromkeys(("V100S PCIe", "V100 PCIe", "V100 SXM2 and DGX Station", "T4"), 1024),
    **dict.fromkeys(("A10", "A40", "RTX A6000", "RTX A2000 12GB", "L40S", "L4"), 1024),
    **dict.fromkeys(("MI210", "MI250X (one of its two dies)", "MI250 (one of its two dies)"), 1024),
    **dict.fromkeys(("A100 PCIe 80GB", "A100 SXM 80GB", "A100 40GB", "A30", "MI300A", "MI300X", "MI325X"), 2048),
    **dict.fromkeys(("MI350X", "MI355X"), 4096),
}
HOPPER_TENSOR_MHZ = {"H100 SXM": 1830, "H800 SXM": 1830, "H200 SXM": 1830, "H100 PCIe": 1620, "H800 PCIe": 1620}


@pytest.mark.parametrize("peaks", known_devices(), ids=lambda p: p.name)
def test_rates_are_units_times_clock_times_operations_a_cycle(peaks: Peaks) -> None:
    assert peaks.sm_count is not None
    mhz, each = FP32_CLOCKS[peaks.name]
    assert peaks.fp32 == pytest.approx(peaks.sm_count * mhz * each / 1e6, rel=0.013)
    if peaks.name in FP16:
        assert peaks.fp16 == pytest.approx(peaks.sm_count * mhz * FP16[peaks.name] / 1e6, rel=0.013)
    if peaks.name in HOPPER_TENSOR_MHZ:
        assert peaks.fp16 == pytest.approx(peaks.sm_count * HOPPER_TENSOR_MHZ[peaks.name] * 4096 / 1e6, rel=0.001)


@pytest.mark.parametrize("peaks", known_devices(), ids=lambda p: p.name)
def test_types_keep_the_ratios_of_tensor_cores(peaks: Peaks) -> None:
    """Half the bits, twice the rate; bf16 as fp16. A sparse figure among dense ones would be twice too much."""
    amd = peaks.name.startswith("MI")
    if not math.isnan(peaks.bf16):
        assert peaks.bf16 == peaks.fp16
    if not math.isnan(peaks.tf32):
        assert peaks.tf32 == pytest.approx(peaks.fp16 / 2, rel=0.02)
    if not math.isnan(peaks.fp8):
        assert peaks.fp8 == pytest.approx(peaks.fp16 * 2, rel=0.02)
    if not math.isnan(peaks.int8) and peaks.name not in ("B300", "MI210") and not peaks.name.startswith("MI250"):
        # GeForce's half rate is of fp32 accumulate: int8 accumulates in int32 at full rate. The A10G has none of that.
        full = 4 if "RTX" in peaks.name and not peaks.name.startswith("RTX A") else 2
        assert peaks.int8 == pytest.approx(peaks.fp16 * full, rel=0.02)
    assert amd or math.isnan(peaks.fp64) or peaks.fp64 <= peaks.fp32


def test_what_was_not_checked_is_said_where_the_figure_is_from() -> None:
    checked = device_peaks(Device("cuda:0", "NVIDIA A10G"))
    assert checked is not None and checked.cite == "NVIDIA and AWS A10G datasheet"
    unsure = device_peaks(Device("cuda:0", "NVIDIA A30"))
    assert unsure is not None and unsure.cite.endswith("(not checked: fp64, tf32, int8)") and unsure.source == "table"
    said = [unsure.source_of(dtype) for dtype in ("fp16", "tf32", "uint8", "", "fp8")]
    assert said == ["table", "unchecked", "unchecked", "table", ""]
    # A type that the device lacks is the one that stands in for it.
    volta = device_peaks(Device("cuda:0", "Tesla V100-SXM2-16GB"))
    assert volta is not None and volta.source_of("tf32") == "table"


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
        ('[[device]]\nname = "x"\nfp32 = 1\nunchecked = ["fp16"]', "does not have: fp16"),
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
    unnamed = device_peaks(Device("cpu", "", kind="cpu"))
    assert unnamed is not None and unnamed.fp32 == local_cpu().fp32 and "this machine's is taken" in unnamed.cite
    assert device_peaks(Device("cpu", "Somebody Else's CPU", kind="cpu")) is None


def test_given_peaks_come_before_all() -> None:
    given = Peaks("here", fp32=1.0, source="given")
    made = recording([kernel(0, 10)])
    assert recording_peaks(made)["cuda:0"].name == "H100 SXM"
    assert recording_peaks(made, Options(peaks={"cuda:0": given}))["cuda:0"] is given


def test_gemms_say_where_their_peak_is_from() -> None:
    def source(device: str, dtype: str) -> str:
        shapes = {"input_shapes": "[[64,64],[64,64]]", "input_dtypes": f'["{dtype}","{dtype}"]'}
        operators = [operator(0, 0, 9, "aten::mm", group="matmul", flops=2.0 * 64**3, bytes=24_576.0, **shapes)]
        made = recording([kernel(0, 10, "g", "matmul", op_id=0)], operators, devices=[Device("cuda:0", device)])
        (found,) = gemms(made, Options())["peak_source"]
        return str(found)

    assert source("NVIDIA A30", "c10::Half") == "table"
    assert source("NVIDIA A30", "signed char") == "unchecked"
    assert source("Somebody's card", "c10::Half") == ""
    remember([Peaks("NVIDIA A30", fp16=150.0, source="measured")])
    assert source("NVIDIA A30", "c10::Half") == "measured"
