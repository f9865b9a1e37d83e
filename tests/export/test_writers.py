"""Every format of one small table full of traps: byte-golden, and equal cell by cell where formats must agree."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from profilers.analysis.registry import TABLES, Col, Table
from tui import export
from tui import format as fmt
from tui.export import terminal

GOLDEN = Path(__file__).parent / "golden"
TABLE = TABLES["kernels"]
META = {"title": "gpt2 · bf16", "run": "20261130-120000-000-gpt2-abcd"}
SHORT = {
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_256x128_32x3_tn_align8>(Params)": "cutlass bf16 256x128x32",
    'void at::native::elementwise_kernel<128, 4, a|b*c>(int, `x`, "y")': "elementwise a|b*c",
}


@pytest.fixture
def frame() -> pd.DataFrame:
    """Names with every sign that a format interprets, floats that need all digits, missing values, categoricals."""
    names = [
        *SHORT,
        "=cmd|' /C calc'!A0\x1b[31m_[red]",
        "größe\r\nnext <b>&amp;</b> 100 % $x_1^2$ {a}\\b ~#--",
    ]
    return pd.DataFrame(
        {
            "name": pd.Categorical(names),
            "group": pd.Categorical(["matmul", "elementwise", "unclassified", "my-own"]),
            "class": pd.Categorical(["gemm", "nongemm", "unclassified", "nongemm"]),
            "calls": np.array([192, 1_234_567, 1, 0], np.int64),
            "time_us": [41_020.512, 0.1 + 0.2, 1e-3, np.nan],
            "mean_us": [213.6485, 1 / 3, 1e-3, np.nan],
            "min_us": np.array([0.1, 2, 3, np.nan], np.float32),
            "max_us": [1e22, 2.0, 3.0, np.inf],
            "pct": [27.349, 8.25, 0.01, np.nan],
            "cum_pct": [27.349, 35.6, 35.61, np.nan],
            "threads_median": np.array([4096, -1, 32_000, 7], np.int64),
            "state": pd.Categorical(["HMM", "L**", "HLL", "MH·"]),
            "rule": ["kernels.toml: gemm", "", None, "mine"],
        }
    )


@pytest.fixture(autouse=True)
def _known_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal's golden file is about the table, not about how names are shortened this month."""
    monkeypatch.setattr(terminal, "short_names", lambda names: [SHORT.get(name, name) for name in names])


CASES = {
    "kernels.txt": ("table", {}),
    "kernels-80.txt": ("table", {"width": 80}),
    "kernels-80-ascii.txt": ("table", {"width": 80, "ascii": True}),
    "kernels-colour.txt": ("table", {"width": 120, "colour": True}),
    "kernels.csv": ("csv", {}),
    "kernels.json": ("json", {}),
    "kernels.md": ("markdown", {}),
    "kernels.tex": ("latex", {}),
    "kernels.html": ("html", {}),
}


@pytest.mark.parametrize("file", CASES)
def test_the_bytes_are_the_contract(file: str, frame: pd.DataFrame) -> None:
    """A change of these bytes is a change for everybody who reads them: look at the difference, then update with
    KERNELSCOPE_UPDATE_GOLDEN=1."""
    format, look = CASES[file]
    data = export.render(frame, TABLE, format, meta=META, **look)
    if os.environ.get("KERNELSCOPE_UPDATE_GOLDEN"):
        (GOLDEN / file).write_bytes(data)
    assert data == (GOLDEN / file).read_bytes()


def _csv(frame: pd.DataFrame, table: Table = TABLE) -> list[dict[str, str]]:
    text = export.render(frame, table, "csv").decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_reads_back_exactly(frame: pd.DataFrame) -> None:
    rows = _csv(frame)
    assert list(rows[0]) == list(frame.columns)
    for name in frame.columns:
        for row, value in zip(rows, frame[name].tolist(), strict=True):
            if value is None or value != value:
                assert row[name] == ""
            elif isinstance(value, float):
                assert float(row[name]) == value
            else:
                assert row[name] == str(value)


def test_csv_agrees_with_pandas_reading_it(frame: pd.DataFrame) -> None:
    back = pd.read_csv(
        io.BytesIO(export.render(frame, TABLE, "csv")),
        float_precision="round_trip",
        keep_default_na=False,
        na_values={"time_us": [""]},
    )
    assert back["name"].tolist() == frame["name"].tolist()
    assert back["time_us"].tolist()[:3] == frame["time_us"].tolist()[:3]


def test_json_records_equal_the_frame(frame: pd.DataFrame) -> None:
    records = json.loads(export.render(frame, TABLE, "json"))
    assert [list(record) for record in records] == [list(frame.columns)] * len(frame)
    for name in frame.columns:
        for record, value in zip(records, frame[name].tolist(), strict=True):
            missing = value is None or value != value or value in (math.inf, -math.inf)
            assert record[name] is None if missing else record[name] == value


def test_parquet_reads_back_exactly_with_its_types_and_what_it_is(frame: pd.DataFrame) -> None:
    data = export.render(frame, TABLE, "parquet", meta=META)
    read = pq.read_table(io.BytesIO(data))
    assert read.schema.metadata[b"kernelscope.table"] == b"kernels"
    assert read.schema.metadata[b"kernelscope.run"] == META["run"].encode()
    assert [str(field.type) for field in read.schema][:7] == ["string"] * 3 + ["int64", "double", "double", "float"]
    back = read.to_pandas()
    for name in frame.columns:
        for new, old in zip(back[name].tolist(), frame[name].tolist(), strict=True):
            assert new == old or ((new is None or new != new) and (old is None or old != old))


