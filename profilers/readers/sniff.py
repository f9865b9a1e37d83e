"""What a file is, by what is in it: names and suffixes lie.

:func:`sniff` gives the kind of a recording that a reader can read, and raises :class:`ReadError` for everything else,
with what the file is and what to do. It reads at most the beginning of a file, runs nothing and unpickles nothing.
"""

from __future__ import annotations

import codecs
import json
import re
import stat
import zlib
from pathlib import Path
from typing import Any, Literal

from profilers.readers.errors import ReadError

Kind = Literal["kineto", "nsys", "ncu", "ort", "trt", "nsys-rep", "ncu-rep", "folder"]
"""``nsys-rep`` and ``ncu-rep`` are NVIDIA's own formats, which their tools convert; ``folder`` holds recordings."""

HEAD = 1 << 16
"""Bytes that tell most formats apart."""

BANNER = 1 << 24
"""How far a table of ncu may lie behind the profiled program's own output."""

NCU_HEADER = re.compile(rb'^\xef\xbb\xbf?"?ID"?,"?Process ID"?,|^"?ID"?,"?Process ID"?,', re.MULTILINE)
"""The header line of every table that ncu writes, whatever its page."""

_BINARY = (
    (b"NVR\0", "ncu-rep"),
    (b"SQLite format 3\0", "nsys"),
)
_REFUSED_BINARY = (
    (b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it first (unzstd FILE)"),
    (b"\xfd7zXZ\0", "an xz archive; unpack it first (unxz FILE)"),
    (b"BZh", "a bzip2 archive; unpack it first (bunzip2 FILE)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it and open the recording inside"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, not a recording; with nsys, export with --type sqlite"),
    (b"PAR1", "a Parquet file; open the run's folder by its name, not the files in it"),
    (b"ARROW1\0\0", "an Arrow file, not a recording; with nsys, export with --type sqlite"),
    (b"\x7fELF", "a program, not a recording; run it under a profiler first"),
    (b"\x89PNG", "a picture, not a recording"),
    (b"%PDF", "a PDF document, not a recording"),
)
_NSYS_SUFFIXES = (".nsys-rep", ".qdrep")
"""Nsight Systems' reports have no signature that is documented."""
_XML = "an XML page (a download that failed, mostly); download it again and look at it in an editor"
_HTML = "a web page, not a recording (a login or download page, mostly); download the raw file, logged in"
_TORCH = "record with torch.profiler or nsys instead"
_JSON_REFUSED = (
    (rb'"rocprofiler-sdk-tool"', f"a rocprofv3 JSON, which is not read; {_TORCH}"),
    (rb'"speedscope|speedscope\.app/file-format', f"a speedscope profile of host code: it has no kernels; {_TORCH}"),
    (
        rb'"schema"\s*:\s*"[\w.+-]*(?:chakra|COM)|"nodes"\s*:\s*\[\s*\{\s*"(?:id|ctrl_deps|name)"',
        "a PyTorch execution trace: operators without times; open the Kineto trace recorded with it",
    ),
    (
        rb'^\s*\[\s*\{\s*"count"\s*:\s*\d+\s*\}\s*,\s*\{\s*"name"',
        f"a TensorRT layer profile (trtexec --exportProfile): averages by layer, no kernels; {_TORCH}",
    ),
    (
        rb'^\s*\[\s*\{\s*"children"\s*:|"frame"\s*:\s*\{[^}]*"name"\s*:\s*"ROOT"',
        f"a Proton profile: sums by call path, no kernel in time; {_TORCH}",
    ),
    (rb'^\s*\{\s*"cells"\s*:\s*\[', "a notebook, not a recording; run it under a profiler first"),
    (
        rb'^\s*\{\s*"(?:Type|data)"\s*:\s*[\d\[]',
        "a JSON export of Nsight Systems; export it again with --type sqlite and open that",
    ),
)
_ORT = re.compile(rb'\s*\[\s*\{[^{]{0,200}"cat"\s*:\s*"Session"')
"""A profile of ONNX Runtime: a list of events whose first is the session's own."""
_TRT = re.compile(rb'\s*\{\s*"tensorrt_layers"\s*:\s*\d')
"""Layer times of TensorRT, as our own backend writes them."""
_READABLE = (
    "what can be read: torch.profiler JSON (plain or gzip), Nsight Systems .sqlite and .nsys-rep, "
    "Nsight Compute .csv and .ncu-rep, ONNX Runtime profiles"
)


def sniff(path: str | Path) -> Kind:
    """The kind of the recording at ``path``, by its content. Raises ReadError for what cannot be read, and says why."""
    path = Path(path)
    if _is_folder(path):
        return "folder"
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
            if not head:
                raise ReadError(f"{path}: empty (0 bytes); the recording was never written, or its disk was full")
            kind = _binary(path, head)
            if kind is not None:
                return kind
            text, packed = _unpacked(path, head)
            return _text(path, text, head if packed else head + file.read(BANNER - HEAD))
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error


def _is_folder(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise ReadError(f"{path}: no such file or folder") from None
    except (OSError, ValueError) as error:
        raise ReadError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(mode):
        return True
    if not stat.S_ISREG(mode):
        raise ReadError(f"{path}: not a regular file; save the recording to a file first")
    return False


def _binary(path: Path, head: bytes) -> Kind | None:
    """The kind of a binary file; None for text and for gzip."""
    for magic, kind in _BINARY:
        if head.startswith(magic):
            return kind  # type: ignore[return-value]
    for magic, text in _REFUSED_BINARY:
        if head.startswith(magic):
            raise ReadError(f"{path}: {text}")
    if head.startswith(b"PK\x03\x04"):
        raise ReadError(f"{path}: {_archive(head)}")
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        raise ReadError(f"{path}: a Python pickle, which is never loaded (it could run code); export a trace instead")
    if head[257:262] == b"ustar":
        raise ReadError(f"{path}: a tar archive; unpack it and open the recording inside")
    if head.startswith((b"\x1f\x8b", codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or not _looks_binary(head):
        return None
    if path.suffix.lower() in _NSYS_SUFFIXES or b"QuadD" in head:
        return "nsys-rep"
    if path.suffix.lower() == ".qdstrm":
        raise ReadError(
            f"{path}: an unfinished Nsight Systems capture; turn it into a report with QdstrmImporter first"
        )
    if path.suffix.lower() in {".pftrace", ".perfetto-trace", ".pb"}:
        raise ReadError(
            f"{path}: a protobuf trace (Perfetto, XPlane), which is not read; record with torch.profiler instead"
        )
    raise ReadError(f"{path}: binary data of no known kind; {_READABLE}")


def _archive(head: bytes) -> str:
    if b"data.pkl" in head or b"/version" in head[:200]:
        return "a file of torch.save (weights or a pickle), which is never loaded; export a trace instead"
    return "a zip archive; unpack it and open the recording inside"


def _looks_binary(head: bytes) -> bool:
    """Text has no NUL, and few control bytes; recordings with a stray one in a name are still text."""
    sample = head[:4096]
    if b"\0" in sample:
        return True
    control = sum(byte < 32 and byte not in b"\t\n\r\f\b\x1b" for byte in sample)
    return control > max(8, len(sample) // 20)


def _unpacked(path: Path, head: bytes) -> tuple[bytes, bool]:
    """The text at the beginning as UTF-8, and whether it was compressed. A cut or damaged stream gives what it held."""
    packed = head.startswith(b"\x1f\x8b")
    if packed:
        try:
            inflate = zlib.decompressobj(wbits=31)
            head = inflate.decompress(head, HEAD)
        except zlib.error:
            raise ReadError(
                f"{path}: a damaged gzip file, nothing of it can be unpacked; copy or record it again"
            ) from None
        if not head and not inflate.eof:
            raise ReadError(f"{path}: a gzip file cut off before any of its data; copy or record it again")
        if not head:
            raise ReadError(f"{path}: a gzip file with nothing in it; the recording was never written")
        if head[257:262] == b"ustar":
            raise ReadError(f"{path}: a tar archive; unpack it (tar xzf FILE) and open the recording inside")
        if head.startswith((b"SQLite format 3\0", b"NVR\0", b"PK\x03\x04", b"\x80")):
            raise ReadError(f"{path}: compressed, and not a JSON inside; unpack it first (gunzip FILE)")
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if head.startswith(mark):
            return head[2:].decode(name, "replace").encode(), packed
    return head.removeprefix(codecs.BOM_UTF8), packed


def _text(path: Path, text: bytes, raw: bytes) -> Kind:
    start = text.lstrip()[:512]
    if not start:
        raise ReadError(f"{path}: blank; the recording was never written")
    lower = start.lower()
    if start.startswith(b"version https://git-lfs"):
        raise ReadError(f"{path}: a Git LFS pointer, not the recording itself; fetch it with: git lfs pull")
    if lower.startswith((b"<!doctype html", b"<html")) or (lower.startswith(b"<") and b"<html" in lower):
        raise ReadError(f"{path}: {_HTML}")
    if lower.startswith(b"<"):
        raise ReadError(f"{path}: {_XML}")
    # A program's own output before the table may begin like JSON ("[INFO] ...").
    if start[:1] in b"{[" and not (b"Process ID" in raw and NCU_HEADER.search(raw)):
        return _json(path, text, whole=len(raw) < HEAD)
    return _table(path, text, raw)


def _json(path: Path, text: bytes, *, whole: bool) -> Kind:
    """Chrome JSON unless the beginning shows one of the other kinds; ``whole``: all of the file is in ``text``."""
    if b'"traceEvents"' not in text:
        if _ORT.match(text):
            return "ort"
        if _TRT.match(text):
            return "trt"
        for pattern, message in _JSON_REFUSED:
            if re.search(pattern, text):
                raise ReadError(f"{path}: {message}")
        if whole:
            _refuse_small_object(path, text)
    return "kineto"


def _refuse_small_object(path: Path, text: bytes) -> None:
    """A small, complete JSON object without events is a configuration or an error message, not a damaged trace."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and not any("traceEvents" in item for item in value.values() if isinstance(item, dict)):
        keys = ", ".join(ascii(key)[1:-1][:30] for key in list(value)[:3]) or "none"
        raise ReadError(f"{path}: JSON without traceEvents (its keys: {keys}); not a recording")


def _table(path: Path, text: bytes, raw: bytes) -> Kind:
    if NCU_HEADER.search(text) or NCU_HEADER.search(raw):
        return "ncu"
    first = text.split(b"\n", 1)[0]
    if b"==PROF==" in raw or b"==ERROR==" in raw:
        raise ReadError(
            f"{path}: output of ncu without its table; get it with: ncu --import FILE.ncu-rep --csv --page raw"
        )
    if re.search(rb"Total Time \(ns\)|Start \(ns\)|Duration \(ns\)", first):
        raise ReadError(f"{path}: a table of nsys stats; open the .sqlite or .nsys-rep that it was made from")
    if path.suffix.lower() == ".py" or first.startswith(b"#!"):
        raise ReadError(f"{path}: a script, not a recording; profile it with: kernelscope run {path.name}")
    raise ReadError(f"{path}: text of no known kind; {_READABLE}")
