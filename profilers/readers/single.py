"""One file of any kind: the reader for what is in it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from profilers.readers import convert
from profilers.readers.errors import ReadError
from profilers.readers.progress import Progress
from profilers.readers.sniff import Kind, sniff
from profilers.tables import Recording


def read_file(path: Path, *, kind: Kind | None = None, progress: Progress | None = None) -> Recording:
    """The recording in one file. ``kind`` is what :func:`~profilers.readers.sniff.sniff` said, if it was asked already.

    A report of Nsight Systems or Nsight Compute is converted into a temporary folder first. Raises
    :class:`ReadError` for what cannot be read.
    """
    kind = kind or sniff(path)
    try:
        return _read(path, kind, progress)
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error


def _read(path: Path, kind: Kind, progress: Progress | None) -> Recording:
    if kind == "kineto":
        from profilers.readers import kineto

        return kineto.read(path, progress=progress)
    if kind == "nsys":
        from profilers.readers import nsys

        return nsys.read(path, progress=progress)
    if kind == "ncu":
        from profilers.readers import ncu

        return ncu.read(path, progress=progress)
    if kind == "ort":
        from profilers.readers import ort

        return ort.read(path, progress=progress)
    if kind == "trt":
        from profilers.readers import trt

        return trt.read(path, progress=progress)
    if kind == "nsys-rep":
        with convert.nsys_sqlite(path) as made:
            return _converted(path, made, "nsys", progress)
    if kind == "ncu-rep":
        with convert.ncu_csv(path) as made:
            return _converted(path, made, "ncu", progress)
    raise ReadError(f"{path}: a folder; open the recordings in it, or the folder as one job of several ranks")


def _converted(path: Path, made: Path, kind: Kind, progress: Progress | None) -> Recording:
    """What was read of the converted file, under the name that the user gave."""
    try:
        recording = _read(made, kind, progress)
    except ReadError as error:
        raise ReadError(str(error).replace(str(made), str(path))) from error
    return recording.replace(origin=dataclasses.replace(recording.origin, path=str(path)))
