"""What ``dcgmi`` prints, as DCGM's source writes it: tables, rows, headers and messages."""

from __future__ import annotations

import pytest
from dcgmi_said import DISCOVERY, ENGINELESS, FIELDS, HEADER, PROFILE, A, B

from profilers.collectors.telemetry import dcgmi


def test_tables_of_discovery_and_profile():
    assert dcgmi.gpus(DISCOVERY) == {A: 3, B: 1}
    assert dcgmi.offered(PROFILE) == FIELDS
    assert dcgmi.gpus("\n".join(ENGINELESS)) == {} and dcgmi.offered("| A.1 | soon | x |") == ()


@pytest.mark.parametrize(
    "line",
    [
        "GPU 3     0.125        0.500        0.850        2097152          ",
        "   GPU 3  0.125    0.5   0.85    2097152",  # DCGM 2 sets the entity to the right
        "GPU 3     0.125        0.500        0.850        2097152.000      \r\n",
    ],
)
def test_a_row(line: str):
    assert dcgmi.row(line, FIELDS) == dcgmi.Row("GPU", 3, {1002: 0.125, 1004: 0.5, 1005: 0.85, 1009: 2097152.0})


def test_values_that_are_none_say_why():
    found = dcgmi.row("GPU-CI 12 N/A 1.7 0.5 12345678...", FIELDS)
    assert found is not None and (found.kind, found.number) == ("GPU-CI", 12)
    assert found.values == {
        1002: "no value (DCGM says N/A)",
        1004: "out of range: 1.7",
        1005: 0.5,
        1009: "not a number: 12345678...",
    }
    blank = dcgmi.row("GPU 0 N/A N/A N/A N/A", FIELDS)
    assert blank is not None and set(blank.values.values()) == {dcgmi.NO_VALUE}
    for bad in ("nan", "inf", "-0.1", "140737488355328.000"):
        assert isinstance(dcgmi.row(f"GPU 0 {bad} 0 0 0", FIELDS).values[1002], str)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "line",
    [
        *HEADER,
        "",
        "      Id",
        "GPU 3     0.125        0.500",  # cut short
        "GPU 3     0.1 0.2 0.3 0.4 0.5",
        "GPU x     0.1 0.2 0.3 0.4",
        "Error setting watches. Result: -37: The third-party Profiling module returned",
        "waited 4 times for all of them",
        "\x1b[2J\x00",
    ],
)
def test_what_is_no_row(line: str):
    assert dcgmi.row(line, FIELDS) is None


def test_headers_are_told_from_trouble():
    assert all(map(dcgmi.header, (*HEADER, "", "# Entity  TENSO", "      Id", "\n")))
    assert not dcgmi.header("Error setting watches.") and not dcgmi.header("GPU 0 0.1")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("\n".join(ENGINELESS), dcgmi.NO_ENGINE),
        ("Error setting watches. Result: The third-party Profiling module returned an unrecoverable error", dcgmi.LOCKED),
        ("Error setting watches. Result: -33: This request is serviced by a module of DCGM that is not currently loaded", dcgmi.NO_MODULE),
        ("Error: Unable to Get supported metric groups: Profiling is not supported for this group of GPUs or GPU.", dcgmi.UNSUPPORTED),
        ("Error setting watches. Result: [...] doing so requires the host engine to be running as root.", dcgmi.NOT_ROOT),
        ("Error: Unable to Get supported metric groups: Host engine is running as non-root.", dcgmi.NOT_ROOT),
        ("first\nError: something\x1b[31m new\nlast", "dcgmi: Error: something [31m new"),
        ("all is well", ""),
    ],
)  # fmt: skip
def test_what_its_messages_mean(said: str, why: str):
    assert dcgmi.trouble(said) == why
