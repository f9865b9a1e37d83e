"""Fixtures of the tests that start real runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from conftest_runs import root  # noqa: F401
