"""WORKLOAD words and lists of options: which runs they make."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from apps.catalogue import BadRequest, UnknownWorkload, suites
from tui.cli.errors import UsageError
from tui.cli.parser import parse
from tui.cli.plan import specs, wishes

CPU = SimpleNamespace(device="cpu", uuid="")
GPU = SimpleNamespace(device="cuda:1", uuid="GPU-1")


def _specs(*words: str, devices: tuple[SimpleNamespace, ...] = (CPU,)) -> list:  # type: ignore[type-arg]
    args = parse(["run", *words])
    return specs(args, wishes(args.workloads, args.script_args), devices)


def test_a_catalogue_name_gets_every_default_filled_in() -> None:
    (spec,) = _specs("gpt2")
    assert (spec.name, spec.workload, spec.target, spec.size, spec.mode, spec.dtype) == (
        "gpt2",
        "gpt2",
        "catalogue",
        "full",
        "infer",
        "fp32",
    )
    assert spec.batch >= 1
    assert spec.seq
    assert spec.cwd == str(Path.cwd())


def test_the_default_precision_is_the_devices() -> None:
    (spec,) = _specs("gpt2", devices=(GPU,))
    assert (spec.device, spec.device_uuid, spec.dtype) == ("cuda:1", "GPU-1", "bf16")


def test_lists_make_one_run_of_each_combination_in_order() -> None:
    made = _specs("gpt2", "bert-base", "--dtype", "fp32,bf16", "--batch", "1,8", devices=(CPU, GPU))
    assert len(made) == 16
    assert [(s.name, s.device, s.dtype, s.batch) for s in made[:4]] == [
        ("gpt2", "cpu", "fp32", 1),
        ("gpt2", "cpu", "fp32", 8),
        ("gpt2", "cpu", "bf16", 1),
        ("gpt2", "cpu", "bf16", 8),
    ]


def test_a_suite_is_all_its_workloads_and_none_twice() -> None:
    members = suites()["core"]
    assert [s.name for s in _specs("core", members[0])] == members


def test_of_a_suite_what_cannot_be_had_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    everything, trained = suites()["casio"], [spec.name for spec in _specs("casio", "--mode", "train")]
    assert "tabnet" in everything
    assert trained == [name for name in everything if name != "tabnet"]
    assert "left out: tabnet: mode 'train' is not offered" in capsys.readouterr().err
    with pytest.raises(BadRequest, match="out of range"):
        _specs("casio", "--batch", "99999999")


def test_of_a_suite_what_is_not_installed_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.catalogue import Entry

    monkeypatch.setattr(Entry, "missing", lambda entry: "detr needs rubber" if entry.name == "detr" else "")
    assert [spec.name for spec in _specs("nongemm")] == [name for name in suites()["nongemm"] if name != "detr"]
    assert "left out: detr needs rubber" in capsys.readouterr().err
    with pytest.raises(UsageError, match="needs rubber"):
        _specs("detr")


def test_a_meta_run_is_one_step() -> None:
    meta = SimpleNamespace(device="meta", uuid="")
    (spec,) = _specs("gpt2", "--windows", "9", devices=(meta,))
    assert (spec.windows, spec.timed_steps, spec.dtype) == (1, 0, "bf16")
    assert "computed, not measured" in spec.facts()


def test_ranks_have_a_gpu_each_or_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"{tmp_path}/train.py"
    Path(script).write_text("")
    other = SimpleNamespace(device="cuda:3", uuid="GPU-3")
    (spec,) = _specs(script, "--nproc", "2", devices=(GPU, other))
    assert spec.devices == (("cuda:1", "GPU-1"), ("cuda:3", "GPU-3"))
    assert [spec.devices for spec in _specs(script, devices=(GPU, other))] == [
        (("cuda:1", "GPU-1"),),
        (("cuda:3", "GPU-3"),),
    ]
    for devices in ((GPU,), (CPU, GPU)):
        with pytest.raises(UsageError, match="2 ranks need 2 GPUs or the CPU: --device names c"):
            _specs(script, "--nproc", "2", devices=devices)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(UsageError, match="start kernelscope once, and it starts the ranks"):
        _specs(script)


def test_options_arrive_in_the_spec() -> None:
    options = (
        "--windows 3 --seconds 1.5 --steps 2 --mode train --size tiny --seq 16 --attention eager --backend compile "
        "--keep-traces --weights random --name mine"
    )
    (spec,) = _specs("gpt2", *options.split())
    assert (spec.windows, spec.seconds, spec.steps, spec.mode, spec.size, spec.seq) == (3, 1.5, 2, "train", "tiny", 16)
    assert (spec.attention, spec.backend, spec.keep_traces, spec.weights, spec.name) == (
        "eager",
        "inductor",
        True,
        "random",
        "mine",
    )


def test_a_python_file_is_a_script_with_its_own_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    (spec,) = _specs("train.py", "--windows", "2", "--", "--windows", "9", "--", "-x")
    assert (spec.target, spec.workload, spec.name) == ("script", str(tmp_path / "train.py"), "train")
    assert spec.argv == ("--windows", "9", "--", "-x")
    assert spec.windows == 2
    assert spec.facts() == ("script",), "what a script computes is its own affair"


def test_a_command_of_pips_is_a_script(tmp_path: Path) -> None:
    (tmp_path / "tune").write_text("#!/venv/bin/python3\nimport sys\n")
    (tmp_path / "train.sh").write_text("#!/bin/sh\npython train.py\n")
    (spec,) = _specs(f"{tmp_path}/tune", "--", "-x")
    assert (spec.target, spec.workload, spec.name, spec.argv) == ("script", f"{tmp_path}/tune", "tune", ("-x",))
    with pytest.raises(UsageError, match=r"train\.sh is no Python script: name the one that it starts"):
        _specs(f"{tmp_path}/train.sh")


def test_ranks_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (spec,) = _specs(f"{tmp_path}/train.py", "--nproc", "2")
    assert spec.ranks == 2
    assert spec.facts() == ("script", "2 ranks")


def test_a_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("")
    (spec,) = _specs(f"{tmp_path}/my.py:build")
    assert (spec.target, spec.workload, spec.name) == ("callable", f"{tmp_path}/my.py:build", "my:build")


def test_model_ids_and_model_folders(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert [(s.target, s.workload) for s in _specs("someone/some-model", str(tmp_path / "model"))] == [
        ("hub", "someone/some-model"),
        ("hub", str(tmp_path / "model")),
    ]
    (spec,) = _specs("someone/some-model", "--weights", "pretrained", "--download")
    assert (spec.weights, spec.download) == ("pretrained", True)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["gpt22"], UnknownWorkload, "gpt2"),
        (["core/gpt22"], UnknownWorkload, "gpt2"),
        (["gpt2", "--batch", "9999999"], BadRequest, "batch"),
        (["gpt2", "--size", "huge"], BadRequest, "size 'huge'"),
        (["resnet-50", "--seq", "3"], BadRequest, "no sequence"),
        (["nowhere.py"], UsageError, "no file nowhere.py"),
        (["nowhere.py:f"], UsageError, "no file nowhere.py"),
        (["./nowhere"], UsageError, "no config.json"),
        (["gpt2", "--", "-x"], UsageError, "arguments of a script"),
        (["gpt2", "--nproc", "2"], UsageError, "starts a script"),
        (["gpt2", "--weights", "pretrained"], UsageError, "random weights"),
        (["gpt2", "--download"], UsageError, "nothing from the network"),
        ([__file__, "--batch", "4"], UsageError, "--batch says nothing to a script"),
        (["gpt2", "--dtype", "bf61"], UsageError, "did you mean bf16"),
        (["gpt2", "--batch", "0"], UsageError, "1 or more"),
        (["gpt2", "--batch", "1,,2"], UsageError, "1 or more"),
        (["gpt2", "--seconds", "-1"], UsageError, "not a time"),
        (["gpt2", "--windows", "many"], UsageError, "1 or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line(words: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        _specs(*words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_backend_quantization_and_counters_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    from profilers.collectors import counters
    from profilers.collectors.backends import names

    monkeypatch.setattr(counters, "find_ncu", lambda: "/usr/bin/ncu")
    monkeypatch.setattr(names, "find_spec", lambda name: object())
    (spec,) = _specs("gpt2", "--backend", "ort", "--quant", "int8dyn", "--counters", devices=(GPU,))
    assert (spec.backend, spec.quant, spec.counters, spec.counters_every) == ("onnxruntime", "int8dyn", "six", 1)
    (spec,) = _specs("gpt2", "--counters", "full", "--counters-every", "10", devices=(GPU,))
    assert (spec.counters, spec.counters_every) == ("full", 10)
    monkeypatch.setattr(counters, "find_sampling", lambda: True)
    (spec,) = _specs("gpt2", "--counters", "pm", devices=(GPU,))
    assert (spec.counters, spec.counters_every) == ("pm", 1)


@pytest.mark.parametrize(
    ("options", "device", "says"),
    [
        ("--backend onnxruntime --mode train", CPU, "inference only"),
        ("--backend tensorrt", CPU, "needs a GPU"),
        ("--quant fp8", CPU, "compute capability 8.9"),
        ("--quant nf4", CPU, r"pip install 'kernelscope\[quant\]'"),
        ("--backend onnxruntime", CPU, r"pip install 'kernelscope\[ort\]'"),
        ("--counters", CPU, "a GPU's"),
        ("--counters", GPU, "needs Nsight Compute's ncu on PATH"),
        ("--counters-every 10", GPU, "add --counters"),
        ("--counters pm", CPU, "a GPU's"),
        ("--counters pm", GPU, r"cupti-python 13\.3 or newer: see Counters in the README"),
        ("--counters pm --counters-every 10", GPU, "leave --counters-every out"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line(
    options: str, device: SimpleNamespace, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from profilers.collectors import counters
    from profilers.collectors.backends import names

    monkeypatch.setattr(counters, "find_ncu", lambda: None)
    monkeypatch.setattr(counters, "find_sampling", lambda: False)
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=says) as raised:
        _specs("gpt2", *options.split(), devices=(device,))
    assert "\n" not in str(raised.value)