def test_table_and_csv_agree_cell_by_cell(frame: pd.DataFrame) -> None:
    """The terminal table at its natural width holds, column by column, the CSV's values as people read them."""
    lines = export.render(frame, TABLE, "table").decode().splitlines()
    rule = next(place for place, line in enumerate(lines) if set(line) <= {"─", " "} and line.strip())
    body = lines[rule + 1 :]
    assert len(body) == len(frame)
    rows = _csv(frame)
    units = {c.name: fmt.unit_for(frame[c.name]) for c in TABLE.columns if c.format == "us"}
    for line, row in zip(body, rows, strict=True):
        rest = line
        for column in TABLE.columns:
            raw = row[column.name]
            if column.format == "name":
                shown = fmt.cell(SHORT.get(raw, raw), column)
            elif fmt.numeric(column):
                shown = fmt.cell(float(raw) if raw else None, column, unit=units.get(column.name, "us"))
            else:
                shown = fmt.cell(
                    raw or (None if column.name == "rule" and frame["rule"].isna()[rows.index(row)] else ""), column
                )
            assert rest.lstrip().startswith(shown), (column.name, shown, rest)
            rest = rest.lstrip()[len(shown) :]
        assert not rest.strip()


class _Cells(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


def test_html_holds_whole_names_and_nothing_that_a_browser_would_run(frame: pd.DataFrame) -> None:
    text = export.render(frame, TABLE, "html", meta={"title": "<script>alert(1)</script>"}).decode()
    page = _Cells()
    page.feed(text)
    assert not page.tags & {"script", "b", "img", "a", "link", "iframe"}
    shown = [row[0] for row in page.rows if row]
    assert shown == [fmt.cell(name, TABLE.columns[0]) for name in frame["name"]]
    assert "http" not in re.sub(r"http-equiv", "", text), "nothing is fetched"


def test_markdown_has_one_cell_a_column_in_every_line(frame: pd.DataFrame) -> None:
    for line in export.render(frame, TABLE, "markdown").decode().splitlines():
        assert len(re.split(r"(?<!\\)\|", line)) == len(frame.columns) + 2, line


def test_latex_leaves_no_special_sign_unescaped(frame: pd.DataFrame) -> None:
    body = export.render(frame, TABLE, "latex").decode().split("\\hline")[2]
    for row in body.strip().splitlines():
        assert len(re.split(r"(?<!\\)&", row)) == len(frame.columns)
        assert not re.search(r"(?<!\\)[%#_]", row)
        bare = re.sub(r"\\[{}]", "", row)
        assert bare.count("{") == bare.count("}")


def test_a_frame_with_fewer_and_with_foreign_columns_is_written_as_it_is(frame: pd.DataFrame) -> None:
    some = frame[["pct", "name"]].assign(extra=[1.5, 2.5, 3.5, 4.5], what="x")
    assert list(_csv(some)[0]) == ["pct", "name", "extra", "what"]
    for format in export.FORMATS:
        assert export.render(some, TABLE, format)


@pytest.mark.parametrize("format", export.FORMATS)
def test_an_empty_table_is_a_table(format: str, frame: pd.DataFrame) -> None:
    data = export.render(frame.iloc[:0], TABLE, format)
    if format == "csv":
        assert data.decode().splitlines() == [",".join(frame.columns)]
    elif format == "json":
        assert json.loads(data) == []
    elif format == "parquet":
        assert pq.read_table(io.BytesIO(data)).num_rows == 0
    elif format == "table":
        assert data == b"kernels: no rows\n"
    else:
        assert b"kernel" in data


@pytest.mark.parametrize("format", export.FORMATS)
def test_a_lone_surrogate_in_a_name_breaks_no_format(format: str) -> None:
    table = Table("t", "", (Col("name", "name", "text"), Col("n", "n", "count")), "")
    values = np.array(["a\ud800b"], dtype=object)
    for names in (pd.Series(values, dtype=object), pd.Categorical.from_codes([0], pd.Index(values, dtype=object))):
        data = export.render(pd.DataFrame({"name": names, "n": [1]}), table, format)
        if format != "parquet":
            assert "ud800" in data.decode("utf-8")


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(export.ExportError, match="no export format 'xml': choose from table, csv"):
        export.render(pd.DataFrame(), TABLE, "xml")


@pytest.mark.parametrize(
    ("name", "format"), [("a.csv", "csv"), ("a.MD", "markdown"), ("b.htm", "html"), ("c.tex", "latex"), ("d", None)]
)
def test_the_extension_names_the_format(name: str, format: str | None) -> None:
    assert export.format_for(Path(name)) == format


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_the_terminal_table_never_hides_silently(width: int, frame: pd.DataFrame) -> None:
    text = export.render(frame, TABLE, "table", width=width).decode()
    hidden = re.search(r"not shown in \d+ columns: (.*)", text)
    named = set(hidden[1].split(", ")) if hidden else set()
    assert named <= {c.name for c in TABLE.columns if c.wide}
    if width >= 80:
        assert all(len(line) <= width for line in text.splitlines() if not line.startswith("not shown"))


def test_columns_that_are_compared_have_one_unit() -> None:
    columns = (Col("name", "kernel", "name"), Col("a_us", "a", "us"), Col("b_us", "b", "us"))
    table = Table("compare", "", columns, "", one_unit=True)
    frame = pd.DataFrame({"name": ["k"], "a_us": [50_000.0], "b_us": [2.0]})
    text = export.render(frame, table, "table").decode()
    assert text.splitlines()[0].split() == ["kernel", "a", "ms", "b", "ms"]
    assert text.splitlines()[2].split() == ["k", "50.0", "0.00200"]
