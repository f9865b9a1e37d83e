"""Telemetry in the report: every sample on its curve, gaps as gaps, windows where they were, numbers with their unit."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from markup import Balance, pictures

from profilers.analysis.options import Options
from profilers.analysis.prepare import prepare
from profilers.collectors.telemetry.base import Sample
from profilers.readers import read
from profilers.runs.folder import RunFolder
from profilers.runs.spec import Spec
from profilers.runs.windows import extents
from tui.report import curves as drawing
from tui.report import render
from tui.report.content import content
from tui.report.telemetry import NOTHING, Curve, Telemetry, curves

S = 1_000_000_000
T0 = 1_796_000_000 * S

Row = tuple[int, str, str, float, str, str]


def rows(device: str, metric: str, unit: str, *values: tuple[float, float]) -> list[Row]:
    """Samples of one metric: (seconds since T0, value)."""
    return [(T0 + int(at * S), device, metric, value, unit, "nvml") for at, value in values]


def power(*values: tuple[float, float]) -> tuple[Curve, ...]:
    return curves(rows("cuda:0", "power_w", "W", *values), ["cuda:0"])


def svg(page: str, metric: str, which: int = 0) -> Element:
    return [one for one in pictures(page) if one.get("data-metric") == metric][which]


def lines(one: Element) -> list[list[tuple[float, float]]]:
    """The points of each line of a curve."""
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.get("points", "").split())]
        for line in one.iter("polyline")
    ]


def drawn(made: tuple[Curve, ...], windows: tuple[tuple[int, int], ...] = ()) -> str:
    return drawing.picture(Telemetry(made, windows), {"cuda:0": "a chip"})


def test_every_sample_lies_on_the_curve() -> None:
    values = [(0, 100.0), (1, 300.0), (2, 600.0), (4, 450.0)]
    made = power(*values)
    assert made[0].top == 600
    points = lines(svg(drawn(made), "power_w"))
    assert len(points) == 1
    for (x, y), (at, value) in zip(points[0], values, strict=True):
        assert x == pytest.approx(1000 * at / 4, abs=0.01)
        assert y == pytest.approx(drawing.height(value, 600), abs=0.01)
    # Upwards is more: the largest value is nearest to the upper edge, and the scale begins at 0.
    assert drawing.height(600, 600) < drawing.height(100, 600) < drawing.height(0, 600)


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        ([(0, 1.0), (1, 2.0), (2, 3.0), (20, 4.0), (21, 5.0)], [3, 2]),
        ([(0, 1.0), (1, math.nan), (2, 3.0), (3, 4.0)], [1, 2]),
        ([(0, math.nan), (1, 2.0), (2, 2.0)], [2]),
        ([(0, 1.0), (1.2, 2.0), (3.1, 3.0)], [3]),
        ([(0, 1.0), (1, 2.0), (2, 2.0), (3, 2.0), (5.4, 3.0), (8, 3.0)], [5, 1]),
        ([(0, 1.0), (5, 2.0), (10, 3.0)], [3]),
        ([(0, 7.0)], [1]),
    ],
    ids=[
        "nothing sampled",
        "not known",
        "from the second on",
        "a late sample",
        "one missed, then two",
        "every five seconds",
        "one sample",
    ],
)
def test_a_gap_is_a_gap(values: list[tuple[float, float]], sizes: list[int]) -> None:
    made = power(*values)
    assert [len(piece) for piece in made[0].pieces()] == sizes
    points = lines(svg(drawn(made), "power_w"))
    # A lone sample is drawn as a short line, so that it is seen.
    assert [len(line) for line in points] == [max(size, 2) for size in sizes]


def test_nothing_known_is_said() -> None:
    made = power((0, math.nan), (1, math.nan))
    text = drawn(made)
    assert lines(svg(text, "power_w")) == [] and "nothing known" in text
    assert not math.isfinite(Telemetry(made).frame()["median"].iloc[0])


def test_windows_are_marked_where_they_were() -> None:
    made = power(*((at, 100.0) for at in range(11)))
    text = drawn(made, ((T0 + 2 * S, T0 + 3 * S), (T0 + 9 * S, T0 + 9 * S + 1)))
    marks = [one for one in svg(text, "power_w").iter("rect") if one.get("class") == "window"]
    assert (float(marks[0].get("x", "")), float(marks[0].get("width", ""))) == pytest.approx((200, 100))
    assert float(marks[1].get("width", "")) == pytest.approx(1.5)  # a short one can still be seen
    assert "The 2 profiled windows are shaded." in text
    assert "not marked" in drawn(made)


def test_many_samples_are_thinned_and_no_peak_is_lost() -> None:
    values = [(float(at), 900.0 if at == 12_345 else 100.0 + at % 7) for at in range(40_000)]
    points = lines(svg(drawn(power(*values)), "power_w"))
    assert len(points) == 1 and len(points[0]) <= 4_004
    assert min(y for _, y in points[0]) == pytest.approx(drawing.height(900.0, 1000.0), abs=0.01)


def test_own_devices_first_and_percentages_say_of_what() -> None:
    made = curves(
        [
            *rows("cuda:7", "util_pct", "%", (0, 1.0), (5, 1.0)),
            *rows("cpu/3", "util_pct", "%", (0, 1.0)),
            *rows("cpu", "util_pct", "%", (0, 50.0), (1, 60.0)),
            *rows("cuda:0", "memory_total_gb", "GB", (0, 80.0)),
            *rows("cuda:0", "memory_used_gb", "GB", (0, 20.0), (1, 40.0)),
            *rows("cuda:0", "util_pct", "%", (0, 99.0), (1, 98.0)),
        ],
        ["cuda:0"],
    )
    assert [(one.device, one.metric) for one in made] == [
        ("cuda:0", "util_pct"), ("cuda:0", "memory_used_gb"), ("cpu", "util_pct"), ("cuda:7", "util_pct"),
    ]  # fmt: skip
    assert [one.unit for one in made] == [
        "% of time with a kernel resident", "GB of 80 GB", "% of all cores", "% of time with a kernel resident",
    ]  # fmt: skip
    assert [one.top for one in made] == [100, 80, 100, 100]
    frame = Telemetry(made).frame()
    assert frame["median"].tolist() == [98.5, 30.0, 55.0, 1.0] and frame["most"].tolist() == [99.0, 40.0, 60.0, 1.0]
    text = drawn(made)
    assert "cuda:0 (a chip)" in text and "median 30.0, from 20.0 to 40.0, in GB of 80 GB" in text


def test_figures_share_one_axis() -> None:
    made = (*power((0, 1.0), (100, 2.0)), *curves(rows("cuda:1", "power_w", "W", (50, 3.0), (100, 4.0)), []))
    text = drawn(made)
    assert lines(svg(text, "power_w", 1))[0][0][0] == pytest.approx(500)
    ticks = [[t.text for t in one.iter("text")] for one in pictures(text) if one.get("class") == "ticks"]
    assert ticks[0] == ticks[1] == ["0 s", "30 s", "60 s", "90 s"]


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [
        (4, ["0 s", "1 s", "2 s", "3 s", "4 s"]),
        (200, ["0 min", "1 min", "2 min", "3 min"]),
        (1_000, ["0 min", "5 min", "10 min", "15 min"]),
        (30_000, ["0 h", "2 h", "4 h", "6 h", "8 h"]),
    ],
)
def test_ticks_have_one_unit(seconds: int, ticks: list[str]) -> None:
    text = drawn(power((0, 1.0), (seconds, 2.0)))
    found = next(one for one in pictures(text) if one.get("class") == "ticks")
    assert [t.text for t in found.iter("text")] == ticks


def test_names_of_strangers_are_text() -> None:
    evil = '"><script>x\x1b[31m'
    made = curves([(T0, evil, "power_w", 1.0, evil, evil)], [])
    assert len(made) == 1
    text = drawing.picture(Telemetry(made), {evil: evil})
    assert "<script" not in text and "\x1b" not in text and svg(text, "power_w") is not None


@pytest.fixture
def run(traces: Path, tmp_path: Path) -> RunFolder:
    """A finished run with a window of a real recording, and samples from before it to after it."""
    made = RunFolder.create(tmp_path / "runs", Spec(name="m", workload="m", device="cuda:0"))
    recording = prepare(read(traces / "kineto" / "h100_bert_small.json.gz"))
    made.write_window(1, recording)
    start, end, epoch = extents(recording)[0]
    assert epoch > 0 and end > start
    for second in (-2, -1, 0, 1, 2):
        at = epoch + second * S
        made.append_samples(
            [
                Sample(at, "cuda:0", "sm_pct", 50.0 + second, "%", "gpm"),
                Sample(at, "cuda:0", "power_w", None, "W", "nvml", "not supported"),
                Sample(at, "cuda:0", "odd<metric>", 1.0, "", "nvml"),
            ]
        )
    return made


@pytest.mark.parametrize("format", ["html", "markdown", "latex"])
def test_a_runs_samples_are_in_every_format(run: RunFolder, format: str) -> None:
    made = content(run.recording(), "m", run, Options())
    assert [(one.device, one.metric) for one in made.telemetry.curves] == [("cuda:0", "sm_pct")]
    assert len(made.telemetry.windows) == 1
    text = render(made, format).decode()
    assert "50.0" in text and "of the SMs busy" in text and NOTHING not in text


def test_in_the_page_the_window_lies_at_its_time(run: RunFolder) -> None:
    page = render(content(run.recording(), "m", run, Options()), "html").decode()
    Balance(page)
    marks = [one for one in svg(page, "sm_pct").iter("rect") if one.get("class") == "window"]
    assert [float(one.get("x", "")) for one in marks] == pytest.approx([500], abs=0.5)
    assert "The 1 profiled windows are shaded." not in page and "The profiled window is shaded." in page


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_without_samples_one_line_says_so(traces: Path, format: str) -> None:
    made = content(prepare(read(traces / "kineto" / "h100_bert_small.json.gz")), "m", None, Options())
    assert made.section("telemetry") is None
    assert render(made, format).decode().count(NOTHING) == 1
