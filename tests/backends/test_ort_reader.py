"""Profiles of ONNX Runtime: nodes as operators, runs as steps, packed weights, fall-backs, damage."""

from __future__ import annotations

import json

import pytest

from profilers.analysis.costs import costs
from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.readers import ort, read
from profilers.readers.errors import ReadError
from profilers.readers.sniff import sniff


def session(name: str, ts: int, dur: int) -> dict:
    return {"cat": "Session", "pid": 7, "tid": 7, "dur": dur, "ts": ts, "ph": "X", "name": name, "args": {}}


def node(
    op: str, ts: int, dur: int, inputs: list, output: list, provider: str = "CPUExecutionProvider", **args
) -> dict:
    given = {
        "op_name": op,
        "provider": provider,
        "input_type_shape": inputs,
        "output_type_shape": output,
        "node_index": "3",
    }
    return {
        "cat": "Node", "pid": 7, "tid": 7, "dur": dur, "ts": ts, "ph": "X", "name": f"{op}_1_kernel_time",
        "args": {**given, "parameter_size": "0", **args},
    }  # fmt: skip


def profile() -> list[dict]:
    return [
        session("model_loading_uri", 2, 900),
        session("session_initialization", 910, 5000),
        node("Gemm", 6000, 100, [{"float": [8, 16]}], [{"float": [8, 32]}]),
        node("FastGelu", 6110, 20, [{"float": [8, 32]}], [{"float": [8, 32]}]),
        session("SequentialExecutor::Execute", 5995, 150),
        session("model_run", 5990, 160),
        node("Conv", 6200, 50, [{"float": [1, 3, 8, 8]}, {"float": [4, 3, 3, 3]}], [{"float": [1, 4, 6, 6]}]),
        node(
            "DynamicQuantizeMatMul",
            6260,
            30,
            [{"float": [1, 8, 16]}, {"float": []}, {"int8": []}],
            [{"float": [1, 8, 4]}],
        ),
        node("Gather", 6300, 5, [{"float": [50000, 16]}, {"int64": [1, 8]}], [{"float": [1, 8, 16]}]),
        node("Reshape", 6310, 0, [{"float": [1, 8, 16]}, {"int64": [2]}], [{"float": [8, 16]}]),
        session("model_run", 6190, 140),
    ]


def test_nodes_and_runs(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile()))
    assert sniff(path) == "ort"
    made = read(path)
    operators = made.operators
    assert operators["name"].tolist() == [
        "onnx::Gemm", "onnx::FastGelu", "onnx::Conv", "onnx::DynamicQuantizeMatMul", "onnx::Gather", "onnx::Reshape",
    ]  # fmt: skip
    # Times count from the first run.
    assert operators["start_ns"].tolist()[:2] == [10_000, 120_000]
    assert operators["dur_ns"].tolist() == [100_000, 20_000, 50_000, 30_000, 5_000, 0]
    assert operators["step"].tolist() == [0, 0, 1, 1, 1, 1]
    assert made.steps["dur_ns"].tolist() == [160_000, 140_000]
    assert made.origin.kind == "ort" and made.origin.base_ns is None
    assert {note.code: note.count for note in made.notes} == {"packed_weights": 2, "below_clock": 1}


def test_operations_follow_from_what_is_recorded():
    made = ort.read_bytes(json.dumps(profile()).encode(), "p")
    priced = costs(made.operators)
    flops = dict(zip(made.operators["name"], priced.flops, strict=True))
    assert flops["onnx::Gemm"] == 2 * 8 * 16 * 32
    assert flops["onnx::Conv"] == 2 * 4 * 6 * 6 * 3 * 3 * 3
    assert flops["onnx::DynamicQuantizeMatMul"] == 2 * 8 * 16 * 4
    moved = dict(zip(made.operators["name"], priced.bytes, strict=True))
    # The whole table of an embedding is not read, and a reshape moves nothing.
    assert moved["onnx::Gather"] == 2 * 8 * 16 * 4 and moved["onnx::Reshape"] == 0
    assert moved["onnx::Gemm"] == 4 * (8 * 16 + 16 * 32 + 8 * 32)


def test_classes_and_totals():
    made = prepare(ort.read_bytes(json.dumps(profile()).encode(), "p"))
    groups = TABLES["groups"].compute(made).set_index("group")
    assert groups.loc["matmul", "time_us"] == 130 and groups.loc["convolution", "time_us"] == 50
    assert groups.loc["activation", "time_us"] == 20 and groups.loc["memory", "calls"] == 1
    summary = TABLES["summary"].compute(made).iloc[0]
    assert summary["kernel_time_us"] == sum(e["dur"] for e in profile() if e["cat"] == "Node")
    assert summary["steps"] == 2 and summary["unclassified_pct"] == 0


