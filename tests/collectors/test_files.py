"""Files that one process writes while another reads."""

from __future__ import annotations

from pathlib import Path

from profilers.collectors.files import Growing


def test_a_growing_file_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    growing = Growing(path)
    assert growing.news() == b""
    with path.open("wb", buffering=0) as file:
        file.write(b"one\ntw")
        assert growing.news() == b"one\n"
        assert growing.news() == b""
        file.write("o\ndreißig".encode()[:-3])
        assert growing.news() == b"two\n"
        file.write("dreißig".encode()[-3:])
        assert growing.news(last=True).decode() == "dreißig"
        assert growing.news(last=True) == b""
