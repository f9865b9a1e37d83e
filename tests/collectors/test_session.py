"""The chain of step boundaries, with a real profiler on tiny tensors."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from profilers.collectors import protocol, session  # noqa: E402
from profilers.collectors.modules import ModuleRanges  # noqa: E402
from profilers.collectors.protocol import Progress  # noqa: E402
from profilers.collectors.session import Session, half_iqr  # noqa: E402
from profilers.collectors.spec import Spec  # noqa: E402

X = torch.randn(4, 4)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "6")


class Reader(threading.Thread):
    """Takes raw traces away, as the supervisor does, and keeps what was in them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.traces: list[list[dict]] = []
        self.stop = False
        self.most = 0

    def run(self) -> None:
        while not self.stop:
            found = protocol.raw_windows(self.folder)
            self.most = max(self.most, len(found))
            for _, path in found:
                self.traces.append(json.loads(path.read_text())["traceEvents"])
                path.unlink()
            time.sleep(0.01)


def measure(tmp_path: Path, step, **changes) -> tuple[Progress, list[Progress], list[list[dict]], int]:
    (tmp_path / "raw").mkdir()
    given = {"warmup": 2, "timed_steps": 4, "windows": 2}
    spec = Spec(name="s", workload="w", **{**given, **changes})
    reader = Reader(tmp_path)
    reader.start()
    said: list[Progress] = []
    progress = Progress(windows_total=spec.windows)

    def report(current: Progress) -> None:
        said.append(Progress(**{name: getattr(current, name) for name in current.__struct_fields__}))

    run = Session(spec, tmp_path, torch.device("cpu"), report, progress)
    steps = 0
    try:
        run.begin()
        more = not run.done
        while more:
            step()
            steps += 1
            more = run.boundary()
    finally:
        run.close()
    deadline = time.monotonic() + 30
    while protocol.raw_windows(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    reader.stop = True
    reader.join()
    assert reader.most <= 1, "on a CPU every window is read before the next begins"
    return progress, said, reader.traces, steps


def test_steps_and_windows_are_as_asked(tmp_path):
    calls = []
    progress, said, traces, steps = measure(tmp_path, lambda: calls.append(torch.mm(X, X)), steps=3)
    # Warm-up, timed, and for each window some without profiler, one for the profiler's own warm-up, three recorded.
    assert steps == len(calls) == 2 + 4 + 2 * (session.MOST_PLAIN_STEPS + 1 + 3)
    assert progress.steps_timed == 4 and progress.windows_done == 2
    assert progress.step_ms > 0 and progress.between_step_ms > 0 and progress.window_step_ms > 0
    assert list(dict.fromkeys(p.state for p in said)) == ["warming", "timing", "profiling"]
    assert all(p.eta_s is not None for p in said)
    for trace in traces:
        names = Counter(event["name"] for event in trace if event.get("ph") == "X")
        assert names["aten::mm"] == 3
        assert sum(count for name, count in names.items() if name.startswith("ProfilerStep#")) == 3
        assert "Input Dims" in next(event for event in trace if event["name"] == "aten::mm")["args"]
    assert not list((tmp_path / "raw").iterdir())


@pytest.mark.parametrize(
    ("target", "step_s", "plain"),
    [
        ("catalogue", 0.0, session.MOST_PLAIN_STEPS),
        ("catalogue", session.WARM_S / 4, 4),
        ("catalogue", 1.0, 1),
        ("catalogue", 3.0, 0),
        ("script", 0.001, 1),
    ],
)
def test_short_steps_are_taken_plain_until_the_caches_are_warm(tmp_path, target, step_s, plain):
    spec = Spec(name="s", workload="w", target=target)
    run = Session(spec, tmp_path, torch.device("cpu"), lambda progress: None, Progress())
    assert run._plain_steps(step_s) == plain


def test_no_windows_is_a_plain_timing(tmp_path):
    progress, _, traces, steps = measure(tmp_path, lambda: torch.mm(X, X), windows=0, warmup=0)
    assert (steps, traces, progress.windows_done, progress.steps_timed) == (4, [], 0, 4)


def test_seconds_end_it_early(tmp_path):
    progress, _, traces, _ = measure(tmp_path, lambda: torch.mm(X, X), windows=10_000, seconds=0.3)
    assert 1 <= progress.windows_done == len(traces) < 10_000


def test_slow_steps_get_no_unprofiled_step_between(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "SLOW_STEP_S", 0.0)
    progress, _, _, steps = measure(tmp_path, lambda: torch.mm(X, X))
    assert steps == 2 + 4 + 2 * 2
    assert progress.between_step_ms is None
    assert any("no unprofiled step" in note for note in progress.notes)


def test_an_error_in_a_window_leaves_nothing_behind(tmp_path):
    taken = 0
    module = torch.nn.Linear(4, 4)

    def step():
        nonlocal taken
        taken += 1
        module(X)
        if taken == 2 + 4 + 3:
            raise ValueError("in the window")

    with pytest.raises(ValueError, match="in the window"):
        measure(tmp_path, step)
    assert not list((tmp_path / "raw").iterdir())
    # Neither hooks nor a running profiler: another measurement works.
    assert not torch.nn.modules.module._global_forward_hooks
    (tmp_path / "again").mkdir()
    progress, *_ = measure(tmp_path / "again", lambda: module(X))
    assert progress.windows_done == 2


class Inner(torch.nn.Module):
    def forward(self, x):
        if x.sum() == 0:
            raise ValueError("zero")
        return x.relu()


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        try:
            self.inner(torch.zeros(2))
        except ValueError:
            pass
        return self.inner(x)


def test_module_ranges_nest_and_survive_errors(tmp_path):
    ranges, model = ModuleRanges(), Outer()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=False) as profiler:
        model(X)
        ranges.on()
        ranges.on()
        model(X)
        ranges.off()
        model(X)
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    found = [event for event in events if event["name"].startswith("nn.Module: ") and event["ph"] == "X"]
    assert Counter(event["name"] for event in found) == {"nn.Module: Outer": 1, "nn.Module: Inner": 2}
    outer = next(event for event in found if event["name"].endswith("Outer"))
    for event in found:
        assert outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"]
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_half_iqr():
    assert half_iqr([]) == half_iqr([3.0]) == 0.0
    assert half_iqr([1.0, 2.0, 3.0, 4.0, 5.0]) == 1.0
