"""The README says what is true: its table of workloads, its tables' names, its commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from profilers.analysis.registry import TABLES
from tui.cli.parser import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def models() -> str:
    """What the program prints."""
    argv = [sys.executable, "-P", "-m", "tui.cli", "ls", "models", "--format", "markdown"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60).stdout.strip()


def test_the_table_of_workloads_is_what_the_program_prints() -> None:
    held = re.search(r"<!-- workloads:.*?-->\n(.*?)\n<!-- /workloads -->", TEXT, re.DOTALL)
    assert held is not None
    assert held[1].strip() == models(), "run: python -m tests.test_readme"


def test_every_table_is_listed_and_no_other() -> None:
    listed = re.search(r"^Tables: `([^`]+)`", TEXT, re.MULTILINE)
    assert listed is not None
    assert sorted(listed[1].split()) == sorted(TABLES)


def test_every_command_is_shown_and_no_other() -> None:
    code = "\n".join(re.findall(r"^```\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))
    shown = set(re.findall(r"(?:^|  )kernelscope ([a-z]+)", code, re.MULTILINE))
    for line in re.findall(r"^kernelscope (.* · .*)$", code, re.MULTILINE):
        shown |= set(line.split(" · "))
    assert shown == set(COMMANDS)


def test_pictures_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", TEXT)
    assert pictures
    assert [path for path in pictures if not (ROOT / path).is_file()] == []


if __name__ == "__main__":
    made = re.sub(
        r"(<!-- workloads:.*?-->\n).*?(\n<!-- /workloads -->)", lambda m: m[1] + models() + m[2], TEXT, flags=re.DOTALL
    )
    (ROOT / "README.md").write_text(
        made.replace("-->\n<!-- /workloads", f"-->\n{models()}\n<!-- /workloads"), encoding="utf-8"
    )
