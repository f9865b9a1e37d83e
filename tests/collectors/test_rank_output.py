"""What several ranks print, in one log; and where they are when they hang."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from profilers.collectors import whereabouts
from profilers.collectors.files import newest, tail
from profilers.collectors.rankoutput import Lines, Output
from profilers.collectors.whereabouts import ENDED, Whereabouts, place, together


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_every_line_has_its_rank_however_it_comes(size: int) -> None:
    printed = b"one\n\ntwo\r\n 10%\r 20%\r\nthe end"
    lines, out = Lines(3), b""
    for start in range(0, len(printed), size):
        out += lines.feed(printed[start : start + size])
    out += lines.end()
    assert out == b"[rank 3] one\n[rank 3]\n[rank 3] two\n[rank 3]  10%\r[rank 3]  20%\n[rank 3] the end\n"


def test_an_unended_line_is_shown_once_and_again_when_it_is_whole() -> None:
    lines = Lines(0)
    assert lines.feed(b"loading ... ") == b""
    assert lines.idle() == b"[rank 0] loading ... \r"
    assert lines.idle() == b""
    assert lines.feed(b"done\nnext") == b"[rank 0] loading ... done\n"
    assert lines.idle() == b"[rank 0] next\r"
    assert lines.end() == b"[rank 0] next\n"
    assert lines.idle() == lines.end() == b""


def test_the_rank_that_pytorch_says_itself_is_not_said_twice() -> None:
    assert Lines(1).feed(b"[rank1]: RuntimeError: x\n[rank2]: y\n") == (
        b"[rank 1] RuntimeError: x\n[rank 1] [rank2]: y\n"
    )


def test_a_line_without_end_does_not_grow_for_ever() -> None:
    lines = Lines(0)
    out = lines.feed(b"x" * 70_000)
    assert out == b"[rank 0] " + b"x" * 70_000 + b"\n"


def test_lines_of_two_ranks_do_not_mix(tmp_path: Path) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ends, outputs = [], []
    for rank in range(2):
        reading, writing = os.pipe()
        ends.append(writing)
        outputs.append(Output(rank, reading, log))
        outputs[-1].start()

    def talk(rank: int) -> None:
        for number in range(300):
            os.write(ends[rank], b"%d of rank %d, " % (number, rank))
            os.write(ends[rank], b"and its end\n")
        os.close(ends[rank])

    talkers = [threading.Thread(target=talk, args=(rank,)) for rank in range(2)]
    for thread in talkers:
        thread.start()
    for thread in (*talkers, *outputs):
        thread.join(30)
    os.close(log)
    lines = (tmp_path / "log").read_text().splitlines()
    for rank in range(2):
        own = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        assert own == [f"[rank {rank}] {number} of rank {rank}, and its end" for number in range(300)]
    assert len(lines) == 600


def test_of_rewritten_lines_the_newest_state_of_each_rank_stays(tmp_path: Path) -> None:
    assert newest("10%\r20%\r") == ["20%"]
    assert newest("[rank 0] a\r[rank 1] b\r[rank 0] c") == ["[rank 1] b", "[rank 0] c"]
    assert newest("") == newest("\r") == [""]
    (tmp_path / "log").write_bytes(b"[rank 0] 1%\r[rank 0] 2%\r[rank 1] one\n[rank 0] 3%\n\nx\r\n")
    assert tail(tmp_path / "log", 9) == ["[rank 0] 2%", "[rank 1] one", "[rank 0] 3%", "", "x"]
    (tmp_path / "log").write_bytes(b"gone\n[rank 0] 1%\r[rank 1] 1%\r[rank 0] 22%\r[rank 1] 22%\r")
    assert tail(tmp_path / "log", 9, limit=40) == ["[rank 0] 22%", "[rank 1] 22%"], "a line longer than what is read"
    assert tail(tmp_path / "log", 9, limit=5) == []


# --- whereabouts ------------------------------------------------------------------------------------------------------


def test_ranks_at_one_place_are_named_together() -> None:
    places = {
        0: "a.py:1 (in backward)",
        1: "a.py:1 (in backward)",
        2: "b.py:9",
        3: "a.py:1 (in backward)",
        4: ENDED,
        5: "",
    }
    assert together(places) == (
        "ranks 0-1,3 at a.py:1 (in backward), rank 2 at b.py:9, rank 4 ended, rank 5 at a place that it does not tell"
    )


def test_a_place_is_the_users_own_line_and_what_it_called(tmp_path: Path) -> None:
    def code(path: str, name: str, text: str) -> object:
        names: dict[str, object] = {"sys": sys}
        exec(compile(text, path, "exec"), names)
        return names[name]

    inner = code("/x/site-packages/torch/deep.py", "run_backward", "def run_backward(): return sys._getframe()")
    outer = code("/x/site-packages/torch/api.py", "all_reduce", "def all_reduce(f): return f()")
    theirs = code("/home/me/train.py", "step", "\n\n\ndef step(f, g): return f(g)")
    assert place(theirs(outer, inner)) == "train.py:4 (in all_reduce)"  # type: ignore[operator]
    assert place(theirs(lambda g: g(), inner)).startswith("test_rank_output.py:")  # type: ignore[operator]
    assert place(None) == ""


def test_whereabouts_are_told_by_a_thread(tmp_path: Path) -> None:
    assert whereabouts.told(tmp_path) == Whereabouts(0, "")
    end = whereabouts.tell(tmp_path, lambda: 7, 0.01)
    deadline = time.monotonic() + 30
    while not whereabouts.told(tmp_path).place and time.monotonic() < deadline:
        time.sleep(0.01)
    end()
    found = whereabouts.told(tmp_path)
    assert found.steps == 7
    assert found.place.startswith("test_rank_output.py:")
    (tmp_path / whereabouts.FILE).write_text("{half")
    assert whereabouts.told(tmp_path) == Whereabouts(0, "")
