"""The roofline in the report: dots are the tables' rows, lines go through the peaks, and what is not known is said."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element

import pandas as pd
import pytest
from markup import picture

from profilers.analysis.options import Options
from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.readers import read
from profilers.tables import Recording
from tui.report import render, roofline, rooflines
from tui.report.content import content

RECORDINGS = ["h100_owlv2", "h100_qwen_decode", "mi300x_bert_small", "dlrm128_rank0_2023"]


@cache
def prepared(path: Path) -> Recording:
    return prepare(read(path))


def frames(recording: Recording) -> dict[str, pd.DataFrame]:
    return {name: TABLES[name].compute(recording, Options()) for name in ("gemms", "roofline_groups", "roofs")}


def made_up(sources: tuple[str, str] = ("table", "table")) -> dict[str, pd.DataFrame]:
    """Two shapes, one without a place; a group that has one; a device of 100 TFLOP/s in bf16 and 1 TB/s."""
    gemms = pd.DataFrame(
        {
            "op": ["aten::mm", "aten::conv2d", "aten::bmm"],
            "shape": ["m=1 n=2 k=3", "x", ""],
            "dtype": ["bf16", "fp32", "bf16"],
            "time_us": [60.0, 30.0, 10.0],
            "intensity": [200.0, 10.0, math.nan],
            "tflops_per_s": [50.0, 4.0, math.nan],
        }
    )
    groups = pd.DataFrame(
        {"group": ["matmul", "softmax", "memory"], "time_us": [60.0, 5.0, 7.0]}
        | {"intensity": [200.0, 2.0, math.nan], "tflops_per_s": [50.0, 0.5, math.nan]}
    )
    roofs = pd.DataFrame(
        {"model": "Chip", "devices": "cuda:0", "roof": ["memory", "fp32", "bf16"]}
        | {"tflops_per_s": [math.nan, 10.0, 100.0], "gb_per_s": [1_000.0, math.nan, math.nan]}
        | {"source": [sources[0], sources[1], sources[1]], "cite": "a sheet"}
    )
    return {"gemms": gemms, "roofline_groups": groups, "roofs": roofs}


def drawn(made: dict[str, pd.DataFrame]) -> str:
    return roofline.picture(made["gemms"], made["roofline_groups"], made["roofs"])


def axes(made: dict[str, pd.DataFrame]) -> rooflines.Axes:
    dots = rooflines.dots(made["gemms"], made["roofline_groups"])
    types = {dot.dtype for dot in dots}
    lines = [roof for roof in rooflines.roofs_of(made["roofs"]) if roof.name in {*types, "memory"}]
    return rooflines.axes_of(dots, lines)


def at(axes: rooflines.Axes, x: str | None, y: str | None) -> tuple[float, float]:
    """The FLOP/B and TFLOP/s that lie at a place of the picture."""
    assert x is not None and y is not None
    across = axes.x0 + float(x.rstrip("%")) / 100 * (axes.x1 - axes.x0)
    up = axes.y1 - float(y) / rooflines.HEIGHT * (axes.y1 - axes.y0)
    return 10.0**across, 10.0**up


def roof_line(svg: Element, name: str) -> Element:
    found = [line for line in svg.iter("line") if line.get("data-roof") == name]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_dots_are_the_rows_of_the_table(traces: Path, name: str) -> None:
    recording = prepared(traces / "kineto" / f"{name}.json.gz")
    made = frames(recording)
    page = render(content(recording, name, None, Options()), "html").decode()
    circles = list(picture(page, "log").iter("circle"))
    gemms = made["gemms"]
    known = gemms[gemms["intensity"].notna() & gemms["tflops_per_s"].notna() & (gemms["tflops_per_s"] > 0)]
    assert len(known) > 0
    got = [(float(one.get("data-x", "")), float(one.get("data-y", ""))) for one in circles]
    assert got == list(zip(known["intensity"], known["tflops_per_s"], strict=True))
    scale = axes(made)
    for circle, (x, y) in zip(circles, got, strict=True):
        assert at(scale, circle.get("cx"), circle.get("cy")) == pytest.approx((x, y), rel=0.01)
    rest = len(gemms) - len(known)
    assert (f"Not drawn: {rest:,} of {len(gemms):,} rows" in page) == (rest > 0)


def test_roofs_go_through_the_peaks_and_meet_at_the_ridge() -> None:
    made = made_up()
    svg, scale = picture(drawn(made), "log"), axes(made)
    for name, peak in (("bf16", 100.0), ("fp32", 10.0)):
        line = roof_line(svg, name)
        left, right = at(scale, line.get("x1"), line.get("y1")), at(scale, line.get("x2"), line.get("y2"))
        assert left == pytest.approx((peak * 1e3 / 1_000, peak), rel=0.01)
        assert right == pytest.approx((10.0**scale.x1, peak), rel=0.01)
    memory = roof_line(svg, "memory")
    for x, y in (("x1", "y1"), ("x2", "y2")):
        intensity, tflops = at(scale, memory.get(x), memory.get(y))
        assert tflops == pytest.approx(intensity * 1_000 / 1e3, rel=0.01)
    # The memory's roof ends where the highest compute roof begins.
    assert memory.get("x2") == roof_line(svg, "bf16").get("x1")
    assert {line.get("class") for line in svg.iter("line") if line.get("data-roof")} == {"roof"}


def test_the_peaks_of_a_real_device(traces: Path) -> None:
    made = frames(prepared(traces / "kineto" / "h100_owlv2.json.gz"))
    text, scale = drawn(made), axes(made)
    line = roof_line(picture(text, "log"), "bf16")
    assert at(scale, line.get("x2"), line.get("y2"))[1] == pytest.approx(989.4, rel=0.01)
    assert "Roofs of H100 SXM (cuda:0): memory 3,352 GB/s; bf16 989 TFLOP/s" in text and "whitepaper" in text


def test_estimates_are_dashed_and_marked() -> None:
    text = drawn(made_up(("estimated", "unchecked")))
    svg = picture(text, "log")
    assert roof_line(svg, "memory").get("class") == "roof estimated" and "memory ≈ 1,000 GB/s" in text
    assert roof_line(svg, "bf16").get("class") == "roof" and "bf16 100 TFLOP/s (unchecked)" in text


def test_only_roofs_of_types_that_are_drawn() -> None:
    made = made_up()
    made["gemms"] = made["gemms"][made["gemms"]["dtype"] == "bf16"]
    made["roofline_groups"] = made["roofline_groups"][made["roofline_groups"]["group"] == "matmul"]
    names = {line.get("data-roof") for line in picture(drawn(made), "log").iter("line")} - {None}
    assert names == {"memory", "bf16"}


def test_a_group_has_a_dot_only_where_its_operations_are_known() -> None:
    circles = list(picture(drawn(made_up()), "log").iter("circle"))
    assert [one.get("class") for one in circles] == ["g-matmul", "g-convolution", "g-softmax whole"]
    titles = ["".join(one.itertext()) for one in circles]
    assert titles[2].startswith("all of softmax: 500 GFLOP/s at 2.00 FLOP/B")
    assert titles[0] == "mm m=1 n=2 k=3 bf16: 50 TFLOP/s at 200 FLOP/B, 60.0 µs"


def test_the_named_shapes_say_their_part() -> None:
    text = drawn(made_up())
    assert "<b>mm m=1 n=2 k=3 bf16</b>: 50 TFLOP/s, 60.0 µs, 60.0 % of GEMM and attention time" in text
    assert "Not drawn: 1 of 3 rows, 10.0 % of GEMM and attention time, without recorded shapes." in text
    numbers = [one.text for one in picture(text, "log").iter("text") if "number" in one.get("class", "")]
    assert numbers == ["1", "2"]


def test_without_a_peak_one_line_says_so(traces: Path) -> None:
    text = drawn(frames(prepared(traces / "kineto" / "dlrm128_rank0_2023.json.gz")))
    assert not [line for line in picture(text, "log").iter("line") if line.get("data-roof")]
    assert text.count("No roof for cuda:0: no peak is known") == 1 and "calibrate" in text


def test_without_shapes_there_is_a_line_and_no_picture() -> None:
    made = made_up()
    made["gemms"] = made["gemms"].assign(intensity=math.nan)
    made["roofline_groups"] = made["roofline_groups"].assign(intensity=math.nan)
    assert "<svg" not in drawn(made) and "there is no dot to draw" in drawn(made)


def test_names_of_strangers_are_text() -> None:
    made = made_up()
    evil = '"><script>x</script>\x1b[31m'
    made["gemms"] = made["gemms"].assign(op=evil, shape=evil, dtype=["bf16", evil, evil])
    made["roofs"] = made["roofs"].assign(model=evil, devices=evil, cite=evil)
    made["roofline_groups"] = made["roofline_groups"].assign(group=evil)
    text = drawn(made)
    assert picture(text, "log") is not None
    assert "<script" not in text and "\x1b" not in text


def test_rates_have_the_unit_they_need() -> None:
    assert [rooflines.rate(value) for value in (989.4, 1.0, 0.332, 1e-3, 4e-5)] == [
        "989 TFLOP/s", "1 TFLOP/s", "332 GFLOP/s", "1 GFLOP/s", "40 MFLOP/s",
    ]  # fmt: skip
