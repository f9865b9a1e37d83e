"""The table behind the screen: order, filter, columns that fit, and what an export takes from it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from profilers.analysis.registry import TABLES
from tui.grid import FAIR_NAME, Grid, matching
from tui.widgets.line_table import LineTable

TABLE = TABLES["kernels"]


def frame(rows: int = 5) -> pd.DataFrame:
    names = [f"void at::native::kernel_{i}<float>(int)" for i in range(rows)]
    return pd.DataFrame(
        {
            "name": pd.Categorical(names),
            "group": pd.Categorical(["matmul" if i % 2 else "memory" for i in range(rows)]),
            "class": pd.Categorical(["gemm" if i % 2 else "nongemm" for i in range(rows)]),
            "calls": np.arange(rows) + 1,
            "time_us": np.array([10.0, 50.0, np.nan, 5.0, 20.0] * (rows // 5 + 1))[:rows],
            "mean_us": 1.0,
            "min_us": 1.0,
            "max_us": 1.0,
            "pct": 20.0,
            "cum_pct": 40.0,
            "threads_median": 128,
            "state": "HMM",
            "rule": "kernels.toml:x",
        }
    )


def test_largest_first_and_unknown_last() -> None:
    grid = Grid(TABLE, frame())
    times = grid.visible["time_us"].tolist()
    assert times[:4] == [50.0, 20.0, 10.0, 5.0]
    assert math.isnan(times[4])
    grid.sort_by("time_us")
    assert grid.visible["time_us"].tolist()[:2] == [5.0, 10.0]


def test_texts_sort_from_the_first_letter() -> None:
    grid = Grid(TABLE, frame())
    grid.sort_by("group")
    assert grid.visible["group"].astype(str).tolist() == ["matmul", "matmul", "memory", "memory", "memory"]


def test_equal_rows_keep_their_order() -> None:
    grid = Grid(TABLE, frame())
    grid.sort_by("pct")
    assert grid.visible["calls"].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("query", "calls"),
    [
        ("matmul", {2, 4}),
        ("!matmul", {1, 3, 5}),
        ("KERNEL_3", {4}),
        ("memory kernel_0", {1}),
        ("gemm", {2, 4}),
        ("!gemm", {1, 3, 5}),
        ("nongemm", {1, 3, 5}),
        ("nothing", set()),
        ("", {1, 2, 3, 4, 5}),
    ],
)
def test_filter(query: str, calls: set[int]) -> None:
    data = frame()
    keep = matching(data, TABLE.columns, query)
    assert set(data["calls"] if keep is None else data["calls"][keep]) == calls


def test_every_sort_works_on_every_column() -> None:
    grid = Grid(TABLE, frame())
    for column in TABLE.columns:
        grid.sort_by(column.name)
        assert sorted(grid.order.tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("width", [30, 50, 76, 120, 200])
def test_columns_fit_and_what_does_not_is_named(width: int) -> None:
    grid = Grid(TABLE, frame())
    grid.lay_out(width)
    used = sum(shown.width for shown in grid.columns) + 2 * (len(grid.columns) - 1)
    assert used <= width
    assert len(grid.columns) + len(grid.hidden) == len(TABLE.columns)
    assert grid.columns[0].column.name == "name"


def test_widths_do_not_shrink_while_data_arrive() -> None:
    grid = Grid(TABLE, frame())
    grid.lay_out(200)
    before = {shown.column.name: shown.width for shown in grid.columns}
    smaller = frame()
    smaller["calls"] = 1
    grid.replace(smaller)
    grid.lay_out(200)
    assert all(shown.width >= before[shown.column.name] for shown in grid.columns if shown.column.name in before)


def test_an_empty_name_is_a_dash() -> None:
    data = frame()
    data["name"] = pd.Categorical(["", *data["name"].astype(str)[1:]])
    grid = Grid(TABLE, data)
    assert grid.text("", TABLE.column("name")) == "–"


def test_a_million_rows_sort_and_filter() -> None:
    """The size that the screen must bear; the benchmark measures how long it takes."""
    rows = 1_000_000
    data = frame(5).iloc[np.arange(rows) % 5].reset_index(drop=True)
    grid = Grid(TABLE, data)
    grid.sort_by("calls")
    grid.filter = "matmul"
    grid.rearrange()
    assert len(grid.order) == rows * 2 // 5
    assert int(grid.visible["calls"].iloc[0]) == 4


def test_names_outrank_the_running_sum() -> None:
    long = frame()
    long["name"] = [f"cutlass gemm bf16 256x128x64 epilogue {i}" for i in range(len(long))]
    for width in range(60, 130):
        grid = Grid(TABLE, long)
        grid.lay_out(width)
        assert "Σ %" in grid.hidden or grid.columns[0].width >= FAIR_NAME


def test_bars_are_against_the_largest_row_that_is_known() -> None:
    rows = pd.DataFrame({column.name: 0.0 for column in TABLES["roofline"].columns}, index=range(2))
    lines = LineTable(TABLES["roofline"])
    lines.grid = Grid(TABLES["roofline"], rows.assign(pct_of_roof=[np.nan, 40.0]))
    assert lines._full_scale() == 40.0
    lines.grid.replace(rows.assign(pct_of_roof=np.nan))
    assert lines._full_scale() == 100.0
