"""The stand-in NVML library, built by the C compiler here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

STUB = Path(__file__).parent / "stub" / "nvml.c"


def build_stub(folder: Path, *flags: str) -> Path:
    """The folder with a ``libnvidia-ml.so.1`` in it; the test is skipped where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in library with")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", *flags, "-o", library, STUB, "-lm"], check=True)
    return folder


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver of today."""
    return build_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver that lacks what came later."""
    return build_stub(tmp_path_factory.mktemp("nvml-old"), "-DOLD_DRIVER")
