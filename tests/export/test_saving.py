"""Writing to a path: all or nothing, and every failure one line."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tui.export import ExportError, save, saving


def test_writes_a_new_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    assert save(b"a\n", target) == target
    assert target.read_bytes() == b"a\n"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")
    target.chmod(0o640)
    with pytest.raises(ExportError, match="exists; say --force"):
        save(b"new", target)
    assert target.read_bytes() == b"old"
    save(b"new", target, force=True)
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640, "the file's own permissions stay"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_bytes(b"old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    save(b"new", tmp_path / "link.csv", force=True)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("missing/out.csv", "there is no folder"),
        (".", "it is a folder"),
        ("file/out.csv", "cannot write"),
        ("nul\0.csv", "cannot write"),
        ("x" * 300 + ".csv", "File name too long"),
        ("~nobody-of-this-name/out.csv", "cannot write"),
    ],
)
def test_a_bad_path_is_one_line(target: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError) as caught:
        save(b"x", Path(target))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_keeps_the_old_file_and_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saving.os, "fsync", full)
    with pytest.raises(ExportError, match="No space left on device"):
        save(b"new", target, force=True)
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ExportError, match="Permission denied"):
        save(b"x", tmp_path / "out.csv")
    tmp_path.chmod(0o700)


def test_a_device_is_written_to_and_not_replaced() -> None:
    before = os.stat("/dev/null")
    save(b"x", Path("/dev/null"))
    assert os.stat("/dev/null").st_ino == before.st_ino
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(ExportError, match="No space left"):
        save(b"x", Path("/dev/full"))
