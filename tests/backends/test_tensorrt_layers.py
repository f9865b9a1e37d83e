"""Layer times of TensorRT: what its profiler reports becomes rows. TensorRT itself is played by a stand-in for its API."""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profilers.analysis.options import Options
from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.readers import read, trt
from profilers.readers.errors import ReadError
from profilers.readers.sniff import sniff
from profilers.tables import SCHEMAS, Recording

torch = pytest.importorskip("torch")

CONV, FORMAT, FC, FUSED = (
    "/conv/Conv + /act/Relu",
    "Reformatting CopyNode for Input Tensor 0 to /fc/Gemm",
    "/fc/G",
    "__myl_Fc",
)
TIMES = {CONV: 0.5, FORMAT: 0.125, FC: 0.25, FUSED: 0.0625}
"""Milliseconds that a binary fraction holds exactly."""

TOLD = {
    "Layers": [
        {
            "Name": CONV,
            "LayerType": "CaskConvolution",
            "Inputs": [{"Name": "x", "Dimensions": [1, 4, 8, 8], "Format/Datatype": "Row major linear FP16 format"}],
            "Outputs": [{"Name": "y", "Dimensions": [1, 8, 8, 8], "Format/Datatype": "Row major linear FP16 format"}],
            "ParameterType": "Convolution",
            "Kernel": [3, 3],
            "OutMaps": 8,
            "Groups": 2,
            "Weights": {"Type": "Half", "Count": 144},
            "TacticName": "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc",
        },
        {"Name": FORMAT, "LayerType": "Reformat", "Inputs": [{"Dimensions": [2, 16], "Format/Datatype": "Float"}]},
        {
            "Name": FC,
            "LayerType": "gemm",
            "Inputs": [{"Dimensions": [2, 16], "Format/Datatype": "Half"}],
            "Outputs": [{"Dimensions": [2, 32], "Format/Datatype": "Half"}],
        },
        {"Name": FUSED, "LayerType": "kgen", "TacticName": "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n", "Inputs": []},
    ],
    "Bindings": ["x", "y"],
}