def test_the_windows_own_clock():
    base = 1_700_000_000_000_000_000
    events = [{"cat": "Session", "ph": "M", "name": "baseTimeNanoseconds", "args": {"value": base}}, *profile()]
    assert ort.read_bytes(json.dumps(events).encode(), "p").origin.base_ns == base + 5990_000


def test_nodes_that_fall_back_are_told():
    events = profile()
    events[2]["args"]["provider"] = "CUDAExecutionProvider"
    notes = {note.code: note for note in ort.read_bytes(json.dumps(events).encode(), "p").notes}
    assert notes["host_times"].count == 1 and "CUDAExecutionProvider" in notes["host_times"].text
    assert notes["provider_fallback"].count == 5 and "Conv" in notes["provider_fallback"].text


def test_a_node_with_nodes_inside():
    """An If holds the nodes of its branch: its own time is what they leave."""
    events = [
        session("model_run", 0, 100),
        node("If", 10, 80, [{"bool": []}], [{"float": [2]}]),
        node("Add", 20, 30, [{"float": [2]}, {"float": [2]}], [{"float": [2]}]),
    ]
    operators = ort.read_bytes(json.dumps(events).encode(), "p").operators
    assert operators["parent_id"].tolist() == [-1, 0] and operators["self_ns"].tolist() == [50_000, 30_000]


def test_a_profile_that_is_cut_off():
    whole = json.dumps(profile())
    cut = whole[: whole.index("DynamicQuantizeMatMul") + 40]
    made = ort.read_bytes(cut.encode(), "p")
    assert len(made.operators) == 3
    assert [note.code for note in made.notes if note.code == "truncated"] == ["truncated"]


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", '[{"cat": "Session", "ts": "x"}]', "[{"])
def test_what_is_no_profile(text):
    with pytest.raises(ReadError) as raised:
        ort.read_bytes(text.encode(), "p.json")
    assert "p.json" in str(raised.value) and "\n" not in str(raised.value)


def test_a_session_that_ran_nothing():
    with pytest.raises(ReadError, match="no node ran"):
        ort.read_bytes(json.dumps(profile()[:2]).encode(), "p.json")


def test_fused_operators_are_made_of_what_they_are_defined_to_be():
    events = [
        session("model_run", 0, 500),
        node(
            "SkipLayerNormalization",
            10,
            40,
            [{"float": [1, 8, 16]}, {"float": [1, 8, 16]}, {"float": [16]}],
            [{"float": [1, 8, 16]}],
        ),
        node("FusedMatMul", 60, 100, [{"float": [2, 8, 16]}, {"float": [2, 16, 8]}], [{"float": [2, 8, 8]}]),
        node("DynamicQuantizeMatMul", 200, 80, [{"float": [8, 16]}, {"float": []}, {"int8": []}], [{"float": [8, 4]}]),
        node("Gelu", 300, 30, [{"float": [8, 4]}], [{"float": [8, 4]}]),
    ]
    made = prepare(ort.read_bytes(json.dumps(events).encode(), "p"))
    frame = TABLES["fusion"].compute(made).set_index("kernel")
    assert set(frame.index) == {"onnx::SkipLayerNormalization", "onnx::FusedMatMul", "onnx::DynamicQuantizeMatMul"}
    assert frame.loc["onnx::FusedMatMul", "class_any_gemm"] == "gemm"
    assert frame.loc["onnx::SkipLayerNormalization", "class_any_gemm"] == "nongemm"
    # Both rules, side by side: the whole is a product, and a part of it quantizes and rescales.
    quantized = frame.loc["onnx::DynamicQuantizeMatMul"]
    assert quantized["class_any_gemm"] == "gemm" and 0 < quantized["gemm_us"] < quantized["time_us"] == 80
    parts = frame[["gemm_us", "attention_us", "nongemm_us", "communication_us", "unclassified_us"]].sum(axis=1)
    assert parts.tolist() == pytest.approx(frame["time_us"].tolist())
    rate = TABLES["fusion_rate"].compute(made).set_index("how")["operators"]
    assert rate["fused with a GEMM"] == 1 + 3 and rate["fused with non-GEMM"] == 2 and rate["alone"] == 1


def test_every_fused_operator_is_known_to_the_rules():
    from profilers.readers.ort_fused import FUSED
    from profilers.rules.load import load_rules

    rules = load_rules()
    for name, parts in FUSED.items():
        for op in (name, *(part.lstrip("*-") for part in parts)):
            assert rules.operator(f"onnx::{op}").rule, op
