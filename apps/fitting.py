"""Asks :mod:`apps.fit` for somebody who must not load torch: ``python -P -m apps.fitting < questions > answers``.

A question is the fields of a :class:`~apps.workload.Request` and ``room``, the bytes that the device has; the answer is
one line that says why the request does not fit, or '' where it does or where its memory cannot be estimated. Both are
JSON lists.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from apps import catalogue


def answer(question: Mapping[str, Any]) -> str:
    """Why this request does not fit in ``room`` bytes, or ''."""
    from apps import fit

    asked = dict(question)
    room = int(asked.pop("room"))
    entry = catalogue.lookup(asked.pop("workload"))
    request = entry.request(**asked)
    if request.mode in entry.data_dependent:
        return ""
    try:
        fit.check(entry, request, room)
    except fit.DoesNotFit as error:
        return str(error)
    return ""


def main() -> int:
    """Answer the questions on stdin."""
    json.dump([answer(question) for question in json.load(sys.stdin)], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
