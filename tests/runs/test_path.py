"""From a spec to windows: supervisor, worker, profiler, reader, rules, all for real on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profilers.runs import leases
from profilers.runs.folder import RunsError, list_runs
from profilers.runs.launch import launch, stop
from profilers.runs.status import alive
from profilers.tables import KERNELS, OPERATORS, RUNTIME, STEPS
from tests.runs.support import ended, spec, until


def test_a_run_from_spec_to_windows(root):
    (run,) = launch([spec("build", mode="train", steps=2, seed=3)], root)
    status = ended(run)
    assert (status.state, status.cause) == ("finished", "")
    assert (status.windows_done, status.windows_recorded, status.windows_total) == (2, 2, 2)
    assert status.steps_timed == 3
    assert status.step_ms > 0 and status.step_ms_spread >= 0
    assert status.window_step_ms > 0 and status.between_step_ms > 0
    assert status.parameters == 2 * (32 * 32 + 32 + 64)
    assert status.items == 4 and status.item_name == "rows"
    assert "made by a test" in status.notes
    assert status.exit_code == 0 and status.eta_s is None
    assert status.created <= status.started <= status.ended
    assert not alive(status.worker_pid, status.worker_start)
    assert run.window_ids() == [1, 2]

    recording = run.recording()
    for schema in (OPERATORS, KERNELS, STEPS, RUNTIME):
        assert schema.problems(getattr(recording, schema.name)) == []
    assert len(recording.steps) == 4
    assert recording.operators["op_id"].tolist() == list(range(len(recording.operators)))
    linear = recording.operators[recording.operators["name"] == "aten::linear"]
    assert len(linear) == 8
    assert set(linear["module"]) == {"Linear"}
    assert set(recording.operators[recording.operators["name"] == "aten::relu"]["module"]) == {"Block"}
    assert not recording.operators["name"].astype(str).str.startswith("nn.Module").any()
    assert (recording.kernels["device"] == "cpu").all()
    assert (linear["class"] == "gemm").all()
    assert recording.origin.kind == "run" and recording.origin.path == run.id
    assert [device.id for device in recording.devices] == ["cpu"]

    summary = run.summary()
    assert summary["windows"] == 2 and summary["steps"] == 4 and summary["kernels"] == len(recording.kernels)
    assert summary["kernel_time_us"] == pytest.approx(recording.kernels["dur_ns"].sum() / 1e3)
    assert 0 < summary["gemm_pct"] < 100
    assert run.machine()["versions"]["torch"]
    assert "built train" in "\n".join(run.log_tail(50))
    # The profiler's own chatter would fill the log.
    assert "USDT" not in (run.path / "worker.log").read_text()
    kinds = [event["kind"] for event in run.events()]
    assert kinds[:2] == ["created", "started"] and kinds[-1] == "ended" and kinds.count("window") == 2
    # Raw traces are gone, and so is everything that only a going run needs.
    assert not list((run.path / "raw").iterdir())
    assert not (run.path / "traces").exists()
    until(lambda: not list((root / ".launches").iterdir()), "the launch file to go")
    until(lambda: not alive(status.supervisor_pid, status.supervisor_start), "the supervisor to leave")


def test_runs_of_one_device_follow_each_other_and_a_failed_one_stops_nothing(root):
    runs = launch([spec("step", name="a"), spec("raises", name="b"), spec("step", name="c", keep_traces=True)], root)
    assert [run.spec().name for run in list_runs(root)] == ["c", "b", "a"]
    states = [ended(run) for run in runs]
    assert [status.state for status in states] == ["finished", "failed", "finished"]
    assert states[0].ended <= states[1].started <= states[1].ended <= states[2].started
    assert len({(status.supervisor_pid, status.supervisor_start) for status in states}) == 1
    failed = states[1]
    assert failed.cause_kind == "workload"
    assert failed.cause.startswith("ValueError: the third layer is upset (tiny.py:")
    assert "Traceback" in "\n".join(runs[1].log_tail(40))
    assert sorted(path.name for path in (runs[2].path / "traces").iterdir()) == ["0001.json", "0002.json"]
    # The step of a plain callable is the callable itself.
    assert (runs[0].recording().operators["name"] == "aten::mm").sum() == 2


def test_a_refusal_is_one_line_in_the_log_too(root):
    (run,) = launch([spec("no_such_name", name="a")], root)
    status = ended(run)
    assert (status.state, status.cause_kind) == ("failed", "usage")
    assert run.log_tail(40) == [status.cause]


def test_no_torch_above_the_worker(root):
    code = (
        "import sys; import profilers.runs.launch, profilers.runs.jobs, profilers.runs.sampling, profilers.runs.reading;"
        "import profilers.runs.opening, profilers.runs.replay, profilers.runs.supervisor, profilers.collectors.telemetry"
        ".machine as m; m.describe(); print([n for n in ('torch', 'textual', 'pandas') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_launch_leaves_no_child_and_survives_its_parent(root):
    """The launching process may end at once, and never sees a zombie."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from pathlib import Path; from tests.runs.support import spec; from profilers.runs.launch import launch;"
        "launch([spec('build')], Path(sys.argv[1]));"
        "import os\n"
        "try:\n    os.waitpid(-1, os.WNOHANG); print('child')\nexcept ChildProcessError:\n    print('none')"
    )
    here = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(root), str(here)],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    assert done.stdout.strip() == "none"
    (run,) = list_runs(root)
    assert ended(run).state == "finished"


