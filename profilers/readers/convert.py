"""NVIDIA's own report formats, turned into readable ones by NVIDIA's own tools where those are installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profilers.readers.errors import ReadError

_BESIDE_CUDA = Path("/usr/local/cuda/bin")


@contextmanager
def nsys_sqlite(path: Path) -> Iterator[Path]:
    """The report as a SQLite export in a folder that lives as long as the context."""
    tool = _tool("nsys")
    if tool is None:
        beside = path.with_suffix(".sqlite")
        other = f" (or open {beside.name}, which lies beside it)" if beside.is_file() else ""
        raise ReadError(
            f"{path}: an Nsight Systems report, and nsys is not installed here; where it is, run: "
            f"nsys export --type sqlite {path.name}, and open the .sqlite{other}"
        )
    with tempfile.TemporaryDirectory(prefix="kernelscope-") as folder:
        target = Path(folder) / "report.sqlite"
        _run([tool, "export", "--type", "sqlite", "--output", str(target), str(path.resolve())], path)
        if not target.is_file():
            raise ReadError(f"{path}: nsys export ended without writing a file; try it by hand")
        yield target


@contextmanager
def ncu_csv(path: Path) -> Iterator[Path]:
    """The report's ``raw`` page as CSV in a folder that lives as long as the context."""
    tool = _tool("ncu")
    if tool is None:
        raise ReadError(
            f"{path}: an Nsight Compute report, and ncu is not installed here; where it is, run: "
            f"ncu --import {path.name} --csv --page raw > {path.stem}.csv, and open the .csv"
        )
    command = [tool, "--import", str(path.resolve()), "--csv", "--page", "raw"]
    with tempfile.TemporaryDirectory(prefix="kernelscope-") as folder:
        target = Path(folder) / "report.csv"
        try:
            # Base units keep every digit; ncu before 2021 does not know the option.
            _run([*command, "--print-units", "base"], path, target)
        except ReadError:
            _run(command, path, target)
        yield target


def _tool(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=str(_BESIDE_CUDA))


def _run(command: list[str], path: Path, output: Path | None = None) -> None:
    """Run a tool; its standard output goes to ``output``. The last line it says is the reason when it fails."""
    shown = " ".join([Path(command[0]).name, *command[1:3]])
    try:
        if output is None:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        else:
            with output.open("wb") as file:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, check=False
                )
    except OSError as error:
        raise ReadError(f"{path}: {shown} could not be started: {error.strerror or error}") from error
    if done.returncode:
        said = (done.stderr or b"") + b"\n" + (done.stdout or b"")
        lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
        reason = "".join(c if c.isprintable() else "?" for c in lines[-1])[:300] if lines else "no reason given"
        raise ReadError(f"{path}: {shown} failed ({done.returncode}): {reason}")
