"""Recordings of any kind -> the tables that everything else works on.

:func:`read` is the one way in: it looks at what is in a file, not at its name, and loads only the reader it needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profilers.readers.progress import Progress
    from profilers.tables import Recording

__all__ = ["read"]


def read(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, progress: Progress | None = None
) -> Recording:
    """The recording in a file, in a folder, or in several files.

    A file is a torch.profiler trace (JSON, plain or gzip), an Nsight Systems ``.sqlite`` or ``.nsys-rep``, an Nsight
    Compute ``.csv`` or ``.ncu-rep`` (reports are converted by NVIDIA's tools where these are installed), or a profile
    of ONNX Runtime. Several files, or a folder of them, are the ranks of one job; pages of Nsight Compute among them
    give the kernels of the others their counters. ``progress`` is called with 0 to 1 and may raise to stop.

    Raises :class:`profilers.readers.errors.ReadError`, one line with what to do, for anything else.
    """
    paths = [Path(source)] if isinstance(source, (str, os.PathLike)) else [Path(one) for one in source]
    if len(paths) == 1 and not paths[0].is_dir():
        from profilers.readers.single import read_file

        return read_file(paths[0], progress=progress)
    from profilers.readers.ranks import read_folder, read_several

    return read_folder(paths[0], progress=progress) if len(paths) == 1 else read_several(paths, progress=progress)