class StandIn(types.ModuleType):
    """The part of the ``tensorrt`` module (10.x) that the backend touches, as its documentation describes it."""

    def __init__(self) -> None:
        super().__init__("tensorrt")
        self.__version__ = "10.0.stand-in"
        self.log: list[str] = []
        self.contexts: list[Any] = []
        module = self

        class IProfiler:
            def __init__(self) -> None:
                self.ready = True

        class Context:
            def __init__(self) -> None:
                self.profiler: Any = None
                self.addresses: dict[str, int] = {}
                module.contexts.append(self)

            def set_tensor_address(self, name: str, address: int) -> bool:
                self.addresses[name] = address
                return True

            def execute_async_v3(self, stream_handle: int) -> bool:
                assert set(self.addresses) == {"x", "y"} and stream_handle == 7
                module.log.append("plain" if self.profiler is None else "watched")
                if self.profiler is not None:
                    assert self.profiler.ready  # its base class was initialised, as the documentation asks
                    for name, ms in TIMES.items():
                        self.profiler.report_layer_time(name, ms)
                return True

        class Inspector:
            def get_engine_information(self, form: str) -> str:
                assert form == "json"
                return json.dumps(TOLD if module.config.profiling_verbosity == "detailed" else {"Layers": [CONV]})

        class Engine:
            num_io_tensors = 2

            def get_tensor_name(self, index: int) -> str:
                return "xy"[index]

            def get_tensor_mode(self, name: str) -> str:
                return "input" if name == "x" else "output"

            def get_tensor_dtype(self, _name: str) -> str:
                return "fp32"

            def get_tensor_shape(self, name: str) -> tuple[int, ...]:
                return (1, 8)

            create_execution_context = staticmethod(Context)
            create_engine_inspector = staticmethod(Inspector)

        class Config:
            profiling_verbosity = "names"

            def set_memory_pool_limit(self, pool: str, size: int) -> None:
                assert pool == "workspace" and size > 0

        class Builder:
            def __init__(self, _logger: Any) -> None: ...

            def create_network(self, _flags: int) -> str:
                return "network"

            def create_builder_config(self) -> Any:
                return module.config

            def build_serialized_network(self, _network: str, _config: Any) -> bytes:
                return b"plan"

        class OnnxParser:
            num_errors = 0

            def __init__(self, _network: str, _logger: Any) -> None: ...

            def parse_from_file(self, path: str) -> bool:
                return Path(path).is_file()

        class Logger:
            ERROR = 1

            def __init__(self, _level: int) -> None: ...

        class Runtime:
            def __init__(self, _logger: Any) -> None: ...

            def deserialize_cuda_engine(self, plan: bytes) -> Engine:
                assert plan == b"plan"
                return Engine()

        self.config = Config()
        self.IProfiler, self.Builder, self.OnnxParser = IProfiler, Builder, OnnxParser
        self.Logger, self.Runtime = Logger, Runtime
        self.TensorIOMode = types.SimpleNamespace(INPUT="input")
        self.MemoryPoolType = types.SimpleNamespace(WORKSPACE="workspace")
        self.ProfilingVerbosity = types.SimpleNamespace(DETAILED="detailed")
        self.LayerInformationFormat = types.SimpleNamespace(JSON="json")
        self.nptype = lambda _dtype: np.float32


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    module = StandIn()
    monkeypatch.setitem(__import__("sys").modules, "tensorrt", module)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: types.SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: module.log.append("wait"))
    card = types.SimpleNamespace(name="NVIDIA A100", multi_processor_count=108, total_memory=2**36, major=8, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    return module


def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> Any:
    from profilers.collectors.backends import ort, tensorrt
    from profilers.collectors.backends.base import Job
    from profilers.collectors.protocol import Progress
    from profilers.collectors.spec import Spec

    def exported(_job: Any, folder: Path) -> tuple[Path, tuple[Any, ...]]:
        (folder / "model.onnx").write_bytes(b"onnx")
        return folder / "model.onnx", (torch.zeros(1, 8),)

    monkeypatch.setattr(ort, "exported", exported)
    built = types.SimpleNamespace(module=torch.nn.Identity())
    spec = Spec(name="tiny", workload="tiny", device="cuda:0", backend="tensorrt:layers")
    return tensorrt.prepare(Job(built, lambda: None, spec, tmp_path, torch.device("cpu"), Progress()), mode)


def windows(made: Any, tmp_path: Path, wait: int, active: int, steps: int) -> list[Path]:
    """Steps driven as a session drives them; the files of the windows."""
    files: list[Path] = []

    def ready(recorder: Any) -> None:
        files.append(tmp_path / f"window{len(files)}.json")
        recorder.export_chrome_trace(str(files[-1]))

    recorder = made.recorder(wait, active, ready)
    recorder.start()
    for _ in range(steps):
        made.step()
        recorder.step()
    recorder.stop()
    return files


def test_windows_are_watched_and_other_steps_are_not(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepared(tmp_path, monkeypatch, "layers")
    made.step()
    assert standin.log == ["plain"] and len(standin.contexts) == 1
    files = windows(made, tmp_path, wait=2, active=2, steps=11)
    ran = [word for word in standin.log[1:] if word != "wait"]
    # Two that wait, one to warm up and two that count; again; and one that waits.
    assert ran == (["plain"] * 2 + ["watched"] * 3) * 2 + ["plain"]
    assert [len(json.loads(file.read_text())["runs"]) for file in files] == [2, 2]
    made.step()
    assert standin.log[-1] == "plain" and len(standin.contexts) == 2


def test_without_the_mode_nothing_is_watched(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepared(tmp_path, monkeypatch, "default")
    assert made.recorder is None and standin.config.profiling_verbosity == "names"
    made.step()
    assert standin.log == ["plain"]


def obeys(recording: Recording) -> None:
    for name in ("operators", "kernels", "steps", "runtime"):
        assert SCHEMAS[name].problems(getattr(recording, name)) == []


def test_the_tables_by_hand(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepared(tmp_path, monkeypatch, "layers")
    (file,) = windows(made, tmp_path, wait=0, active=2, steps=3)
    assert sniff(file) == "trt"
    recording = prepare(read(file))
    obeys(recording)
    kernels = recording.kernels
    assert kernels["name"].tolist() == [CONV, FORMAT, FC, FUSED] * 2
    assert kernels["dur_ns"].tolist() == [500_000, 125_000, 250_000, 62_500] * 2
    first = kernels.iloc[:4]
    assert first["start_ns"].tolist() == [0, 500_000, 625_000, 875_000]
    assert first["group"].tolist() == ["convolution", "memory", "matmul", "matmul"]
    assert kernels["step"].tolist() == [0] * 4 + [1] * 4 and len(recording.steps) == 2
    # 8 filters of 2 x 3 x 3 over 8 x 8 places, and [2, 16] times [16, 32]; what the compiler made tells no sizes.
    assert first["flops"].tolist()[:3:2] == [2 * 512 * 18, 2 * 2 * 32 * 16] and np.isnan(first["flops"].iloc[3])
    ops = recording.operators.iloc[:4]
    assert ops["name"].tolist()[:3] == ["tensorrt::CaskConvolution", "tensorrt::Reformat", "tensorrt::gemm"]
    assert ops["input_shapes"].tolist()[0] == "[[1,4,8,8],[8,2,3,3]]"
    assert ops["input_dtypes"].tolist()[0] == '["c10::Half","c10::Half"]'
    (device,) = recording.devices
    assert (device.name, device.sm_count, device.compute_capability) == ("NVIDIA A100", 108, "8.0")
    summary = TABLES["summary"].compute(recording).iloc[0]
    assert summary["kernel_time_us"] == 2 * 937.5 and summary["unlaunched_kernels"] == 0
    groups = TABLES["groups"].compute(recording).set_index("group")["time_us"]
    assert groups.to_dict() == {"convolution": 1000.0, "matmul": 625.0, "memory": 250.0}
    gemms = TABLES["gemms"].compute(recording, Options()).set_index("op")
    assert gemms.loc["tensorrt::gemm", "shape"] == "m=2 n=32 k=16"
    assert [note.code for note in recording.notes if note.code in ("no_clock", "unknown_layers")] == ["no_clock"]
    assert recording.origin.tool == "TensorRT 10.0.stand-in"


def test_a_run_reads_its_windows_so(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from profilers.runs.folder import RunFolder
    from profilers.runs.reading import read_raw
    from profilers.runs.spec import Spec

    made = prepared(tmp_path, monkeypatch, "layers")
    (file,) = windows(made, tmp_path, wait=0, active=1, steps=2)
    spec = Spec(name="tiny", workload="tiny", device="cuda:3", backend="tensorrt:layers")
    recording = read_raw(file, RunFolder.create(tmp_path / "runs", spec), spec)
    assert set(recording.kernels["device"]) == {"cuda:3"} and recording.origin.kind == "run"


def test_an_engine_that_tells_nothing_still_has_its_times(tmp_path: Path) -> None:
    runs = [{"start_ns": 5, "wall_ns": 3_000_000, "layers": [["a", 1.5], ["b", 0.5]]}]
    recording = trt.read_bytes(json.dumps({"tensorrt_layers": 1, "runs": runs}).encode(), "x.json")
    obeys(recording)
    assert recording.kernels["dur_ns"].tolist() == [1_500_000, 500_000]
    assert set(recording.operators["name"]) == {"tensorrt::layer"}
    assert {note.code: note.count for note in recording.notes}["unknown_layers"] == 2
    assert recording.steps["dur_ns"].tolist() == [3_000_000]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(tensorrt_layers=2), "made by another version"),
        (lambda d: d.update(runs=[]), "no layer ran"),
        (lambda d: d.update(runs=[{"start_ns": 1, "wall_ns": 2, "layers": []}]), "no layer ran"),
        (lambda d: d.update(runs=[{"start_ns": 2**63, "wall_ns": 2, "layers": [["a", 1.0]]}]), "cannot be read"),
        (lambda d: d.update(runs=[{"start_ns": 1, "wall_ns": -2, "layers": [["a", 1.0]]}]), "cannot be read"),
        (lambda d: d.update(layers="none"), "cannot be read"),
    ],
)
def test_what_is_no_such_file_is_refused_in_one_line(change: Callable[[dict[str, Any]], None], message: str) -> None:
    document: dict[str, Any] = {"tensorrt_layers": 1, "runs": [{"start_ns": 1, "wall_ns": 2, "layers": [["a", 1.0]]}]}
    change(document)
    with pytest.raises(ReadError, match=message) as refused:
        trt.read_bytes(json.dumps(document).encode(), "x.json")
    assert "\n" not in str(refused.value)


def test_impossible_times_are_counted() -> None:
    layers = [["a", -1.0], ["b", 2.0], ["c", 1e9]]
    text = json.dumps({"tensorrt_layers": 1, "runs": [{"start_ns": 1, "wall_ns": 2, "layers": layers}]}).encode()
    recording = trt.read_bytes(text, "x.json")
    assert recording.kernels["name"].tolist() == ["b"]
    assert {note.code: note.count for note in recording.notes}["odd_layer_times"] == 2
    assert recording.steps["dur_ns"].tolist() == [2_000_000]
