"""Scripts as they are: whatever ends them is their own, and what was recorded of them stays."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from profilers.collectors.session import GOES_ON, UNRECORDED
from profilers.runs.folder import RunFolder
from profilers.runs.launch import launch, pause, resume, stop
from profilers.runs.spec import Spec
from tests.runs.support import WORKLOADS, ended, until

sys.path.insert(0, str(WORKLOADS))
import scripts


def started(root: Path, home: Path, text: str, *argv: str, name: str = "train", **changes) -> RunFolder:
    """A run of this text as a script in ``home``: one step of warm-up, one timed one, two windows."""
    home.mkdir(exist_ok=True)
    (home / f"{name}.py").write_text(text)
    given = {
        "name": name,
        "workload": str(home / f"{name}.py"),
        "target": "script",
        "mode": "script",
        "dtype": "",
        "batch": 0,
        "argv": argv,
        "cwd": str(home),
        "warmup": 1,
        "timed_steps": 1,
        "windows": 2,
    }
    (run,) = launch([Spec(**{**given, **changes})], root)
    return run


def log(run: RunFolder) -> str:
    return "\n".join(run.log_tail(60))


def test_steps_are_those_of_the_optimizer(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.TRAIN, "--steps", "20")
    status = ended(run)
    assert (status.state, status.exit_code, status.windows_done) == ("finished", 0, 2)
    assert "steps: optimizer steps" in status.notes
    assert status.steps_timed == 1 and status.step_ms > 0
    assert "steps taken: 20" in log(run), "a script runs to its own end, whatever has been recorded"
    recording = run.recording()
    assert len(recording.steps) == 2
    names = recording.operators["name"].astype(str)
    assert (names == "aten::addmm").sum() == 4, "two layers in each of two steps"
    assert "Linear" in set(recording.operators["module"].astype(str))


def test_the_interrupt_handler_is_the_usual_one(root, tmp_path):
    text = "import signal\nprint('usual:', signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    run = started(root, tmp_path / "home", text)
    assert ended(run).state == "finished"
    assert "usual: True" in log(run), "the supervisor ignores Ctrl-C, its scripts do not inherit that"


def test_their_names_win_and_main_is_theirs(root, tmp_path):
    home = tmp_path / "home"
    for package in ("apps", "profilers"):
        (home / package).mkdir(parents=True)
        (home / package / "__init__.py").write_text("WHO = 'theirs'\n")
    (home / "tui").mkdir()
    (home / "tui" / "words.py").write_text("WHO = 'theirs'\n")
    run = started(root, home, scripts.OUR_NAMES, "--its", "args")
    status = ended(run)
    assert (status.state, status.windows_done) == ("finished", 2), log(run)
    lines = log(run).splitlines()
    assert lines[0] == "theirs: theirs theirs theirs"
    assert lines[1] == "main: __main__ Thing ['--its', 'args'] True"
    assert lines[-1] == "exit handlers ran"


@pytest.mark.parametrize(
    ("argv", "code", "cause"),
    [
        (("--code", "7"), 7, "the script ended with exit code 7"),
        (("--at-end", "raise"), 1, "ValueError: the data are broken (train.py:"),
        (("--at-end", "text"), 1, "the script ended with exit code 1: nothing to do"),
        (("--at-end", "kill"), -9, "killed by SIGKILL"),
        (("--steps", "nonsense"), 2, "the script ended with exit code 2"),
    ],
    ids=["exit", "exception", "text", "sigkill", "usage"],
)
def test_its_end_is_its_own_and_the_windows_stay(root, tmp_path, argv, code, cause):
    run = started(root, tmp_path / "home", scripts.TRAIN, *argv)
    status = ended(run)
    assert status.exit_code == code
    assert status.state == ("died" if code < 0 else "failed")
    assert status.cause.startswith(cause), status.cause
    windows = 0 if "nonsense" in argv else 2
    assert status.windows_done == len(run.window_ids()) == windows
    if "raise" in argv:
        # As Python shows it: from the script's own first line on, and none of ours.
        assert "profilers" not in log(run)
        assert log(run).splitlines()[-1] == "ValueError: the data are broken"
    if windows:
        assert "steps taken: 24" in log(run), "what it printed before it was killed is there"
        assert len(run.recording().kernels)


def test_data_loader_workers_are_left_alone(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.TRAIN, "--workers", "2", "--steps", "40", windows=3)
    status = ended(run)
    assert (status.state, status.windows_done) == ("finished", 3), log(run)
    assert "Traceback" not in log(run)
    assert "steps taken: 40" in log(run)
    # A worker forked inside a window would otherwise write windows, too.
    assert run.window_ids() == [1, 2, 3]
    assert (run.recording().operators["name"].astype(str) == "aten::addmm").sum() == 6


def test_its_own_profiler_goes_first(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.TRAIN, "--own-profiler", "--steps", "30")
    status = ended(run)
    assert (status.state, status.windows_done) == ("finished", 2), log(run)
    assert "their events: True" in log(run)
    assert any("own profiler is at work" in note for note in status.notes)


def test_steps_are_the_scripts_own_ranges(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.RANGES)
    status = ended(run)
    assert status.state == "finished", log(run)
    assert "steps: the script's own ranges 'step'" in status.notes
    assert (run.recording().operators["name"].astype(str) == "aten::mm").sum() == 2


def test_of_two_optimizers_one_marks_the_step(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.TWO_OPTIMIZERS)
    assert ended(run).windows_done == 2
    assert (run.recording().operators["name"].astype(str) == "aten::mm").sum() == 2


def test_without_steps_time_is_cut_into_slices(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.BY_TIME, extra={"slice_after_s": 0.5})
    until(lambda: run.status().windows_done == 2 or not run.effective_status().live, "two slices")
    (tmp_path / "home" / "enough").touch()
    status = ended(run)
    assert (status.state, status.windows_done) == ("finished", 2), log(run)
    assert "no step was found in the first 0.5 s: windows are slices of 200 ms" in status.notes
    assert status.step_ms is None and status.window_step_ms is None, "a slice is no step"
    assert (run.recording().operators["name"].astype(str) == "aten::mm").sum() > 10


def test_paused_in_slices_it_goes_on_unrecorded(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.BY_TIME, windows=500, extra={"slice_after_s": 0.5})
    until(lambda: run.status().windows_done >= 1 or not run.effective_status().live, "a slice")
    pause(run)
    until(lambda: run.status().phase == UNRECORDED, "the pause")
    windows = run.status().windows_recorded
    time.sleep(1.5)
    assert (run.status().windows_recorded, run.status().phase) == (windows, UNRECORDED)
    resume(run)
    until(lambda: run.status().windows_recorded > windows, "a slice after the pause")
    assert "it was paused: it went on meanwhile, unrecorded" in run.status().notes
    (tmp_path / "home" / "enough").touch()
    assert ended(run).state == "finished", log(run)
    for number in run.window_ids():
        frame = run.read_window(number).operators
        assert (frame["start_ns"] + frame["dur_ns"]).max() - frame["start_ns"].min() < 1e9, "no slice holds the pause"


def test_a_script_rests_also_after_its_last_window(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.TRAIN, "--steps", "100000000")
    until(lambda: run.status().phase == GOES_ON or not run.effective_status().live, "all windows")
    pause(run)
    until(lambda: run.status().phase == "paused", "the pause")
    resume(run)
    until(lambda: run.status().phase == GOES_ON, "it to go on")
    assert not any("paused" in note for note in run.status().notes), "nothing that is recorded comes after it"
    assert stop(run, wait_s=30).state == "stopped"


def test_a_module_is_run_as_python_runs_it(root, tmp_path):
    home = tmp_path / "home"
    (home / "pkg").mkdir(parents=True)
    (home / "pkg" / "__init__.py").write_text("NAME = 'pkg'\n")
    (home / "pkg" / "__main__.py").write_text(MODULE)
    status = ended(run := started(root, home, "", "x", workload="pkg", module=True))
    assert (status.state, status.windows_done) == ("finished", 2), log(run)
    assert log(run).splitlines()[0] == f"__main__ pkg pkg.__main__ {home}/pkg/__main__.py x True"
    for name, cause in (("pkg.nothing", "there is no module pkg.nothing"), ("absent", "there is no module absent")):
        status = ended(started(root, home, "", workload=name, module=True))
        assert (status.state, status.cause_kind) == ("failed", "usage")
        assert status.cause.startswith(cause)


MODULE = """
import sys

