"""Every benchmark, one after the other: ``python -m tests.benchmarks [NAME ...]``. They print figures and never fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Run the named scripts (default: all), each in a process of its own."""
    scripts = {path.stem: path for path in sorted(HERE.glob("*.py")) if not path.stem.startswith("_")}
    for name in sys.argv[1:] or scripts:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}"], check=False)


if __name__ == "__main__":
    main()
