"""What a test needs of a page: its tags in balance, and its pictures as trees."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

_VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})


class Balance(HTMLParser):
    """Reads a page and fails where a tag closes what was not opened last."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [str(value) for name, value in attrs if name == "id"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"rect", "circle", "line", "polyline", *_VOID}, tag

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-5:], self.getpos())
        self.open.pop()


def pictures(page: str) -> list[ElementTree.Element]:
    """Every outermost SVG of a page, parsed as XML (which fails on anything that is not well-formed)."""
    out, depth, begin = [], 0, 0
    for found in re.finditer(r"<svg\b|</svg>", page):
        if found[0] == "<svg":
            begin = found.start() if depth == 0 else begin
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                out.append(ElementTree.fromstring(page[begin : found.end()]))
    assert depth == 0
    return out


def picture(page: str, cls: str) -> ElementTree.Element:
    """The one picture of this class."""
    found = [one for one in pictures(page) if cls in one.get("class", "").split()]
    assert len(found) == 1, len(found)
    return found[0]