import torch

from . import NAME

print(__name__, NAME, __spec__.name, __file__, sys.argv[1], sys.argv[0] == __file__)
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(16):
    weight.sum().backward()
    optimizer.step()
"""


def test_a_script_that_is_too_short_says_so(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.TRAIN, "--steps", "4")
    status = ended(run)
    assert (status.state, status.windows_done) == ("finished", 0)
    assert "the script ended after 4 steps: the first window would have been whole after 6" in status.notes
    nothing = started(root, tmp_path / "other", "print('hello')\n")
    assert "the script ended before a step was found in it: nothing was recorded" in ended(nothing).notes
    exact = started(root, tmp_path / "exact", scripts.TRAIN, "--steps", "6", windows=1)
    assert ended(exact).windows_done == 1


def test_a_script_can_be_stopped(root, tmp_path):
    run = started(root, tmp_path / "home", scripts.TRAIN, "--steps", "100000000")
    until(lambda: run.status().windows_done == 2 or not run.effective_status().live, "two windows")
    assert stop(run, wait_s=30).state == "stopped"
    assert len(run.recording().kernels)


def test_a_syntax_error_is_told_as_python_tells_it(root, tmp_path):
    run = started(root, tmp_path / "home", "x = = 1\n")
    status = ended(run)
    assert (status.state, status.exit_code) == ("failed", 1)
    assert status.cause.startswith("SyntaxError: ")
    assert "train.py" in log(run) and "profilers" not in log(run)
