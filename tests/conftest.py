"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# One thread each: the suite runs several workers on few cores, and contention would make steps ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parent.parent


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument: packed bytes hold the clock, and workers would then disagree on names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real recordings beside the checkout; the test is skipped where there is none."""
    folder = ROOT.parent / "shared" / "data" / "traces"
    if not folder.is_dir():
        pytest.skip("no folder of real recordings beside this checkout")
    return folder


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own runs, settings or rules."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("KERNELSCOPE_RUNS", str(home / "runs"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
