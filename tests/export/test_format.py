"""Cells and headers as people read them."""

from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd
import pytest

from profilers.analysis.registry import TABLES, Col
from tui import format as fmt

US, PCT, COUNT, NUMBER = (
    Col("t", "time", "us"),
    Col("p", "GEMM", "pct", "of kernel time"),
    Col("c", "calls", "count"),
    Col("n", "GB/s", "number"),
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (1, "1.00"),
        (0.9996, "1.00"),
        (9.999, "10.0"),
        (41.024, "41.0"),
        (213.65, "214"),
        (12345.6, "12,346"),
        (0.0021349, "0.00213"),
        (0.00001234, "0.0000123"),
        (4.1e-7, "4.10e-07"),
        (-41.02, "-41.0"),
        (1e18, "1.00e+18"),
    ],
)
def test_numbers_have_three_significant_digits_and_never_lose_whole_ones(value: float, text: str) -> None:
    assert fmt.cell(value, NUMBER) == text


def test_a_time_is_written_in_the_unit_of_its_column() -> None:
    assert fmt.cell(41_020.5, US, unit="ms") == "41.0"
    assert fmt.cell(41_020.5, US, unit="us") == "41,020"
    assert fmt.header(US, "ms") == "time ms"
    assert fmt.header(US, "us") == "time µs"
    assert fmt.header(US, "us", ascii=True) == "time us"


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([1.0, 9_999.9], "us"),
        ([10_000.0], "ms"),
        ([-20_000.0, 1.0], "ms"),
        ([math.nan, math.inf, 3.0], "us"),
        ([], "us"),
    ],
)
def test_the_unit_of_a_column_follows_its_largest_magnitude(values: list[float], unit: str) -> None:
    assert fmt.unit_for(values) == unit
    assert fmt.unit_for(pd.Series(values, dtype="float64")) == unit


def test_what_is_not_known_is_a_dash() -> None:
    for value in (None, math.nan, np.nan, pd.NaT):
        assert fmt.cell(value, US) == "–"
        assert fmt.cell(value, PCT, ascii=True) == "-"
    assert fmt.cell(-1, COUNT) == "–", "tables write -1 where an integer is not known"
    assert fmt.cell(math.inf, NUMBER) == "∞"
    assert fmt.cell(-math.inf, US, unit="ms", ascii=True) == "-inf"


def test_percentages_have_one_decimal_and_counts_separators() -> None:
    assert fmt.cell(27.349, PCT) == "27.3"
    assert fmt.cell(-0.01, PCT) == "0.0"
    assert fmt.cell(np.int64(1_234_567), COUNT) == "1,234,567"
    assert fmt.cell(2.5, COUNT) == "2.5"
    assert fmt.cell(True, Col("f", "f", "flag")) == "yes"
    assert fmt.cell(np.False_, Col("f", "f", "flag")) == ""


def test_a_group_carries_its_letter_and_an_unknown_group_does_not_invent_one() -> None:
    group = Col("group", "group", "group")
    assert fmt.cell("matmul", group) == "G matmul"
    assert fmt.cell("unclassified", group) == "? unclassified"
    assert fmt.cell("my-own", group) == "my-own"


def test_control_characters_in_names_are_visible() -> None:
    text = fmt.cell("evil\x1b[2Jname\n\u202e", Col("name", "kernel", "name"))
    assert text.isprintable()
    assert "evil" in text
    assert "name" in text


def test_ascii_cells_hold_nothing_else() -> None:
    assert fmt.ascii_text("Σ µs × – · → ≈ …") == "sum us x - . -> ~ ..."
    assert fmt.cell("größe", Col("name", "kernel", "name"), ascii=True).isascii()
    assert fmt.ascii_text("größe") == r"gr\xf6\xdfe"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_every_header_says_the_unit_and_every_percentage_of_what(table: object) -> None:
    for column in table.columns:  # type: ignore[attr-defined]
        title = fmt.header(column, "ms")
        assert fmt.header(column, "ms", ascii=True).isascii()
        if column.format == "us":
            assert title.endswith(" ms")
        if column.format == "pct":
            assert "%" in title
            assert fmt.of(column) or column.of.removeprefix("of ") in title
        if column.format == "ratio":
            assert title.endswith(("x", "×"))


@pytest.mark.parametrize(
    ("zone", "text"), [("UTC0", "1970-01-01 00:00:02 +0000"), ("XXX-5:30", "1970-01-01 05:30:02 +0530")]
)
def test_a_time_of_day_says_its_zone(zone: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        assert fmt.moment(2.9) == text
    time.tzset()


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999"), (30_802, "30.8 k"), (124_439_808, "124 M"), (1_235_814_400, "1.2 B")]
)
def test_large_counts_in_words(count: int, text: str) -> None:
    assert fmt.amount(count) == text
