"""The report: the tables of the screen, nothing from elsewhere, and every name of a stranger as text."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser
from markup import Balance, pictures

from profilers.analysis.options import Options
from profilers.analysis.prepare import prepare
from profilers.analysis.registry import TABLES
from profilers.readers import read
from profilers.tables import Recording
from tui.palette import DARK, LIGHT
from tui.report import FORMATS, render
from tui.report.content import NO_ROOFLINE, Content, content, shortened
from tui.report.page import contrast, ink
from tui.report.tables import PAPER_ROWS, ROWS

EVIL = "</td></script><script>alert(1)</script><img src=x onerror=alert(2)> | `x` \\input{/etc/passwd} $& \x1b[31m"


@cache
def prepared(path: Path) -> Recording:
    return prepare(read(path))


def renamed(recording: Recording) -> Recording:
    """The same, with names that would like to be markup."""
    kernels, operators = recording.kernels.copy(), recording.operators.copy()
    for frame in (kernels, operators):
        frame["name"] = frame["name"].cat.rename_categories(lambda name: f"{name} {EVIL}")
    return recording.replace(kernels=kernels, operators=operators)


@pytest.fixture
def qwen(traces: Path) -> Content:
    return content(prepared(traces / "kineto" / "h100_qwen_decode.json.gz"), "qwen", None, Options())


@pytest.fixture
def evil(traces: Path) -> Content:
    return content(renamed(prepared(traces / "kineto" / "h100_bert_small.json.gz")), EVIL, None, Options())


class Reader(HTMLParser):
    """Tags, attributes and the tables' cells of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]


def test_sections_are_the_panes_tables(qwen: Content, traces: Path) -> None:
    recording = prepared(traces / "kineto" / "h100_qwen_decode.json.gz")
    for section in qwen.sections:
        wanted = TABLES[section.table.name].compute(recording, Options())
        assert len(section.frame) == len(wanted) and list(section.frame.columns) == list(wanted.columns)
    kernels = qwen.section("kernels")
    assert kernels is not None and kernels.frame["time_us"].is_monotonic_decreasing
    page = render(qwen, "html").decode()
    # The summary of one device stands upright: a line a figure.
    lying = [s for s in qwen.sections if s.table.name not in ("advice", "summary")]
    assert page.count("<tr>") == sum(min(len(s.frame), ROWS) + 1 for s in lying) + len(TABLES["summary"].columns)
    for share in qwen.shares:
        assert f"{share.gemm_pct:.1f} %" in page


def test_nothing_is_fetched_and_only_our_script_runs(qwen: Content) -> None:
    page = render(qwen, "html").decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    assert policy is not None and script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1] and policy[1].startswith("default-src 'none'")
    reader = Reader(page)
    assert reader.tags.isdisjoint({"img", "link", "iframe", "object", "embed", "base", "form", "video", "image", "use"})
    links = [value for _, name, value in reader.attributes if name in ("href", "src", "srcset", "xlink:href", "action")]
    assert links and all(value is not None and value.startswith("#") for value in links)
    assert "url(" not in page and "@import" not in page


def test_colours_are_those_of_the_screen(qwen: Content) -> None:
    page = render(qwen, "html").decode()
    for palette in (LIGHT, DARK):
        for cls, colour in ((".g-matmul", palette.group("matmul")), (".s-HMM", palette.state("HMM"))):
            assert f"{cls} {{ --of: {colour}; --on: {ink(colour)}; }}" in page


def test_letters_can_be_read_on_every_colour() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21) and contrast("#777777", "#777777") == 1
    for palette in (LIGHT, DARK):
        for colour in (*palette.groups.values(), *palette.states.values()):
            assert contrast(ink(colour), colour) >= 4.2, colour


@pytest.mark.parametrize(
    "name", ["h100_qwen_decode", "h100_owlv2", "b200_vllm_tp8_rank0", "cpu_only_rank34", "dlrm128_rank0_2023"]
)
def test_the_page_and_its_pictures_are_well_formed(traces: Path, name: str) -> None:
    made = content(renamed(prepared(traces / "kineto" / f"{name}.json.gz")), EVIL, None, Options())
    page = render(made, "html").decode()
    ids = Balance(page).ids
    assert len(ids) == len(set(ids)) and {section.table.name for section in made.sections} <= set(ids)
    assert len(pictures(page)) >= 3
    for one in pictures(page):
        for part in one.iter():
            places = (
                value for key, value in part.items() if key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "points")
            )
            assert not [value for value in places if "nan" in value or "inf" in value]


def test_what_a_share_is_of_is_the_tables_word(traces: Path) -> None:
    made = content(prepared(traces / "kineto" / "b200_vllm_tp8_rank0.json.gz"), "m", None, Options())
    assert not len(prepared(traces / "kineto" / "b200_vllm_tp8_rank0.json.gz").steps)
    for text in (render(made, "html").decode(), render(made, "markdown").decode()):
        assert "% of span, first start to last end" in text and "% of step" not in text


