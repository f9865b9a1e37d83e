"""Exceptions become one line that says what to do."""

from __future__ import annotations

import errno

import pytest

from apps.catalogue import BadRequest
from profilers.collectors.failures import SCRIPTS, DtypeError, UsageError, explain


class OutOfMemoryError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "cause"),
    [
        (
            OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
                "1.25 GiB is free. Process 7 has 77 GiB in use."
            ),
            "memory",
            "CUDA out of memory on cuda:3: tried to allocate 2.00 GiB, 1.25 GiB of 79.10 GiB were free; "
            "use a smaller --batch, --seq or --dtype bf16",
        ),
        (
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 2500000000 bytes."
            ),
            "memory",
            "out of memory on cuda:3: asked for 2.5 GB; use a smaller --batch, --seq or --dtype bf16",
        ),
        (MemoryError(), "memory", "out of memory on cuda:3; use a smaller --batch, --seq or --dtype bf16"),
        (OSError(errno.ENOSPC, "No space", "/x/y"), "disk", "the disk is full while writing /x/y"),
        (UsageError("no such thing"), "usage", "no such thing"),
        (DtypeError("no bf16"), "dtype", "no bf16"),
        (BadRequest("batch 0 is out of range"), "usage", "batch 0 is out of range"),
        (SystemExit(2), "workload", "the workload ended by itself with exit code 2"),
        (KeyError("x\ny"), "workload", r"KeyError: 'x\ny'"),
        (ValueError(), "workload", "ValueError: (no message)"),
    ],
)
def test_explain(error, kind, cause):
    failure = explain(error, "cuda:3")
    assert (failure.kind, failure.cause) == (kind, cause)


def test_a_script_is_not_told_of_options_of_ours():
    failure = explain(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."), "cuda:1", SCRIPTS)
    assert failure.cause == (
        "CUDA out of memory on cuda:1: tried to allocate 2.00 GiB; use a smaller batch in the script"
    )


def test_a_rank_names_its_own_device(monkeypatch):
    from profilers.collectors.script import _own_device
    from profilers.collectors.spec import Spec

    monkeypatch.delenv("LOCAL_RANK", raising=False)
    spec = Spec(name="x", workload="x.py", device="cuda:2", more_devices=(("cuda:5", "GPU-5"),))
    assert _own_device(spec) == "cuda:2"
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert _own_device(spec) == "cuda:5"
    assert _own_device(Spec(name="x", workload="x.py", device="cpu")) == "cpu", "all ranks share it"


def test_a_rank_that_the_kernel_killed_for_memory(tmp_path, monkeypatch):
    from profilers.runs import deaths

    (tmp_path / "failure.json").write_text('{"kind": "signal", "cause": "rank 3 was killed by SIGKILL (often ...)"}')
    monkeypatch.setattr(deaths, "kills_for_memory", lambda: 5)
    assert deaths.describe(tmp_path, 137, 5).kind == "signal"
    end = deaths.describe(tmp_path, 137, 4)
    assert (end.kind, end.cause.partition(";")[0]) == (
        "memory",
        "rank 3 was killed by SIGKILL: the kernel's out-of-memory killer was at work",
    )


def test_the_place_is_named():
    try:
        raise ValueError("bad shape")
    except ValueError as error:
        cause = explain(error).cause
    assert cause.startswith("ValueError: bad shape (test_failures.py:")


def test_a_refusal_of_others_is_not_taken_for_ours():
    theirs = type("BadRequest", (Exception,), {})
    assert explain(theirs("404")).kind == "workload"
