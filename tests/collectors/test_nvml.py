"""The real nvidia-ml-py against a stand-in library built here: many GPUs, a lost one, MIG, missing functions, faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profilers.collectors.telemetry.devices import visible
from profilers.collectors.telemetry.nvml import Gpu, _versions, clock_reasons

CODE = """
import dataclasses, json
from profilers.collectors.telemetry.nvidia import NvmlCollector
from profilers.collectors.telemetry.nvml import Nvml
from profilers.collectors.telemetry.devices import list_devices, visible
nvml = Nvml()
collector = NvmlCollector(nvml, visible(nvml.gpus))
first, second = collector.sample(), collector.sample()
print(json.dumps({
    "reason": nvml.reason,
    "driver": nvml.driver,
    "rows": [dataclasses.asdict(row) for row in list_devices(nvml)],
    "first": [[s.device, s.metric, s.value, s.unit, s.reason] for s in first],
    "second": [[s.device, s.metric, s.value, s.unit, s.reason] for s in second],
    "visible": {name: gpu.uuid for name, gpu in visible(nvml.gpus)},
}))
"""


def ask(library: Path, **environment: str) -> dict:
    given = {**os.environ, "LD_LIBRARY_PATH": str(library), **environment}
    for name in ("CUDA_VISIBLE_DEVICES",):
        if name not in environment:
            given.pop(name, None)
    done = subprocess.run([sys.executable, "-c", CODE], env=given, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_sixteen_gpus_one_lost(library):
    found = ask(library, STUB_COUNT="16", STUB_LOST="3", STUB_PID=str(os.getpid()))
    assert (found["reason"], found["driver"]) == ("", "580.65.06")
    rows = {row["device"]: row for row in found["rows"]}
    assert list(rows) == [f"cuda:{i}" for i in range(16)] + ["cpu"]
    assert rows["cuda:15"] == {
        "device": "cuda:15",
        "name": "NVIDIA H100",
        "uuid": "GPU-0015-aaaa",
        "kind": "cuda",
        "memory_total_gb": 80.0,
        "memory_used_gb": 10.0,
        "utilization_pct": 25.0,
        "users": "",
        "note": "",
        "lost": False,
    }
    assert rows["cuda:3"]["lost"] and rows["cuda:3"]["utilization_pct"] is None and "lost" in rows["cuda:3"]["note"]
    # One of the two processes is ours; the other's id means nothing here.
    assert "somebody outside this container" in rows["cuda:0"]["users"] and "," in rows["cuda:0"]["users"]
    assert rows["cpu"]["note"] == ""
    assert found["visible"]["cuda:1"] == "GPU-0001-aaaa"

    by_metric = {(device, metric): (value, unit, why) for device, metric, value, unit, why in found["first"]}
    assert by_metric["cuda:0", "util_pct"] == (10.0, "%", "")
    assert by_metric["cuda:0", "memory_used_gb"] == (10.0, "GB", "")
    assert by_metric["cuda:0", "power_w"] == (350.5, "W", "")
    assert by_metric["cuda:0", "clock_mhz"] == (1980.0, "MHz", "")
    assert by_metric["cuda:0", "memory_clock_mhz"] == (2619.0, "MHz", "")
    assert by_metric["cuda:0", "temperature_c"] == (61.0, "C", "")
    assert by_metric["cuda:0", "clock_reasons"] == (0x204, "bits", "")
    assert by_metric["cuda:0", "processes"][0] == 2.0
    assert by_metric["cuda:0", "energy_j"][0] > 1000
    assert by_metric["cuda:3", "power_w"][0] is None and "lost" in by_metric["cuda:3", "power_w"][2]
    assert by_metric["cuda:4", "power_w"][0] == 350.5
    # The process list is slow: it is not asked for again at once.
    assert "processes" not in {metric for _, metric, *_ in found["second"]}


def test_an_old_driver_lacks_functions_and_says_which(old_library):
    found = ask(old_library)
    by_metric = {(device, metric): (value, why) for device, metric, value, _, why in found["first"]}
    # A value less, with its reason, and nothing else changes.
    assert by_metric["cuda:0", "energy_j"] == (None, "not in this driver")
    assert by_metric["cuda:0", "clock_reasons"] == (0x204, "")
    assert by_metric["cuda:0", "sm_pct"] == (None, "the driver has no GPM (not in this driver)")
    assert by_metric["cuda:0", "power_w"] == (350.5, "")


def test_mig_instances_are_devices_of_their_own(library):
    found = ask(library, STUB_COUNT="2", STUB_MIG="0")
    rows = found["rows"]
    assert [(row["device"], row["kind"], row["uuid"]) for row in rows] == [
        ("cuda:0", "mig", "MIG-0000-0"),
        ("cuda:1", "mig", "MIG-0000-1"),
        ("cuda:2", "cuda", "GPU-0001-aaaa"),
        ("cpu", "cpu", ""),
    ]
    assert rows[0]["utilization_pct"] is None
    assert rows[0]["note"] == "utilization: not supported by this device"


@pytest.mark.parametrize(
    ("code", "words"),
    [("9", "not loaded"), ("18", "different versions"), ("4", "may not talk"), ("999", "does not answer")],
)
def test_a_driver_that_does_not_open_says_why(library, code, words):
    found = ask(library, STUB_INIT=code)
    assert words in found["reason"]
    assert [row["device"] for row in found["rows"]] == ["cpu"]
    assert found["rows"][0]["note"] == found["reason"]
    assert found["first"] == []


def test_a_mismatch_names_both_versions(library, tmp_path):
    (tmp_path / "libnvidia-ml.so.580.82.07").write_bytes((library / "libnvidia-ml.so.1").read_bytes())
    (tmp_path / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.82.07")
    assert ask(tmp_path, STUB_INIT="18")["reason"].endswith("library 580.82.07)")
    module = tmp_path / "version"
    for text in (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 2025\nGCC version: 12",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build",
    ):
        module.write_text(text)
        assert _versions(module, tmp_path / "none") == " (module 580.65.06)"
    assert _versions(tmp_path / "none", tmp_path / "none") == ""


def test_no_device_shown(library):
    assert "shows no device" in ask(library, STUB_COUNT="0")["reason"]


def test_no_driver_at_all():
    found = ask(Path("/nonexistent"))
    if found["reason"] == "":
        pytest.skip("this machine has a driver")
    assert "no NVIDIA driver" in found["reason"]


def gpus() -> list[Gpu]:
    whole = [Gpu(None, i, f"g{i}", f"GPU-{i}abc") for i in range(3)]
    return [*whole, Gpu(None, 2, "m", "MIG-77", kind="mig")]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ["GPU-0abc", "GPU-1abc", "MIG-77"]),
        ("", []),
        ("-1", []),
        ("1,0", ["GPU-1abc", "GPU-0abc"]),
        ("1,7,0", ["GPU-1abc"]),
        ("GPU-1,MIG-77", ["GPU-1abc", "MIG-77"]),
        ("GPU-", []),
        ("0,0,1", ["GPU-0abc"]),
        ("gpu-2abc", ["GPU-2abc"]),
    ],
)
def test_visible_devices_follow_cudas_rules(given, names):
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    found = visible(gpus(), environment)
    assert [gpu.uuid for _, gpu in found] == names
    assert [name for name, _ in found] == [f"cuda:{i}" for i in range(len(names))]


def test_clock_reasons_are_words():
    assert clock_reasons(0x44) == ["power cap", "thermal (hardware)"]
    assert clock_reasons(0x1) == ["idle"]
    assert clock_reasons(0x4004) == ["power cap", "reason 0x4000"]
    assert clock_reasons(0) == []
