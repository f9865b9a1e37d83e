"""Exceptions become one line that says what to do."""

from __future__ import annotations

import errno

import pytest

from profilers.collectors.failures import DtypeError, UsageError, explain


class OutOfMemoryError(RuntimeError):
    pass


class BadRequest(ValueError):
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


def test_the_place_is_named():
    try:
        raise ValueError("bad shape")
    except ValueError as error:
        cause = explain(error).cause
    assert cause.startswith("ValueError: bad shape (test_failures.py:")
