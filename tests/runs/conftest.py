"""Fixtures of the tests that start real runs."""

from tests.runs.support import root  # noqa: F401