def test_several_devices_are_named_and_set_side_by_side(traces: Path) -> None:
    two = content(prepared(traces / "nsys" / "h100_2gpu_1s_2026.sqlite"), "m", None, Options())
    assert "device (cuda:1 of 2): GEMM" in render(two, "html").decode()
    assert two.section("ranks") is not None
    one = content(prepared(traces / "kineto" / "h100_owlv2.json.gz"), "m", None, Options())
    assert one.section("ranks") is None and "device: GEMM" in render(one, "html").decode()


def test_a_table_of_dashes_is_a_line(traces: Path) -> None:
    made = content(prepared(traces / "nsys" / "h100_2gpu_1s_2026.sqlite"), "m", None, Options())
    assert made.section("roofline") is None and made.section("roofline_groups") is None
    for format in ("html", "markdown"):
        text = render(made, format).decode()
        assert text.count("there is no roofline") == 1 and "Roofline by kernel" not in text
    known = content(prepared(traces / "kineto" / "h100_owlv2.json.gz"), "m", None, Options())
    assert known.section("roofline") is not None and NO_ROOFLINE not in known.missing


def test_where_states_come_from(traces: Path) -> None:
    estimated = content(prepared(traces / "kineto" / "h100_owlv2.json.gz"), "m", None, Options())
    assert estimated.states_how == "estimated from shapes and the device's peaks"
    unknown = content(prepared(traces / "nsys" / "h100_2gpu_1s_2026.sqlite"), "m", None, Options())
    assert unknown.states_how.startswith("threads alone") and unknown.states_how in render(unknown, "html").decode()
    counted = content(prepared(traces / "ncu" / "rtx5070_gemm_tiled.csv"), "m", None, Options())
    assert counted.states_how == "from counters"


def test_what_paper_leaves_out_is_said(traces: Path) -> None:
    made = content(prepared(traces / "kineto" / "h100_owlv2.json.gz"), "m", None, Options())
    page, kernels = render(made, "html").decode(), made.section("kernels")
    assert kernels is not None and len(kernels.frame) > PAPER_ROWS
    assert f"On paper the first {PAPER_ROWS} of {len(kernels.frame)} rows." in page
    assert "Only on a wide screen: class, min µs, max µs, threads, rule." in page
    assert f"tbody tr:nth-child(n+{PAPER_ROWS + 1})" in page


def test_names_of_strangers_are_text(evil: Content) -> None:
    page = render(evil, "html").decode()
    reader = Reader(page)
    assert page.count("<script>") == 1 and "img" not in reader.tags
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    assert "\x1b" not in page
    markdown = render(evil, "markdown").decode()
    for line in markdown.splitlines():
        bare = re.sub(r"\\.|(`+).*?\1", "", line)
        assert "<img" not in bare and "<script" not in bare and "\x1b" not in line
    latex = render(evil, "latex").decode()
    body = "\n".join(line for line in latex.splitlines() if not line.startswith("%"))
    assert "\\input" not in body and "\x1b" not in latex
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == latex.count(r"\caption") > 5


def test_markdown_tables_have_one_width(qwen: Content) -> None:
    text = render(qwen, "markdown").decode()
    for body in re.findall(r"</summary>\n\n(.*?)\n\n</details>", text, re.DOTALL):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in body.splitlines()}
        assert len(widths) == 1, body[:300]
    assert "15 of 26 rows" in text  # the tail of kernels is named, not lost


def test_short_names_stay_apart(qwen: Content) -> None:
    section = qwen.section("kernels")
    assert section is not None
    assert shortened(section, 100)["name"].is_unique and section.frame["name"].is_unique


@pytest.mark.parametrize("name", ["mi210_gpu_only", "cpu_only_rank34", "b200_vllm_tp8_rank0", "a100_ddp8_rank3_2022"])
@pytest.mark.parametrize("format", FORMATS)
def test_any_recording(traces: Path, name: str, format: str) -> None:
    data = render(content(prepared(traces / "kineto" / f"{name}.json.gz"), name, None, Options()), format)
    assert name.encode().replace(b"_", b"\\_" if format != "html" else b"_") in data
    assert not re.search(rb"(>|\| |& )(nan|None|inf)(<| \|| &)", data)


