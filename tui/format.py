"""How a value is written for people: one way for the screen, the terminal table, Markdown, LaTeX and HTML.

Times have three significant digits in the unit that the header names, percentages one decimal, counts thousands
separators; what is not known is a dash. Exact values are for CSV, JSON and Parquet. Imports neither pandas nor rich.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from profilers.analysis.registry import Col, Table
from profilers.rules.names import visible
from profilers.rules.taxonomy import GROUPS

if TYPE_CHECKING:
    import pandas as pd

RIGHT = frozenset({"count", "us", "pct", "number", "ratio"})
"""Formats whose cells stand at the right of their column."""

MISSING = "–"
MS_FROM_US = 10_000.0
"""A column of times is written in milliseconds once its largest reaches this many microseconds."""

_ASCII = str.maketrans(
    {
        "–": "-",
        "—": "-",
        "−": "-",
        "µ": "u",
        "μ": "u",
        "×": "x",
        "Σ": "sum",
        "·": ".",
        "…": "...",
        "→": "->",
        "≈": "~",
        "≤": "<=",
        "≥": ">=",
        "±": "+-",
        "∞": "inf",
        "’": "'",
        "‘": "'",
        "“": '"',
        "”": '"',
    }
)


def ascii_text(text: str) -> str:
    """The text in ASCII alone: signs that we use by their usual spelling, anything else as its ``\\u`` escape."""
    if text.isascii():
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def numeric(column: Col) -> bool:
    """Whether the column's cells are numbers (and stand at the right)."""
    return column.format in RIGHT


def unit_for(values: Iterable[Any]) -> str:
    """``us`` or ``ms`` for a column of microseconds, by its largest magnitude (``us`` for a column without numbers)."""
    if hasattr(values, "to_numpy"):
        import numpy as np

        numbers = np.abs(np.asarray(values.to_numpy(), dtype=float))
        numbers = numbers[np.isfinite(numbers)]
        largest = float(numbers.max()) if numbers.size else 0.0
    else:
        largest = max((abs(float(v)) for v in values if v is not None and math.isfinite(v)), default=0.0)
    return "ms" if largest >= MS_FROM_US else "us"


def units_for(frame: pd.DataFrame, table: Table) -> dict[str, str]:
    """The unit of each column of times: its own, or one for all where the table asks for that."""
    times = [column.name for column in table.columns if column.format == "us" and column.name in frame.columns]
    units = {name: unit_for(frame[name]) for name in times}
    if table.one_unit and "ms" in units.values():
        return dict.fromkeys(times, "ms")
    return units


def header(column: Col, unit: str = "us", *, ascii: bool = False) -> str:
    """The column's title with its unit: ``time ms``, ``GEMM %``, ``device ×``. What a percentage is of: :func:`of`."""
    title = column.title
    if column.format == "us":
        title = f"{title} {'ms' if unit == 'ms' else 'µs'}"
    elif column.format == "pct" and "%" not in title:
        title = f"{title} %"
    elif column.format == "ratio" and not title.endswith((" x", "×")):
        title = f"{title} ×"
    return ascii_text(title) if ascii else title


def of(column: Col, *, ascii: bool = False) -> str:
    """What the column's percentage is of, or '' where the title already says so or there is nothing to say."""
    what = column.of
    if not what or what.removeprefix("of ") in column.title:
        return ""
    return ascii_text(what) if ascii else what


def significant(value: float) -> str:
    """Three significant digits, whole digits never rounded away: 1,234 / 41.0 / 0.00213 / 4.10e-07."""
    size = abs(value)
    if 0.9995 <= size < 1e15:  # most cells, in a third of the time that the general way takes
        return f"{value:,.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
    mantissa, _, power = f"{value:.2e}".partition("e")
    exponent = int(power)
    if value == 0:
        return "0"
    if exponent < -5 or exponent >= 15:
        return f"{mantissa}e{power}"
    return f"{value:,.{max(0, 2 - exponent)}f}"


def amount(value: float) -> str:
    """A large count in three digits or two: 124 M, 22.7 M, 6.7 B."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            number = value / size
            return f"{number:.0f} {letter}" if number >= 100 else f"{number:.1f} {letter}"
    return f"{value:.0f}"


def moment(seconds: float) -> str:
    """A time of day (seconds since 1970) by this machine's clock, with its distance from UTC: others read it elsewhere."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def duration(seconds: float) -> str:
    """A length of time in at most two units: 14 s, 3 min, 3 min 05 s, 1 h 30 min, 4 days; what is below 0 is 0 s."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} days"


def _is_missing(value: Any) -> bool:
    return value is None or value != value  # NaN and NaT differ from themselves


def _text(value: Any) -> str:
    return visible(str(value))


def _group(value: Any) -> str:
    text = str(value)
    known = GROUPS.get(text)
    return f"{known.letter} {text}" if known else visible(text)


def _count(value: Any) -> str:
    number = float(value)
    if number == -1:  # tables write -1 where an integer is not known
        return MISSING
    if math.isinf(number):
        return _infinite(number)
    return f"{int(value):,}" if number == int(number) else f"{number:,.1f}"


def _pct(value: Any) -> str:
    number = float(value)
    if math.isinf(number):
        return _infinite(number)
    text = f"{number:.1f}"
    return "0.0" if text == "-0.0" else text


def _number(value: Any) -> str:
    number = float(value)
    return _infinite(number) if math.isinf(number) else significant(number)


def _milliseconds(value: Any) -> str:
    return _number(float(value) / 1000.0)


def _flag(value: Any) -> str:
    return "yes" if value else ""


def _infinite(number: float) -> str:
    return "∞" if number > 0 else "−∞"


_WRITERS: dict[str, Callable[[Any], str]] = {
    "text": _text,
    "name": _text,
    "group": _group,
    "class": _text,
    "state": _text,
    "count": _count,
    "us": _number,
    "pct": _pct,
    "number": _number,
    "ratio": _number,
    "flag": _flag,
}


@lru_cache(maxsize=128)
def writer(format: str, unit: str = "us", ascii: bool = False) -> Callable[[Any], str]:
    """The function that writes the cells of a column of this format: take it once for a column of many cells."""
    write = _milliseconds if format == "us" and unit == "ms" else _WRITERS.get(format, _text)

    def written(value: Any) -> str:
        return MISSING if _is_missing(value) else write(value)

    def written_ascii(value: Any) -> str:
        return "-" if _is_missing(value) else ascii_text(write(value))

    return written_ascii if ascii else written


def cell(value: Any, column: Col, *, unit: str = "us", ascii: bool = False) -> str:
    """One cell for people; ``unit`` (from :func:`unit_for`) is the one that times, in microseconds, are written in."""
    return writer(column.format, unit, ascii)(value)
