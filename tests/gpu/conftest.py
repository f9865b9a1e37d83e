"""Everything here runs on a real GPU, and is skipped where torch finds none. Nothing is imported or asked before a test runs."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profilers.runs.folder import RunFolder
from profilers.runs.launch import launch
from profilers.runs.spec import Spec
from tests.runs.support import root  # noqa: F401

HERE = Path(__file__).parent


@functools.cache
def why_no_gpu() -> str:
    """Why these tests cannot run; '' where they can. A process of its own: this one must not hold the device."""
    code = (
        "import sys, torch\n"
        "if not torch.cuda.is_available(): sys.exit('torch.cuda.is_available() is False')\n"
        "torch.zeros(1, device='cuda')\n"
        "print(torch.version.cuda or '')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == 0:
        return "" if done.stdout.strip() else "torch finds a GPU that is not NVIDIA's"
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"no GPU: {last}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def _needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    if why_no_gpu():
        pytest.skip(why_no_gpu())
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


Runner = Callable[..., RunFolder]


@pytest.fixture
def finished(root: Path) -> Runner:  # noqa: F811
    """``finished(function, **spec)`` runs a workload of this folder on cuda:0 to its end; it must end well."""
    from tests.runs.support import ended

    def run(function: str, **changes: object) -> RunFolder:
        given: dict[str, object] = {
            "name": function,
            "workload": f"{HERE / 'workloads' / 'cuda_steps.py'}:{function}",
            "target": "callable",
            "device": "cuda:0",
            "dtype": "bf16",
            "warmup": 3,
            "timed_steps": 10,
            "windows": 5,
        }
        (folder,) = launch([Spec(**{**given, **changes})], root)  # type: ignore[arg-type]
        status = ended(folder)
        assert status.state == "finished", (status.cause, folder.log_tail(30))
        return folder

    return run
