"""show, compare and whatif on a run that the test made: the same table in every format, talk apart from data."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from profilers.analysis.registry import TABLES
from profilers.runs.folder import RunFolder
from profilers.runs.status import Status, boot_id, own_identity
from profilers.tables import Note, Origin
from tests.cli.support import EVIL, GEMM, NORM, Done, recording
from tui.cli.output import talk_notes
from tui.export import FORMATS

Cli = Callable[..., Done]


@pytest.mark.parametrize("table", TABLES)
def test_every_table_of_a_run_is_the_analysis_own_table(table: str, cli: Cli, finished: RunFolder) -> None:
    done = cli("show", finished.id, table, "--format", "json")
    assert done.code == 0, done.err
    expected = TABLES[table].compute(finished.recording())
    records = json.loads(done.out)
    assert len(records) == len(expected)
    for record, (_, row) in zip(records, expected.iterrows(), strict=True):
        assert list(record) == [column.name for column in TABLES[table].columns]
        for name, value in record.items():
            assert value == row[name] or (value is None and (pd.isna(row[name]) or abs(row[name]) == float("inf")))


def test_kernels_say_what_was_measured(cli: Cli, finished: RunFolder) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("show", "last", "kernels", "--format", "csv").out)))
    assert [row["name"] for row in rows] == [GEMM, NORM, EVIL]
    assert [float(row["time_us"]) for row in rows] == [240.0, 120.0, 40.0]
    assert [float(row["pct"]) for row in rows] == [60.0, 30.0, 10.0]


def test_the_terminal_table_is_safe_and_talk_is_apart(cli: Cli, finished: RunFolder) -> None:
    done = cli("show", "gpt2", "kernels")
    assert done.code == 0
    assert "\x1b" not in done.out, "neither colours into a pipe nor a name's own escape sequences"
    assert "\\x1b[2J" in done.out
    assert "G matmul" in done.out
    assert "note: events without a duration were left out (6 times)" in done.lines
    assert "note" not in done.out


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_goes_to_a_file(format: str, cli: Cli, finished: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "out"
    done = cli("show", finished.id, "groups", "--format", format, "-o", str(target))
    assert (done.code, done.out) == (0, "")
    assert f"wrote {target}" in done.err
    assert target.stat().st_size > 50


def test_without_a_table_it_is_the_summary(cli: Cli, finished: RunFolder) -> None:
    (row,) = json.loads(cli("show", finished.id, "--format", "json").out)
    assert row["kernels"] == 12
    assert row["device_name"] == "NVIDIA Test GPU"


def test_samples_come_from_the_run(cli: Cli, finished: RunFolder) -> None:
    from profilers.collectors.telemetry.base import Sample

    finished.append_samples([Sample(5, "cuda:0", "power_w", 412.5, "W", "nvml")])
    assert json.loads(cli("show", finished.id, "samples", "--format", "json").out) == [
        {"t_ns": 5, "device": "cuda:0", "metric": "power_w", "value": 412.5, "unit": "W", "source": "nvml"}
    ]


def test_why_names_the_rule_and_its_line(cli: Cli, finished: RunFolder) -> None:
    rows = json.loads(cli("show", finished.id, "groups", "--why", "--format", "json").out)
    assert [(row["group"], row["calls"], row["pct"], row["top_name"]) for row in rows] == [
        ("matmul", 4, 60.0, GEMM),
        ("normalization", 4, 30.0, NORM),
        ("unclassified", 4, 10.0, EVIL),
    ]
    file, _, line = rows[0]["where"].rpartition(":")
    assert Path(file).read_text("utf-8").splitlines()[int(line) - 1].strip() == "[[kernel]]"
    assert rows[2]["where"] == ""


def test_rules_of_ones_own_reclassify_what_was_recorded(cli: Cli, finished: RunFolder, tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text("[[kernel]]\nid = 'evil'\nanywhere = '^=evil'\ngroup = 'routing'\n")
    rows = json.loads(cli("show", finished.id, "groups", "--format", "json", "--rules", str(rules)).out)
    assert {row["group"]: row["pct"] for row in rows} == {"matmul": 60.0, "normalization": 30.0, "routing": 10.0}


def test_attention_apart_changes_the_totals(cli: Cli, finished: RunFolder) -> None:
    part = recording()
    kernels = part.kernels.assign(**{"class": part.kernels["class"].cat.rename_categories({"nongemm": "attention"})})
    finished.write_window(1, part.replace(kernels=kernels))
    finished.write_window(2, part.replace(kernels=kernels, origin=Origin("kineto", base_ns=10**9)))
    (together,) = json.loads(cli("show", finished.id, "--format", "json").out)
    (apart,) = json.loads(cli("show", finished.id, "--format", "json", "--attention-apart").out)
    assert (together["gemm_pct"], apart["gemm_pct"]) == (90.0, 60.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "nothing-like-it"], "no run is called 'nothing-like-it'"),
        (["show", "/nowhere/trace.json"], "there is no file /nowhere/trace.json"),
        (["show", "last", "samples", "--runs", "/nowhere"], "there are no runs in /nowhere"),
        (["compare", "last", "nothing-like-it"], "no run is called"),
        (["stop", "nothing-like-it"], "no run is called"),
        (["import", "/nowhere/trace.json"], "/nowhere/trace.json"),
    ],
)
def test_what_is_not_there_is_one_line(words: list[str], message: str, cli: Cli, finished: RunFolder) -> None:
    done = cli(*words)
    assert done.code == 1
    assert done.out == ""
    assert len(done.lines) == 1, done.err
    assert message in done.lines[0]


@pytest.mark.parametrize("content", [b"", b"not a trace\n", b"{}", b"[1, 2", b"\x00" * 64, b"PAR1"])
@pytest.mark.parametrize("command", ["show", "whatif", "import"])
def test_a_file_that_is_no_recording_is_one_line(command: str, content: bytes, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    done = cli(command, str(path))
    assert done.code == 1
    assert len(done.lines) == 1, done.err
    assert "unexpected" not in done.err
    assert "trace.json" in done.err


def test_some_files_failed_is_exit_code_3(cli: Cli, tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 5.0, "pid": 1, "tid": 1}
    good.write_text(json.dumps({"traceEvents": [event]}))
    done = cli("import", str(good), str(tmp_path / "bad.json"))
    assert done.code == 3
    assert len(done.out.splitlines()) == 1
    assert json.loads(cli("show", done.out.strip(), "operators", "--format", "json").out)[0]["name"] == "aten::mm"


def test_compare_has_a_summary_and_rows_in_one_unit(cli: Cli, finished: RunFolder) -> None:
    done = cli("compare", finished.id, finished.id)
    assert done.code == 0
    assert "kernel time a step" in done.out
    assert re.search(r"a µs +b µs +b/a × +b - a µs", done.out)
    rows = json.loads(cli("compare", finished.id, finished.id, "--format", "json").out)
    gemm = next(row for row in rows if row["name"] == GEMM)
    assert (gemm["a_us"], gemm["b_us"], gemm["ratio"], gemm["delta_us"]) == (60.0, 60.0, 1.0, 0.0)
    summary = json.loads(cli("compare", finished.id, finished.id, "--summary", "--format", "json").out)
    assert "step time (mean)" in {row["quantity"] for row in summary}
    assert cli("compare", finished.id).code == 2


def test_whatif_prices_what_was_asked(cli: Cli, finished: RunFolder) -> None:
    rows = json.loads(cli("whatif", finished.id, "--gemm", "2", "--group", "normalization=3", "--format", "json").out)
    chosen = next(row for row in rows if row["case"] == "chosen")
    assert chosen["device_speedup"] == pytest.approx(100 / (30 + 10 + 10))
    done = cli("whatif", finished.id, "--kernel", "nope=2")
    assert (done.code, len(done.lines)) == (2, 1)
    assert "no kernel of this recording" in done.err


def test_follow_prints_at_every_window_and_ends_with_the_run(
    cli: Cli, finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, start, _ = own_identity()
    live = Status(
        state="profiling", created=1.0, boot_id=boot_id(), supervisor_pid=pid, supervisor_start=start, windows_done=2
    )
    finished.write_status(live)
    turns = iter(
        [
            lambda: None,
            lambda: finished.write_window(3, recording().replace(origin=Origin("kineto", base_ns=3 * 10**9))),
            lambda: finished.write_status(Status(state="finished", windows_done=3)),
        ]
    )
    monkeypatch.setattr("tui.cli.commands.show.time.sleep", lambda seconds: next(turns)())
    done = cli("show", finished.id, "kernels", "--follow", "--format", "json")
    assert done.code == 0
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [(line["windows"], line["table"], line["rows"][0]["calls"]) for line in lines] == [
        (2, "kernels", 4),
        (3, "kernels", 6),
    ]
    assert f"{finished.id}: finished, 3 windows" in done.err


def test_what_was_lost_is_told_before_what_was_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    talk_notes(
        [
            Note("utilization_estimated", "estimated", 9_000),
            Note("truncated_gzip", "cut off"),
            Note("copies", "copied", 5),
        ],
        "t.json",
    )
    assert capsys.readouterr().err.splitlines() == [
        "note: copied (5 times)",
        "note: cut off",
        "note: estimated (9,000 times)",
    ]


@pytest.mark.parametrize(
    ("words", "says"), [(["samples"], "it has no samples"), (["kernels", "--follow"], "leave out --follow")]
)
def test_a_recording_neither_grows_nor_has_samples(words: list[str], says: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{}")
    done = cli("show", str(tmp_path / "t.json"), *words)
    assert done.code == 2 and "is a recording" in done.err and says in done.err


def test_follow_of_a_failed_run_says_why_and_fails(cli: Cli, finished: RunFolder) -> None:
    finished.write_status(Status(state="failed", cause="out of memory", windows_done=2))
    done = cli("show", finished.id, "--follow", "--format", "csv")
    assert done.code == 1
    assert "out of memory" in done.err
    assert done.out.count("device,device_name") == 1


def test_stop_leaves_the_windows(cli: Cli, finished: RunFolder) -> None:
    done = cli("stop", finished.id)
    assert done.code == 0
    assert "does not go on: it has finished" in done.err
    pid, start, _ = own_identity()
    finished.write_status(
        Status(state="profiling", created=1.0, boot_id=boot_id(), supervisor_pid=pid, supervisor_start=start)
    )
    assert cli("stop", finished.id).code == 0
    assert (finished.path / "stop").exists()
    assert cli("stop", finished.id, "nothing-like-it").code == 3


def test_ls_runs_has_the_columns_that_scripts_rely_on(cli: Cli, finished: RunFolder) -> None:
    (row,) = json.loads(cli("ls", "runs", "--format", "json").out)
    assert row == {
        "run": finished.id, "name": "gpt2", "workload": "gpt2", "device": "cuda:0", "status": "finished",
        "started": "1970-01-01T00:00:02+00:00", "windows": 2, "step_ms": 1.25, "gemm_pct": 60.0,
    }  # fmt: skip
    (finished.path / "spec.json").write_text("{")
    done = cli("ls", "runs")
    assert done.code == 1
    assert "spec.json cannot be read" in done.err


def test_ls_models_and_devices_have_the_columns_that_scripts_rely_on(cli: Cli) -> None:
    models = json.loads(cli("ls", "models", "--format", "json").out)
    assert list(models[0]) == ["name", "suite", "task", "modes", "dtypes", "parameters", "memory_gb", "sizes", "extra"]
    assert "gpt2" in [model["name"] for model in models]
    devices = json.loads(cli("ls", "devices", "--format", "json").out)
    assert list(devices[-1]) == [
        "device", "name", "uuid", "kind", "memory_total_gb", "memory_used_gb", "utilization_pct", "users", "peak_tflops", "peak_gb_s",
    ]  # fmt: skip
    assert devices[-1]["device"] == "cpu"


def test_doctor_says_what_is_missing_and_what_that_costs(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", "--format", "json")
    assert done.code == 0, done.err
    checks = {check["check"]: check for check in json.loads(done.out)}
    assert checks["torch"]["state"] == "ok"
    assert {"NVML", "nsys", "ncu", "TERM", "COLORTERM", "runs folder", "free space", "cpu", "encoding"} <= set(checks)
    assert all(check["meaning"] for check in checks.values() if check["state"] != "ok")
    (tmp_path / "file").write_text("")
    done = cli("doctor", "--runs", str(tmp_path / "file" / "runs"))
    assert done.code == 1
    assert "is not a folder" in done.err