def cli(*words: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "tui.cli", "report", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def test_the_command(traces: Path, tmp_path: Path) -> None:
    recording = traces / "kineto" / "h100_bert_small.json.gz"
    page = tmp_path / "report.html"
    done = cli(recording, "-o", page)
    assert done.returncode == 0 and page.read_text().startswith("<!doctype html>") and done.stdout == ""
    again = cli(recording, "-o", page)
    assert again.returncode == 1 and "--force" in again.stderr
    assert cli(recording, "-o", tmp_path / "pr.md").returncode == 0
    assert (tmp_path / "pr.md").read_text().startswith("## h100")
    wrong = cli(recording, "-o", tmp_path / "x.pdf")
    assert wrong.returncode == 2 and "--format" in wrong.stderr and wrong.stderr.count("\n") == 1
    nothing = cli(traces / "kineto" / "a100_cupti_counters_no_kernels.json.gz", "-o", tmp_path / "no.html")
    assert nothing.returncode == 2 and "no kernel" in nothing.stderr


# -- in a real browser -------------------------------------------------------------------------------------------------


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    made = Browser(tmp_path / "profile")
    yield made
    made.close()


def opened(browser: Browser, made: Content, path: Path) -> None:
    path.write_bytes(render(made, "html"))
    browser.open(path)


COLUMN = "Array.from(document.querySelectorAll('#kernels tbody tr'), r => r.cells[{0}].dataset.value ?? r.cells[{0}].textContent)"
CLICK = "document.querySelectorAll('#kernels th button')[{0}].click()"


def column(browser: Browser, place: int) -> list[Any]:
    found: list[Any] = browser.value(COLUMN.format(place))
    return found


def test_in_a_browser_tables_sort_and_nothing_is_loaded(browser: Browser, qwen: Content, tmp_path: Path) -> None:
    opened(browser, qwen, tmp_path / "report.html")
    section = qwen.section("kernels")
    assert section is not None
    place = [c.name for c in section.table.columns].index("calls")
    before = [float(v) for v in column(browser, place)]
    browser.value(CLICK.format(place))
    after = [float(v) for v in column(browser, place)]
    assert after == sorted(before, reverse=True) != before
    browser.value(CLICK.format(place))
    assert [float(v) for v in column(browser, place)] == sorted(before)
    assert browser.value(f"document.querySelectorAll('#kernels th')[{place}].ariaSort") == "ascending"
    browser.value(CLICK.format(0))
    names = browser.value(
        "Array.from(document.querySelectorAll('#kernels tbody tr'), r => (r.querySelector('summary')||r.cells[0]).textContent)"
    )
    assert names == browser.value(f"{names!r}.sort((a, b) => a.localeCompare(b))")
    assert browser.problems == []
    assert browser.asked == [(tmp_path / "report.html").as_uri()]


def test_in_a_browser_paper_has_whole_tables(browser: Browser, qwen: Content, tmp_path: Path) -> None:
    """On A4 (less its margins) nothing is wider than the page, and repeated headings are words, not buttons."""
    browser.call("Emulation.setDeviceMetricsOverride", width=703, height=1000, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", media="print")
    opened(browser, qwen, tmp_path / "report.html")
    wide = "Array.from(document.querySelectorAll('table, svg'), t => [t.closest('section')?.id, t.getBoundingClientRect().right])"
    assert [one for one in browser.value(wide) if one[1] > 703] == []
    assert browser.value("getComputedStyle(document.querySelector('#kernels th button')).display") == "contents"
    assert browser.value("document.querySelectorAll('#kernels tbody tr:nth-child(41)').length") == 0
    hidden = "getComputedStyle(document.querySelectorAll('#operators tbody tr')[{0}]).display"
    operators = qwen.section("operators")
    assert operators is not None and browser.value(hidden.format(PAPER_ROWS - 1)) == "table-row"
    assert browser.value(hidden.format(PAPER_ROWS)) == "none"


def test_in_a_browser_a_strangers_markup_is_text(browser: Browser, evil: Content, tmp_path: Path) -> None:
    opened(browser, evil, tmp_path / "report.html")
    assert browser.value("document.images.length") == 0 and browser.value("document.scripts.length") == 1
    assert browser.value("document.querySelector('h1').textContent").startswith("</td></script>")
    assert browser.problems == [] and len(browser.asked) == 1


def test_in_a_browser_a_phone_needs_no_sideways_scroll(browser: Browser, qwen: Content, tmp_path: Path) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=2, mobile=True)
    opened(browser, qwen, tmp_path / "report.html")
    assert browser.value("document.documentElement.scrollWidth") <= 390
    assert browser.value("getComputedStyle(document.querySelector('.bar text')).fontSize") == "13px"


def test_a_runs_facts_are_told(traces: Path, tmp_path: Path) -> None:
    from profilers.runs.folder import RunFolder
    from profilers.runs.spec import Spec

    run = RunFolder.create(
        tmp_path / "runs", Spec(name="m", workload="<b>m</b>", dtype="bf16", batch=8, seq=256, device="cuda:0")
    )
    status = run.status()
    status.step_ms, status.step_ms_spread, status.steps_timed, status.parameters = 24.8, 0.3, 10, 124_439_808
    run.write_status(status)
    made = content(prepared(traces / "kineto" / "h100_bert_small.json.gz"), "m", run, Options(attention_as_gemm=False))
    facts = dict(made.facts)
    assert facts["workload"] == "<b>m</b> · infer · bf16 · batch 8 · sequence 256 · eager"
    assert facts["step without the profiler"].startswith("24.8 ± 0.300 ms (median of 10")
    assert facts["parameters"] == "124 M" and facts["attention"] == "counted on its own, not as GEMM"
    assert "&lt;b&gt;m&lt;/b&gt;" in render(made, "html").decode()
    assert not made.shares[0].with_attention
