"""Waiting without a screen: what is said, how often, and what Ctrl-C does."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from profilers.runs.folder import RunFolder, runs_root
from profilers.runs.spec import Spec
from profilers.runs.status import Status, boot_id, own_identity
from tui.cli import waiting


def _status(**fields: object) -> Status:
    """A status whose supervisor is this process, so that a live one is believed."""
    pid, start, _ = own_identity()
    return Status(boot_id=boot_id(), supervisor_pid=pid, supervisor_start=start, created=1.0, **fields)  # type: ignore[arg-type]


RUNNING = [
    _status(state="starting", phase="importing torch"),
    _status(state="timing", phase="timing steps", windows_total=3),
    _status(
        state="profiling",
        phase="window 1",
        windows_done=0,
        windows_total=3,
        step_ms=12.34,
        step_ms_spread=0.1,
        eta_s=75,
    ),
    _status(
        state="profiling",
        phase="window 2",
        windows_done=1,
        windows_total=3,
        step_ms=12.34,
        step_ms_spread=0.1,
        eta_s=40,
    ),
    _status(state="finished", windows_done=3, windows_total=3, step_ms=12.34, step_ms_spread=0.1),
]


@pytest.fixture
def run() -> RunFolder:
    return RunFolder.create(runs_root(), Spec(name="gpt2", workload="gpt2"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, run: RunFolder) -> Callable[[list[object]], None]:
    """Each time the waiting sleeps, the run's next status is written (or the next exception raised) and ten seconds pass."""

    def play(steps: list[object]) -> None:
        rest: Iterator[object] = iter(steps)
        clock = [0.0]

        def sleep(seconds: float) -> None:
            clock[0] += 10.0
            turn = next(rest)
            if isinstance(turn, BaseException):
                raise turn
            run.write_status(turn)  # type: ignore[arg-type]

        monkeypatch.setattr(waiting.time, "sleep", sleep)
        monkeypatch.setattr(waiting.time, "monotonic", lambda: clock[0])

    return play


def test_without_a_terminal_every_turn_is_a_plain_line(
    run: RunFolder, script: Callable[[list[object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    script([*RUNNING])
    assert waiting.wait([run]) == [run]
    out, err = capsys.readouterr()
    assert out == ""
    assert "\r" not in err
    assert "\x1b" not in err
    lines = err.splitlines()
    assert f"{waiting.label(run)} · starting: importing torch" in lines
    assert f"{waiting.label(run)} · profiling: window 1 · step 12.3 ± 0.100 ms · window 0/3 · 1 min 15 s left" in lines
    assert f"{waiting.label(run)} · profiling: window 2 · step 12.3 ± 0.100 ms · window 1/3 · 40 s left" in lines
    assert lines[-1] == f"{waiting.label(run)} · finished · step 12.3 ± 0.100 ms · window 3/3"


def test_a_run_that_only_ticks_on_is_quiet(
    run: RunFolder, script: Callable[[list[object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    script([RUNNING[2]] * 30 + [RUNNING[-1]])
    waiting.wait([run])
    assert len(capsys.readouterr().err.splitlines()) == 3  # queued, profiling, finished


def test_a_terminal_has_one_rewritten_line_and_keeps_the_end(
    run: RunFolder,
    script: Callable[[list[object]], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    script([*RUNNING])
    waiting.wait([run])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert all(len(part) <= 59 for part in err.rpartition("\r")[0].replace("\x1b[K", "").split("\r"))
    assert err.endswith(f"\r\x1b[K{waiting.label(run)} · finished · step 12.3 ± 0.100 ms · window 3/3\n")


def test_ctrl_c_says_how_to_come_back_and_a_second_one_stops_waiting(
    run: RunFolder, script: Callable[[list[object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    script([RUNNING[1], KeyboardInterrupt(), RUNNING[2], KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        waiting.wait([run])
    err = capsys.readouterr().err
    assert err.count(f"kernelscope attach {run.id[-4:]}") == 1
    assert err.count(f"kernelscope stop {run.id[-4:]}") == 1
    assert run.effective_status().live, "the run itself goes on"


def test_one_ctrl_c_waits_on(run: RunFolder, script: Callable[[list[object]], None]) -> None:
    script([RUNNING[1], KeyboardInterrupt(), RUNNING[-1]])
    assert waiting.wait([run]) == [run]


def test_ctrl_c_while_runs_start_is_said_with_them(
    run: RunFolder, script: Callable[[list[object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with waiting.holding_ctrl_c() as pressed:
        signal.raise_signal(signal.SIGINT)
    assert pressed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    script([RUNNING[1], KeyboardInterrupt()])
    with pytest.raises(waiting.Interrupted):
        waiting.wait([run], interrupted=bool(pressed))
    assert capsys.readouterr().err.count(f"kernelscope stop {run.id[-4:]}") == 1


def test_why_a_run_failed_is_in_its_line() -> None:
    status = Status(state="failed", cause="CUDA out of memory", windows_total=3)
    assert waiting.line("x", status) == "x · failed · window 0/3 · CUDA out of memory"
