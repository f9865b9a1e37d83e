"""Runs and files are opened by name; a file is read once; a replay is a run like any other."""

from __future__ import annotations

import os

import pandas as pd
import pytest

from profilers.analysis.registry import TABLES
from profilers.readers.errors import ReadError
from profilers.runs import opening, replay
from profilers.runs.folder import RunFolder, RunsError, list_runs
from profilers.runs.launch import launch, stop
from profilers.runs.opening import import_recording, open_recording
from profilers.runs.spec import Spec
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS
from tests.runs.support import a_trace, ended, until


def test_a_file_is_read_once(tmp_path, root, monkeypatch):
    path = a_trace(tmp_path / "h100.json")
    shares: list[float] = []
    opened = open_recording(str(path), root, shares.append)
    assert opened.title == "h100.json"
    assert len(opened.recording.kernels) == 12 and len(opened.recording.steps) == 6
    assert set(opened.recording.kernels["class"]) == {"gemm", "nongemm"}
    assert shares == sorted(shares) and shares[-1] == 1.0
    run = opened.run
    assert list_runs(root) == [run]
    assert (run.spec().target, run.spec().device, run.status().state) == ("import", "cuda:0", "finished")
    assert run.summary()["gemm_pct"] == pytest.approx(50.0)
    assert run.status().device_name == "NVIDIA H100"
    # No path of this machine is kept with what was read.
    assert opened.recording.origin.path == "h100.json"
    assert str(tmp_path) not in (run.path / "windows" / "0001" / "window.json").read_text()

    monkeypatch.setattr(opening, "read_file", lambda *_: pytest.fail("read again"))
    again = open_recording(str(path), root)
    assert again.run == run
    for table in ("summary", "kernels", "operators", "states"):
        pd.testing.assert_frame_equal(
            TABLES[table].compute(opened.recording), TABLES[table].compute(again.recording), check_dtype=False
        )
    assert import_recording(path, root) == run
    assert open_recording(run.id, root).run == run
    assert open_recording("last", root).run == run
    assert open_recording(str(run.path), root).run == run


def test_a_changed_file_is_read_anew_and_other_rules_replace_what_was_kept(tmp_path, root, monkeypatch):
    path = a_trace(tmp_path / "t.json")
    first = import_recording(path, root)
    a_trace(path, steps=7)
    second = import_recording(path, root)
    assert second != first and len(second.recording().steps) == 7
    assert len(list_runs(root)) == 2
    monkeypatch.setattr(opening, "version", lambda: "other rules")
    third = import_recording(path, root)
    assert third not in (first, second)
    assert list_runs(root) == [third, first]
    third.delete()
    assert import_recording(path, root) not in (first, second, third)


def test_a_damaged_copy_is_made_again(tmp_path, root):
    path = a_trace(tmp_path / "t.json")
    run = import_recording(path, root)
    (run.path / "windows" / "0001" / "kernels.parquet").write_bytes(b"PAR1")
    opened = open_recording(str(path), root)
    assert len(opened.recording.kernels) == 12 and opened.run != run


def test_a_file_opens_where_nothing_can_be_kept(tmp_path):
    path = a_trace(tmp_path / "t.json")
    (tmp_path / "file").write_text("")
    opened = open_recording(str(path), tmp_path / "file" / "runs")
    assert opened.run is None and len(opened.recording.kernels) == 12
    with pytest.raises(RunsError, match="cannot write"):
        import_recording(path, tmp_path / "file" / "runs")


def test_a_name_that_is_no_utf8_opens_and_is_kept(tmp_path, root):
    path = a_trace(tmp_path / os.fsdecode(b"bad\xff.json"))
    opened = open_recording(str(path), root)
    assert opened.title == "bad\\xff.json" and opened.run is not None and opened.run.spec().name == opened.title
    assert opened.recording.origin.path == opened.title
    assert open_recording(str(path), root).run == opened.run, "found again by the path that it really has"
    with pytest.raises(RunsError, match="not UTF-8"):
        RunFolder.create(root, Spec(name="x", workload=str(path), target="replay"))
    assert not [entry for entry in root.iterdir() if entry.name.startswith(".new-")]


def test_a_folder_named_by_a_way_has_its_own_name(tmp_path, root, monkeypatch):
    folder = tmp_path / "job"
    folder.mkdir()
    a_trace(folder / "rank0.json")
    a_trace(folder / "rank1.json")
    monkeypatch.chdir(folder)
    assert open_recording(".", root).title == "job"


def test_what_cannot_be_opened_is_named(tmp_path, root):
    import_recording(a_trace(tmp_path / "t.json"), root)
    with pytest.raises(RunsError, match=r"there is no file nothere\.json, and no run is called"):
        open_recording("nothere.json", root)
    with pytest.raises(RunsError, match="no run is called 'gpt9'"):
        open_recording("gpt9", root)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ReadError):
        open_recording(str(tmp_path / "notes.txt"), root)
    with pytest.raises(ReadError):
        import_recording(tmp_path / "gone.json", root)
    assert len(list_runs(root)) == 1


def test_giving_up_leaves_nothing(tmp_path, root):
    class GaveUp(BaseException):
        pass

    def give_up(share):
        raise GaveUp

    with pytest.raises(GaveUp):
        import_recording(a_trace(tmp_path / "t.json"), root, give_up)
    assert list_runs(root) == []