def test_launch_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunsError, match="cannot write to the runs folder"):
        launch([spec("build")], tmp_path / "file" / "runs")


def test_unknown_gpu_is_named_before_anything_starts(root, monkeypatch):
    from profilers.collectors.telemetry.nvml import Gpu
    from profilers.runs import launch as module

    class OneGpu:
        reason = ""
        gpus = [Gpu(None, 0, "NVIDIA H100", "GPU-1234")]

        def close(self):
            pass

    monkeypatch.setattr(module, "Nvml", OneGpu)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(RunsError, match=r"no device cuda:1 \(GPUs here: cuda:0\)"):
        launch([spec("build", device="cuda:1")], root)
    assert list_runs(root) == []
    (named,) = module.with_uuids([spec("build", device="cuda")])
    assert (named.device, named.device_uuid) == ("cuda:0", "GPU-1234")


def test_a_gpu_that_torch_cannot_use_is_a_named_failure(root):
    (run,) = launch([spec("build", device="cuda:0", device_uuid="GPU-none")], root)
    status = ended(run)
    assert (status.state, status.cause_kind) == ("failed", "device")
    assert "cuda:0" in status.cause


def test_a_leased_device_is_waited_for_by_name(root):
    lease = leases.Lease(root, leases.lease_key("cpu"))
    assert lease.acquire() and lease.acquire()
    lease.say("the-other-run")
    other = leases.Lease(root, leases.lease_key("cpu"))
    assert not other.acquire()
    (run,) = launch([spec("step")], root)
    until(lambda: "the-other-run" in run.status().phase, "the wait to be said")
    assert run.effective_status().state == "queued"
    lease.release()
    assert ended(run).state == "finished"


def test_devices_side_by_side(root):
    """A run on another device (here: shapes only) does not wait for the CPU's, and a queued one can be stopped."""
    first, second, third = launch(
        [spec("slow", windows=400), spec("slow", name="meta", device="meta", windows=400), spec("step", name="last")],
        root,
    )
    until(lambda: first.status().windows_done and not second.effective_status().live, "the other device's run to end")
    assert (second.status().state, second.status().windows_done) == ("finished", 1)
    assert first.status().state == "profiling", "they went on side by side"
    assert third.status().state == "queued" and third.status().phase == "waiting for cpu: 1 before it"
    assert stop(third, wait_s=20).state == "stopped"
    assert stop(first, wait_s=20).state == "stopped"
    assert third.status().started is None
    assert first.status().cause == "stopped by request"
    for run in (first, second):
        status = run.status()
        assert status.windows_done == len(run.window_ids()) > 0
        assert not alive(status.worker_pid, status.worker_start)
        run.recording()
    with pytest.raises(RunsError, match="already ended"):
        stop(first)
    first.delete()
    assert first not in list_runs(root)
