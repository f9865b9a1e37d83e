"""What may be imported where, checked in fresh processes: a long-lived one would hide what something else has loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers")


def loaded_after(code: str, *names: str) -> list[str]:
    """Which of ``names`` a fresh interpreter has loaded after running ``code``."""
    probe = f"import sys\n{code}\nprint('LOADED', *[n for n in {names!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", probe], capture_output=True, text=True, check=False, timeout=60)
    lines = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert lines, done.stderr
    return lines[-1].split()[1:]


@pytest.mark.parametrize(
    "module",
    [
        "tui.app",
        "tui.cli",
        "tui.watcher",
        "tui.panes",
        "tui.screens.new_run",
        "apps.catalogue",
        "profilers.runs.launch",
        "profilers.runs.supervisor",
        "profilers.readers",
        "profilers.analysis.prepare",
    ],
)
def test_no_torch_outside_the_worker(module: str) -> None:
    assert loaded_after(f"import {module}", *HEAVY) == []


@pytest.mark.parametrize(
    "argv",
    [["--help"], ["run", "--help"], ["ls", "models"], ["ls", "suites"], ["ls", "runs"], ["--version"]],
    ids=" ".join,
)
def test_quick_commands_load_nothing_heavy(argv: list[str]) -> None:
    code = f"from tui.cli import main\nmain({argv!r})"
    heavy = (
        ("torch", "transformers", "textual")
        if argv[0] == "ls"
        else ("torch", "transformers", "textual", "pandas", "pyarrow", "rich")
    )
    assert loaded_after(code, *heavy) == []


def test_first_paint_needs_no_pandas() -> None:
    """The screen's modules are imported before the first frame; pandas takes longer than the frame."""
    assert loaded_after("import tui.app, tui.screens.main", "torch", "pandas", "pyarrow") == []


def test_analysis_and_readers_know_no_screen() -> None:
    code = "import profilers.readers, profilers.analysis.registry, profilers.analysis.prepare, profilers.runs.folder"
    assert loaded_after(code, "textual", "tui") == []