def test_windows_classified_by_older_rules_are_prepared_again(tmp_path, root, monkeypatch):
    run = import_recording(a_trace(tmp_path / "t.json"), root)
    run.write_summary({**run.summary(), "prepared_with": "older"})
    calls = []
    real = opening._prepared
    monkeypatch.setattr(opening, "_prepared", lambda recording: calls.append(1) or real(recording))
    assert set(open_recording(run.id, root).recording.kernels["class"]) == {"gemm", "nongemm"}
    assert calls == [1]


# --- replay ---------------------------------------------------------------------------------------------------------


def test_cutting_loses_and_invents_nothing(tmp_path):
    recording = opening.read_file(a_trace(tmp_path / "t.json"))
    cuts = replay.boundaries(recording)
    assert len(cuts) == 7
    parts = list(replay.split(recording, cuts))
    for schema in (OPERATORS, KERNELS, STEPS, RUNTIME):
        frames = [getattr(part, schema.name) for part in parts]
        assert all(schema.problems(frame) == [] for frame in frames)
        assert [len(frame) for frame in frames] == [len(getattr(recording, schema.name)) // 6] * 6
    for part in parts:
        assert part.operators["op_id"].tolist() == [0, 1, 2, 3]
        assert part.operators["parent_id"].tolist() == [-1, 0, -1, 2]
        assert part.operators["name"].tolist()[1] == "aten::addmm"
        held = part.kernels.merge(part.operators, on="op_id", suffixes=("", "_op"))
        assert held["name_op"].tolist() == ["aten::addmm", "aten::relu"]
    from profilers.runs.windows import join

    joined = join(parts)
    pd.testing.assert_frame_equal(joined.operators, recording.operators, check_categorical=False)
    pd.testing.assert_frame_equal(
        joined.kernels.sort_values("start_ns", ignore_index=True),
        recording.kernels.sort_values("start_ns", ignore_index=True),
        check_categorical=False,
    )


def test_many_steps_and_none_are_cut_too(tmp_path):
    many = opening.read_file(a_trace(tmp_path / "many.json", steps=500))
    cuts = replay.boundaries(many)
    assert len(cuts) == replay.MOST_WINDOWS + 1
    assert sum(len(part.kernels) for part in replay.split(many, cuts)) == 1000
    none = opening.read_file(a_trace(tmp_path / "none.json", numbered=False))
    parts = list(replay.split(none, replay.boundaries(none)))
    assert len(parts) == replay.SLICES
    assert sum(len(part.operators) for part in parts) == len(none.operators)


def test_a_replay_grows_like_a_run(tmp_path, root):
    path = a_trace(tmp_path / "t.json", step_us=400_000)
    spec = Spec(name="t.json", workload=str(path), target="replay", speed=2.0)
    (run,) = launch([spec], root)
    until(lambda: run.status().windows_done >= 2, "two windows")
    assert run.effective_status().state == "profiling" and run.status().windows_total == 6
    status = ended(run)
    assert (status.state, status.windows_done) == ("finished", 6)
    assert any("replay" in note for note in status.notes)
    recording = run.recording()
    assert recording.origin.kind == "replay" and len(recording.kernels) == 12
    assert recording.operators["op_id"].tolist() == list(range(24))
    assert run.summary()["gemm_pct"] == pytest.approx(50.0)
    # Six steps of 0.4 s at twice the speed.
    assert status.ended - status.started >= 6 * 0.4 / 2

    slow, gone = launch(
        [
            Spec(name="t.json", workload=str(path), target="replay", speed=0.001),
            Spec(name="g", workload="g", target="replay"),
        ],
        root,
    )
    until(lambda: slow.status().state == "profiling", "the slow replay to begin")
    assert stop(slow, wait_s=20).state == "stopped"
    status = ended(gone)
    assert status.state == "failed" and "no such file" in status.cause


def test_real_recordings_are_cut_whole(traces, tmp_path):
    """Every table of a real GPU recording is the same after cutting and joining."""
    from profilers.runs.windows import join

    candidates = sorted((p for p in traces.rglob("*.json*") if p.is_file()), key=lambda p: p.stat().st_size)
    tried = 0
    for path in candidates:
        if os.path.getsize(path) > 3_000_000:
            break
        try:
            recording = opening.read_file(path)
        except ReadError:
            continue
        if not len(recording.operators) or not len(recording.kernels):
            continue
        tried += 1
        joined = join(list(replay.split(recording, replay.boundaries(recording))))
        for schema in (OPERATORS, KERNELS, STEPS, RUNTIME):
            assert len(getattr(joined, schema.name)) == len(getattr(recording, schema.name)), path.name
        for name in ("summary", "groups"):
            wanted, found = TABLES[name].compute(recording), TABLES[name].compute(joined)
            for column in ("kernels", "kernel_time_us", "gemm_pct", "time_us", "pct"):
                if column in wanted:
                    assert found[column].tolist() == pytest.approx(wanted[column].tolist()), (path.name, column)
        if tried == 4:
            break
    assert tried


def test_open_a_run_folder_that_grows(tmp_path, root):
    run = RunFolder.create(root, Spec(name="m", workload="w"))
    assert len(open_recording(run.id, root).recording.kernels) == 0
