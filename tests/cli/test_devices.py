"""--device: what is meant by it, and what is refused before anything starts."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace

import pytest

from profilers.collectors.telemetry.devices import DeviceRow, best_first
from profilers.runs.spec import Spec
from tui.cli.devices import chosen_devices, refuse_what_devices_lack
from tui.cli.errors import UsageError

BUSY = DeviceRow("cuda:0", "H100", "GPU-0", "cuda", 80.0, 60.0, 99.0, users="ada (2 processes)")
FREE = DeviceRow("cuda:1", "H100", "GPU-1", "cuda", 80.0, 1.0, 0.0)
FULL = DeviceRow("cuda:2", "H100", "GPU-2", "cuda", 80.0, 70.0, 0.0)
CPU = DeviceRow("cpu", "EPYC", "", "cpu", 256.0, 10.0, 3.0)
LONELY = DeviceRow("cpu", "EPYC", "", "cpu", 256.0, 10.0, 3.0, note="driver not loaded")
ALL = [BUSY, FREE, FULL, CPU]


def test_auto_takes_the_free_gpu_with_most_memory_left() -> None:
    assert chosen_devices("auto", ALL, "CUDA 12.8") == [FREE]
    assert chosen_devices("cuda", ALL, "CUDA 12.8") == [FREE]


def test_auto_is_the_cpu_where_there_is_nothing_else() -> None:
    assert chosen_devices("auto", [LONELY], "CUDA 12.8") == [LONELY]


def test_auto_is_the_cpu_where_torch_cannot_use_the_gpu_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen_devices("auto", ALL, "CPU only") == [CPU]
    assert "running on the CPU: the installed torch cannot use a GPU" in capsys.readouterr().err


def test_a_list_keeps_its_order_and_names_each_once() -> None:
    assert chosen_devices("cuda:2, cpu,CUDA:2", ALL, "CUDA 12.8") == [FULL, CPU]


def test_a_device_in_use_is_said_but_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen_devices("cuda:0", ALL, "CUDA 12.8") == [BUSY]
    assert "in use by ada (2 processes)" in capsys.readouterr().err


def test_an_unknown_device_lists_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"'cuda:7'; there are cuda:0 \(H100\), cuda:1 .*, cpu \(EPYC\)"):
        chosen_devices("cuda:7", ALL, "CUDA 12.8")
    with pytest.raises(UsageError, match="no GPU: driver not loaded"):
        chosen_devices("cuda:0", [LONELY], "CUDA 12.8")
    with pytest.raises(UsageError, match="cannot use a GPU"):
        chosen_devices("cuda:0", ALL, "CPU only")
    with pytest.raises(UsageError, match="no device is called ''"):
        chosen_devices("cuda:0,", ALL, "CUDA 12.8")


def test_bf16_is_refused_where_the_chip_lacks_it() -> None:
    spec = Spec(name="gpt2", workload="gpt2", dtype="bf16", device="cuda:0", device_uuid="GPU-0")
    with pytest.raises(UsageError, match=r"cuda:0 \(compute capability 7.0\) has no bf16; use --dtype fp16"):
        refuse_what_devices_lack([spec], ALL, lambda uuid: (7, 0))
    refuse_what_devices_lack([spec], ALL, lambda uuid: (8, 0))
    refuse_what_devices_lack([spec], ALL, lambda uuid: None)
    refuse_what_devices_lack([Spec(name="gpt2", workload="gpt2", dtype="bf16", device="cpu")], ALL, lambda uuid: (7, 0))


def test_parameters_larger_than_the_memory_are_refused() -> None:
    small = [DeviceRow("cuda:0", "T4", "GPU-0", "cuda", 16.1, 0.1, 0.0)]
    spec = Spec(name="gpt2-xl", workload="gpt2-xl", dtype="fp32", device="cuda:0", mode="infer")
    refuse_what_devices_lack([spec], small)
    tiny = [DeviceRow("cuda:0", "GTX", "GPU-0", "cuda", 4.0, 0.1, 0.0)]
    with pytest.raises(UsageError, match=r"gpt2-xl in fp32: its parameters take 6\.2 GB; cuda:0 has 4\.0 GB"):
        refuse_what_devices_lack([spec], tiny)
    train = Spec(name="gpt2-xl", workload="gpt2-xl", dtype="bf16", device="cuda:0", mode="train")
    with pytest.raises(UsageError, match=r"its parameters and gradients take 6\.2 GB"):
        refuse_what_devices_lack([train], tiny)
    refuse_what_devices_lack([train], [DeviceRow("cuda:0", "?", "GPU-0", "cuda", None, None, None)])


def test_a_batch_that_cannot_fit_is_refused_with_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def ask(command: list[str], *, input: str, **rest: object) -> SimpleNamespace:
        asked.extend(json.loads(input))
        return SimpleNamespace(stdout=json.dumps(["", "gpt2 needs about 306.4 GB on cpu; batch 330 fits"]))

    monkeypatch.setattr("tui.cli.fitting.subprocess.run", ask)
    fits = Spec(name="gpt2", workload="gpt2", dtype="fp32", batch=2, seq=64, device="cpu")
    too_large = Spec(name="gpt2", workload="gpt2", dtype="fp32", batch=4096, seq=64, device="cpu")
    with pytest.raises(UsageError, match="batch 330 fits"):
        refuse_what_devices_lack([fits, too_large], [CPU])
    assert [(question["batch"], question["room"]) for question in asked] == [
        (2, 256_000_000_000),
        (4096, 256_000_000_000),
    ]


@pytest.mark.slow
def test_whether_it_fits_is_really_estimated() -> None:
    devices = [
        DeviceRow("cuda:0", "Large", "GPU-0", "cuda", 80.0, 0.1, 0.0),
        DeviceRow("cuda:1", "Small", "GPU-1", "cuda", 0.5, 0.1, 0.0),
    ]
    asked = [
        Spec(name="gpt2", workload="gpt2", size="tiny", dtype="fp32", batch=8, seq=128, device=row.device)
        for row in devices
    ]
    with pytest.raises(UsageError, match=r"gpt2 tiny infer fp32, batch 8, seq 128 needs about 0\.6 GB on cuda:1"):
        refuse_what_devices_lack(asked, devices)


def test_defaults_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tui.cli.fitting.subprocess.run", lambda *args, **kwargs: pytest.fail("torch was loaded for nothing")
    )
    refuse_what_devices_lack([Spec(name="gpt2", workload="gpt2", dtype="fp32", batch=1, seq=64, device="cpu")], [CPU])


def test_no_estimate_refuses_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise subprocess.CalledProcessError(1, "python")

    monkeypatch.setattr("tui.cli.fitting.subprocess.run", broken)
    refuse_what_devices_lack(
        [Spec(name="gpt2", workload="gpt2", dtype="fp32", batch=4000, seq=64, device="cpu")], [CPU]
    )
    assert "could not be estimated (CalledProcessError)" in capsys.readouterr().err


def test_a_lost_gpu_is_never_chosen_and_its_reason_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lost = DeviceRow("cuda:0", "GPU", "GPU-0", "cuda", None, None, None, note="the GPU is lost", lost=True)
    hidden = DeviceRow("cuda:1", "GPU", "GPU-1", "cuda", 80.0, 1.0, 97.0)
    free = DeviceRow("cuda:2", "GPU", "GPU-2", "cuda", 80.0, 40.0, 0.0)
    rows = [lost, hidden, free, CPU]
    assert [row.device for row in best_first(rows)] == ["cuda:2", "cuda:1"]
    assert chosen_devices("auto", rows, "CUDA 13.0") == [free]
    with pytest.raises(UsageError, match=r"cuda:0 .*the GPU is lost"):
        chosen_devices("cuda:0", rows, "CUDA 13.0")
    with pytest.raises(UsageError, match="no GPU answers: cuda:0: the GPU is lost"):
        chosen_devices("cuda", [lost, CPU], "CUDA 13.0")
    assert chosen_devices("auto", [lost, CPU], "CUDA 13.0") == [CPU]
    assert "running on the CPU: no GPU answers" in capsys.readouterr().err


def test_a_gpu_whose_users_are_hidden_is_busy_by_its_utilization(capsys: pytest.CaptureFixture[str]) -> None:
    hidden = DeviceRow("cuda:0", "GPU", "GPU-0", "cuda", 80.0, 1.0, 97.0)
    chosen_devices("cuda:0", [hidden, CPU], "CUDA 13.0")
    assert "cuda:0 is 97 % busy" in capsys.readouterr().err
