"""What the command line loads: nothing heavy for help, never torch for looking."""

from __future__ import annotations

from pathlib import Path

import pytest

from profilers.runs.folder import RunFolder
from tests.cli.support import process

LOOK = """
import sys
from tui.cli import main
code = main(sys.argv[1:])
heavy = ("torch", "transformers", "pandas", "pyarrow", "numpy", "textual", "rich", "msgspec")
loaded = sorted(name for name in heavy if name in sys.modules)
sys.stderr.write("LOADED " + " ".join(loaded) + "\\n")
sys.exit(code)
"""


def _loaded(*words: str) -> set[str]:
    done = process(*words, script=LOOK)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("LOADED ")[2].split())


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["show", "--help"], ["whatif", "--help"], ["doctor", "--help"]]
)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    assert _loaded(*words) == set()


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--help"],
        ["ls", "models"],
        ["ls", "suites", "--format", "json"],
        ["ls", "devices"],
        ["ls", "runs"],
        ["doctor"],
    ],
)
def test_looking_around_never_loads_torch(words: list[str]) -> None:
    assert not _loaded(*words) & {"torch", "transformers", "textual"}


@pytest.mark.parametrize("file", ["k.txt", "k.csv", "k.parquet", "k.html"])
def test_show_never_loads_torch_or_textual(file: str, finished: RunFolder, tmp_path: Path) -> None:
    assert not _loaded("show", finished.id, "kernels", "-o", str(tmp_path / file)) & {
        "torch",
        "transformers",
        "textual",
    }
    assert (tmp_path / file).stat().st_size


def test_a_users_own_apps_and_tui_folders_do_not_get_in_the_way(tmp_path: Path) -> None:
    for name in ("apps", "tui", "profilers", "rich"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('theirs')\n")
    done = process("ls", "models", "--format", "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gpt2" in done.stdout
