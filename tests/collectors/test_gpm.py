"""GPM, links and limits through the real nvidia-ml-py against the stand-in library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profilers.collectors.telemetry.devices import visible
from profilers.collectors.telemetry.gpm import LINKS, METRICS
from profilers.collectors.telemetry.nvml import Gpu

CODE = """
import ctypes, json, os, sys, time
from pathlib import Path
from profilers.collectors.telemetry import gpm, nvidia
from profilers.collectors.telemetry.devices import list_devices, visible
from profilers.collectors.telemetry.nvml import Nvml
def plain(samples):
    return [[s.device, s.metric, s.value, s.unit, s.source, s.reason] for s in samples]
nvml = Nvml()
devices = visible(nvml.gpus)
collector = nvidia.NvmlCollector(nvml, devices)
brief = nvidia.NvmlCollector(nvml, devices, brief=True)
answers = {"rows": [[r.device, r.kind, r.uuid] for r in list_devices(nvml, processes=False)]}
exec(os.environ["TEST_CODE"])
collector.close()
brief.close()
answers["alive"] = ctypes.CDLL("libnvidia-ml.so.1").stubSamplesAlive() if not os.environ.get("OLD") else 0
nvml.close()
print(json.dumps(answers))
"""

TWICE = "answers['first'] = plain(collector.sample()); time.sleep(0.12); answers['second'] = plain(collector.sample())"


def ask(library: Path, code: str = TWICE, **environment: str) -> dict:
    given = {**os.environ, "LD_LIBRARY_PATH": str(library), "TEST_CODE": code, **environment}
    given.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run([sys.executable, "-c", CODE], env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_metric(samples: list) -> dict:
    return {(device, metric): (value, unit, source, why) for device, metric, value, unit, source, why in samples}


def test_sixteen_gpus_each_with_its_own_pair(library):
    found = ask(library, TWICE + "; time.sleep(0.12); answers['third'] = plain(collector.sample())", STUB_COUNT="16")
    first, second, third = (by_metric(found[key]) for key in ("first", "second", "third"))
    for device in range(16):
        name = f"cuda:{device}"
        assert first[name, "sm_pct"] == (None, "%", "gpm", "no value yet: it takes two samples")
        for values in (second, third):
            assert values[name, "sm_pct"] == (40.0 + device, "%", "gpm", "")
            assert values[name, "dram_pct"] == (80.0, "%", "gpm", "")
            # One sample a tick: of the sixteen that were taken since, each pair spans exactly its own two.
            assert values[name, "occupancy_pct"][0] == 16.0
            assert values[name, "pcie_tx_mib_s"] == (20.0, "MiB/s", "gpm", "")
            assert values[name, "nvlink_rx_mib_s"] == (60.0, "MiB/s", "gpm", "")
    assert found["alive"] == 0, "every sample is freed"


def test_ids_mean_what_the_header_says(library):
    second = by_metric(ask(library)["second"])
    for number, metric, unit in METRICS:
        value, said, source, why = second["cuda:0", metric]
        assert (said, source) == (unit, "gpm")
        if number == 8:
            assert (value, why) == (None, "not supported by this device")
        elif number == 6:
            assert (value, why) == (None, "no value")
        elif number not in (2, 3, 10):
            assert (value, why) == (float(number), "")


def test_a_metric_that_is_refused_is_not_asked_again(library):
    code = TWICE + "; time.sleep(0.12); answers['third'] = plain(collector.sample())"
    third = by_metric(ask(library, code)["third"])
    assert ("cuda:0", "dmma_pct") not in third and third["cuda:0", "sm_pct"][0] == 40.0


def test_a_window_is_not_shrunk_by_asking_too_often(library):
    code = "answers['first'] = plain(collector.sample()); answers['second'] = plain(collector.sample())"
    second = by_metric(ask(library, code)["second"])
    assert ("cuda:0", "sm_pct") not in second and second["cuda:0", "util_pct"][0] == 10.0


def test_a_pair_too_far_apart_only_begins_the_next(library):
    code = "gpm.OLDEST_S = 0.0; " + TWICE + "; gpm.OLDEST_S = 30.0; time.sleep(0.12); "
    found = ask(library, code + "answers['third'] = plain(collector.sample())")
    assert by_metric(found["second"])["cuda:0", "sm_pct"][0] is None
    assert by_metric(found["third"])["cuda:0", "sm_pct"][0] == 40.0


def test_an_instance_is_asked_through_its_gpu(library):
    found = ask(library, STUB_MIG="0")
    second = by_metric(found["second"])
    assert [row[1] for row in found["rows"]][:3] == ["mig", "mig", "cuda"]
    assert second["cuda:0", "sm_pct"][0] == second["cuda:1", "sm_pct"][0] == 90.0
    assert second["cuda:2", "sm_pct"][0] == 41.0
    # NVML has no utilization for instances; GPM does.
    assert second["cuda:0", "util_pct"] == (None, "%", "nvml", "not supported by this device")


def test_an_instance_made_anew_begins_a_new_pair(library):
    code = TWICE + (
        "; ask = nvml.ask; nvml.ask = lambda g, f, *a, **k: (7, '') if f == 'nvmlDeviceGetGpuInstanceId' else ask(g, f, *a, **k)"
        "; time.sleep(0.12); answers['third'] = plain(collector.sample())"
        "; time.sleep(0.12); answers['fourth'] = plain(collector.sample())"
    )
    found = ask(library, code, STUB_MIG="0", STUB_COUNT="1")
    assert by_metric(found["second"])["cuda:0", "sm_pct"][0] == 90.0
    assert by_metric(found["third"])["cuda:0", "sm_pct"][0] is None
    assert by_metric(found["fourth"])["cuda:0", "sm_pct"][0] == 90.0


def test_one_lost_gpu_costs_only_its_own_numbers(library, tmp_path):
    code = TWICE + (
        "; Path(os.environ['STUB_LOST_FILE']).write_text('1'); time.sleep(0.12); answers['third'] = plain(collector.sample())"
    )
    found = ask(library, code, STUB_COUNT="3", STUB_LOST_FILE=str(tmp_path / "lost"))
    assert by_metric(found["second"])["cuda:1", "sm_pct"][0] == 41.0
    third = by_metric(found["third"])
    lost = [(value, why) for (device, _), (value, _, _, why) in third.items() if device == "cuda:1"]
    assert lost and all(value is None and "lost" in why for value, why in lost)
    assert third["cuda:0", "sm_pct"][0] == 40.0 and third["cuda:2", "sm_pct"][0] == 42.0
    assert found["alive"] == 0


def test_a_driver_that_comes_back_is_opened_again(library, tmp_path):
    code = TWICE + (
        "; import profilers.collectors.telemetry.nvml as module; module._RETRY_S = 0.05"
        "; broken = Path(os.environ['STUB_BROKEN_FILE']); broken.touch(); time.sleep(0.12)"
        "; answers['third'] = plain(collector.sample()); time.sleep(0.12); answers['fourth'] = plain(collector.sample())"
        "; broken.unlink(); time.sleep(0.12); collector.sample(); time.sleep(0.12); answers['last'] = plain(collector.sample())"
    )
    found = ask(library, code, STUB_BROKEN_FILE=str(tmp_path / "broken"))
    assert by_metric(found["second"])["cuda:0", "power_w"][0] == 350.5
    for turn in ("third", "fourth"):
        value, _, _, why = by_metric(found[turn])["cuda:1", "power_w"]
        assert value is None and ("stopped answering" in why or "does not answer" in why)
    last = by_metric(found["last"])
    # The handles of before are refused by this driver: these are new ones.
    assert last["cuda:0", "power_w"][0] == last["cuda:1", "power_w"][0] == 350.5
    assert last["cuda:1", "sm_pct"][0] == 41.0
    assert found["alive"] == 0


def test_before_hopper_there_is_no_gpm_and_links_come_from_their_own_lane(library):
    code = (
        "nvidia.LINKS_S = 0.05; lane = collector._lane(); lane._interval = 0.05; answers['first'] = plain(collector.sample())\n"
        "late = []; end = time.monotonic() + 20\n"
        "while time.monotonic() < end and not any(s.metric == 'nvlink_tx_mib_s' and s.value for s in late):\n"
        "    time.sleep(0.02); late += collector._links.take()\n"
        "answers['late'] = plain(late)"
    )
    found = ask(library, code, STUB_GPM="0")
    first, late = by_metric(found["first"]), by_metric(found["late"])
    assert first["cuda:0", "sm_pct"] == (None, "%", "gpm", "needs a Hopper or newer GPU")
    assert first["cuda:0", "util_pct"][0] == 10.0
    assert not {(d, m) for d, m in first if m in LINKS}, "links are the lane's to tell"
    assert late["cuda:0", "pcie_tx_mb_s"] == (1500.0, "MB/s", "nvml", "")
    assert late["cuda:0", "pcie_rx_mb_s"][0] == 2500.0
    assert late["cuda:0", "nvlink_tx_mib_s"][0] > 0
    assert late["cuda:1", "nvlink_tx_mib_s"] == (None, "MiB/s", "nvml", "no NVLink, or not told by this device")
    assert late["cuda:0", "links_sampling_ms"][2] == "self"


def test_neighbours_are_sampled_in_part(library):
    code = "brief.sample(); time.sleep(0.12); answers['brief'] = plain(brief.sample())"
    found = by_metric(ask(library, code)["brief"])
    assert {metric for _, metric in found} == {
        "util_pct", "memory_used_gb", "memory_total_gb", "power_w", "sm_pct", "dram_pct", "tensor_pct",
    }  # fmt: skip


def test_a_gpu_that_is_denied_has_no_number(library):
    rows = ask(library, STUB_COUNT="4", STUB_DENIED="1")["rows"]
    assert [row[2] for row in rows] == ["GPU-0000-aaaa", "GPU-0002-aaaa", "GPU-0003-aaaa", ""]
    assert [row[0] for row in rows] == ["cuda:0", "cuda:1", "cuda:2", "cpu"]


@pytest.mark.parametrize(
    ("environment", "value", "state"),
    [
        ({}, "GPM on 3 of 3", "ok"),
        ({"STUB_GPM": "0"}, "GPM on 0 of 3: needs a Hopper or newer GPU", "note"),
        ({"STUB_LOST": "2"}, "GPM on 2 of 3: the GPU is lost", "note"),
        (
            {"STUB_GPM": "0", "KERNELSCOPE_DCGM": "http://localhost:9400/metrics"},
            "dcgm-exporter at http://localhost",
            "ok",
        ),
    ],
)
def test_doctor_says_whether_units_can_be_seen_live(library, environment, value, state):
    code = (
        "from tui.cli.checks.devices import checks; "
        "answers['found'] = [[c.value, c.state] for c in checks() if c.check == 'live SM and DRAM']"
    )
    ((said, level),) = ask(library, code, STUB_COUNT="3", **environment)["found"]
    assert value in said and level == state


# --- limits of jobs and containers ---------------------------------------------------------------------------------------


def gpus(count: int = 4) -> list[Gpu]:
    return [Gpu(None, i, f"g{i}", f"GPU-{i}abc") for i in range(count)]


@pytest.mark.parametrize(
    ("environment", "numbers"),
    [
        ({}, [0, 1, 2, 3]),
        ({"SLURM_JOB_GPUS": "2,3"}, [2, 3]),
        ({"SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "1"}, [1]),
        ({"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"SLURM_JOB_GPUS": "6,7,8,9"}, [0, 1, 2, 3]),  # the job's own GPUs, counted anew
        ({"SLURM_JOB_GPUS": "6"}, [0, 1, 2, 3]),  # no such number here: not ours to guess
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, [0, 1, 2, 3]),
        ({"NVIDIA_VISIBLE_DEVICES": "1"}, [0, 1, 2, 3]),  # numbers of the host; here they are counted anew
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-3abc,GPU-1"}, [1, 3]),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-none"}, [0, 1, 2, 3]),
    ],
)
def test_limits_of_jobs_and_containers(environment, numbers):
    found = visible(gpus(), environment)
    assert [gpu.index for _, gpu in found] == numbers
    assert [name for name, _ in found] == [f"cuda:{i}" for i in range(len(numbers))]
