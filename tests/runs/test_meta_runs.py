"""A model too big for this machine, on shapes alone: its numbers against closed forms."""

from __future__ import annotations

import pytest

from profilers.analysis.bound import bound
from profilers.analysis.gemms import gemms
from profilers.analysis.options import Options
from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.runs.launch import launch
from profilers.runs.spec import Spec
from tests.runs.support import ended

D, F, LAYERS, VOCABULARY, S = 4096, 11008, 32, 32000, 2048
MATMULS = S * (LAYERS * 2 * (4 * D * D + 3 * D * F) + 2 * D * VOCABULARY)
ATTENTION = LAYERS * 2 * 2 * S * S * D


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    spec = Spec(
        name="llama-2-7b",
        workload="llama-2-7b",
        device="meta",
        dtype="bf16",
        batch=1,
        seq=S,
        warmup=0,
        timed_steps=0,
        windows=1,
    )
    (run,) = launch([spec], tmp_path_factory.mktemp("runs"))
    return run, ended(run)


def test_parameters_and_memory_are_those_of_the_model(llama):
    _, status = llama
    assert (status.state, status.windows_done) == ("finished", 1), status.cause
    assert status.parameters == 6_738_415_616
    weights = 2 * status.parameters
    assert weights < status.peak_memory_bytes < 1.2 * weights
    assert status.device_name == "computed, not measured"
    assert status.step_ms is None and status.window_step_ms is None, "nothing was timed"
    assert any(note.startswith("computed, not measured") for note in status.notes)


def test_operations_are_those_of_the_closed_form(llama):
    recording = llama[0].recording()
    assert recording.operators["flops"].sum() == pytest.approx(MATMULS + ATTENTION, rel=1e-12)
    frame = gemms(recording, Options())
    shapes = dict(zip(frame["shape"], frame["calls"], strict=True))
    assert shapes[f"m={S} n={F} k={D}"] == 2 * LAYERS
    assert shapes[f"m={S} n={D} k={F}"] == LAYERS
    assert shapes[f"m={S} n={D} k={D}"] == 4 * LAYERS
    assert shapes[f"m={S} n={VOCABULARY} k={D}"] == 1
    assert shapes[f"b=1 h=32 q={S} k={S} d=128"] == LAYERS
    assert set(frame["dtype"]) == {"bf16"}


def test_copies_of_the_model_are_seen_and_views_launch_nothing(llama):
    names = llama[0].recording().kernels["name"].astype(str)
    # The norms work in fp32: in and out of it, two a layer and one at the end.
    assert (names == "aten::copy_").sum() >= 2 * (2 * LAYERS + 1)
    assert not names.isin(["aten::view", "aten::t", "aten::transpose", "aten::linear"]).any()
    assert "LlamaRMSNorm" in set(llama[0].recording().operators["module"].astype(str))


def test_times_are_bounds_and_say_so(llama):
    recording = llama[0].recording()
    assert [device.name for device in recording.devices] == ["NVIDIA H100 SXM: computed, not measured"]
    assert any(note.code == "computed" for note in recording.notes)
    assert set(recording.kernels["source"].astype(str)) == {"estimate"}
    table = bound(recording, Options()).set_index("device")
    # Each kernel's time is rounded up to a nanosecond.
    total_ms = recording.kernels["dur_ns"].sum() / 1e6
    assert total_ms == pytest.approx(table.loc["H100 SXM", "bound_ms"], abs=len(recording.kernels) / 1e6)
    assert int(recording.steps["dur_ns"].iloc[0]) == recording.kernels["dur_ns"].sum()
    assert (
        recording.operators.loc[recording.operators["depth"] == 0, "dur_ns"].sum() == recording.kernels["dur_ns"].sum()
    )


def test_the_least_time_on_every_device(llama):
    table = bound(llama[0].recording(), Options()).set_index("device")
    h100 = table.loc["H100 SXM"]
    # All the rest of the operators has no formula: only matrix multiplies and attention compute.
    assert h100["compute_ms"] == pytest.approx((MATMULS + ATTENTION) / 989e12 * 1e3, rel=2e-3)
    for _, row in table.dropna(subset="bound_ms").iterrows():
        assert max(row["compute_ms"], row["memory_ms"]) <= row["bound_ms"] <= row["compute_ms"] + row["memory_ms"]
    assert table.loc["T4", "limit"] == "no bf16"
    assert table.loc["H100 SXM", "fits"] == "yes"
    assert table.loc["RTX 2080 Ti", "fits"] == "no"
    assert table.loc["V100 PCIe", "fits"] == "", "it was sold with 16 and with 32 GB"


def test_preparing_again_changes_nothing(llama):
    recording = llama[0].recording()
    again = prepare(recording)
    for column in ("dur_ns", "flops", "bytes", "sm_pct", "dram_pct"):
        assert again.kernels[column].equals(recording.kernels[column]), column


def test_every_table_works_on_it(llama):
    recording = llama[0].recording()
    for table in TABLES.values():
        table.compute(recording)


@pytest.mark.parametrize(("workload", "mode"), [("gpt2", "train"), ("resnet-50", "train"), ("llama-2-7b", "decode")])
def test_other_modes_in_tiny(root, workload, mode):
    from apps import catalogue

    entry = catalogue.lookup(workload)
    request = entry.request(size="tiny", mode=mode, device="meta")
    given = {name: getattr(request, name) for name in ("size", "mode", "dtype", "batch", "seq")}
    (run,) = launch(
        [Spec(name="x", workload=workload, device="meta", warmup=0, timed_steps=0, windows=1, **given)], root
    )
    status = ended(run)
    assert status.state == "finished", (status.cause, run.log_tail(20))
    assert status.parameters > 1000
    assert bound(run.recording(), Options())["bound_ms"].notna().any()
