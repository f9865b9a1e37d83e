"""RUN|FILE on the command line -> a recording, and where the runs folder is."""

from __future__ import annotations

import argparse
from pathlib import Path


def root_of(args: argparse.Namespace) -> Path:
    """The runs folder: ``--runs``, else where the environment says."""
    from profilers.runs.folder import runs_root

    root: Path = args.runs.expanduser() if args.runs else runs_root()
    return root.absolute()
