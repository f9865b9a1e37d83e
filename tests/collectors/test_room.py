"""A workload that does not fit is refused in the worker, before anything is allocated."""

from __future__ import annotations

import pytest
import torch

from apps import catalogue, fit
from profilers.collectors import room
from profilers.collectors.failures import explain

CPU = torch.device("cpu")


def test_what_does_not_fit_is_refused_with_what_does(monkeypatch):
    entry = catalogue.lookup("gpt2")
    monkeypatch.setattr(room, "free_bytes", lambda device: 2_000_000_000)
    with pytest.raises(fit.DoesNotFit, match=r"batch \d+ fits") as refused:
        room.refuse_what_does_not_fit(entry, entry.request(batch=512), CPU)
    failure = explain(refused.value, "cpu")
    assert failure.kind == "memory"
    assert failure.cause == str(refused.value)
    assert room.refuse_what_does_not_fit(entry, entry.request(batch=1), CPU) == ""


def test_tiny_sizes_and_shapes_are_not_asked_about(monkeypatch):
    entry = catalogue.lookup("gpt2")
    monkeypatch.setattr(room, "free_bytes", lambda device: 0)
    assert room.refuse_what_does_not_fit(entry, entry.request(size="tiny"), CPU) == ""
    assert room.refuse_what_does_not_fit(entry, entry.request(device="meta"), torch.device("meta")) == ""


def test_an_estimate_that_fails_refuses_nothing(monkeypatch):
    def broken(*_):
        raise RuntimeError("no")

    entry = catalogue.lookup("gpt2")
    monkeypatch.setattr(fit, "check", broken)
    assert "could not be estimated (RuntimeError)" in room.refuse_what_does_not_fit(entry, entry.request(), CPU)


def test_free_memory_respects_a_containers_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "_CGROUP", tmp_path)
    free = room.free_bytes(CPU)
    assert free > 0
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 200000\n")
    assert room.free_bytes(CPU) == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert room.free_bytes(CPU) > 500_000
