"""Trace events as typed records: the fast decoder, and the forgiving one for events whose values have odd types."""

from __future__ import annotations

import operator
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

MISSING = "\0"
"""The name of an event that has none: NUL cannot begin a real one."""

EXACT_US = float(1 << 43)
"""Below this many microseconds a float64 tells nanoseconds apart (its steps are 2**-10 us)."""

_NO_RAW = Raw(b"")


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that are read; all others are skipped by the decoder without being built."""

    correlation: int = -1
    device: int = -1
    stream: int | str = -1
    registers: int | float = msgspec.field(default=-1, name="registers per thread")
    shared: int | float = msgspec.field(default=-1, name="shared memory")
    grid: Raw = _NO_RAW
    block: Raw = _NO_RAW
    size: int | float | str = msgspec.field(default=-1, name="bytes")
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    forward_thread: int = msgspec.field(default=0, name="Fwd thread id")
    dims: Raw = msgspec.field(default=_NO_RAW, name="Input Dims")
    old_dims: Raw = msgspec.field(default=_NO_RAW, name="Input dims")
    types: Raw = msgspec.field(default=_NO_RAW, name="Input type")
    values: Raw = msgspec.field(default=_NO_RAW, name="Concrete Inputs")


NO_ARGS = Args()


def _event(name: str, when: Any, missing: Any) -> Any:
    fields: list[Any] = [
        ("ph", str, ""),
        ("cat", str, ""),
        ("name", str, MISSING),
        ("pid", int | str, -1),
        ("tid", int | str, -1),
        ("ts", when, missing),
        ("dur", float, float("nan")),
        ("args", Args, NO_ARGS),
    ]
    return msgspec.defstruct(name, fields, gc=False)


# Whether an event's time is exact depends on how it is written. A float holds relative microseconds to the nanosecond
# and any integer of microseconds, but not epoch microseconds with decimals: those are read as decimals.
FLOAT, INTEGER, DECIMAL = (
    _event("FloatEvent", float, float("nan")),
    _event("IntegerEvent", int | None, None),
    _event("DecimalEvent", Decimal | None, None),
)
_WAYS = (FLOAT, INTEGER, DECIMAL)
_LISTS = {way: msgspec.json.Decoder(list[way]) for way in _WAYS}  # type: ignore[valid-type]
_RAW_LIST = msgspec.json.Decoder(list[Raw])
_RAW_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_DECIMAL_ONE = msgspec.json.Decoder(DECIMAL)
_TS = operator.attrgetter("ts")
_DIGITS = re.compile(r"-?\d+$")


class Decoder:
    """Turns the text of a list of events into records, and remembers which way of reading times fits the file."""

    def __init__(self) -> None:
        self._way = FLOAT
        self.odd = 0

    def whole(self, text: bytes) -> list[Any]:
        """All events of a JSON list, times exact.

        Raises ``msgspec.ValidationError`` where a value has an unexpected type, ``msgspec.DecodeError`` for bad JSON.
        """
        while True:
            try:
                events = _LISTS[self._way].decode(text)
            except msgspec.ValidationError:
                if self._way is not INTEGER:
                    raise
                self._way = DECIMAL
                continue
            if self._way is not FLOAT:
                return events
            times = np.fromiter(map(_TS, events), np.float64, len(events))
            if not np.any(np.abs(times) >= EXACT_US):
                return events
            self._way = INTEGER

    def loose(self, text: bytes) -> list[Any | None]:
        """The same for valid JSON with items of any type; ``None`` for an item that is no event."""
        return [self.one_or_none(bytes(raw)) for raw in _RAW_LIST.decode(text)]

    def one_or_none(self, text: bytes) -> Any | None:
        """One event, or None where the item is valid JSON but no object."""
        try:
            return _DECIMAL_ONE.decode(text)
        except msgspec.ValidationError:
            pass
        try:
            fields = _RAW_OBJECT.decode(text)
        except msgspec.ValidationError:
            return None
        self.odd += 1
        return _coerced(fields)

    def one(self, text: bytes) -> Any:
        """One event whose values may have odd types. Raises ``msgspec.MsgspecError`` where it cannot be read."""
        event = self.one_or_none(text)
        if event is None:
            raise msgspec.ValidationError("not an object")
        return event


def _coerced(fields: dict[str, Raw]) -> Any:
    """An event from values of any type: numbers written as texts are numbers, null is absent."""
    args: dict[str, Raw] = {}
    if "args" in fields:
        try:
            args = _RAW_OBJECT.decode(fields["args"])
        except msgspec.ValidationError:
            pass
    dur = _number(fields.get("dur"))
    return DECIMAL(
        ph=_text(fields.get("ph"), ""),
        cat=_text(fields.get("cat"), ""),
        name=_text(fields.get("name"), MISSING),
        pid=_identity(_value(fields.get("pid"))),
        tid=_identity(_value(fields.get("tid"))),
        ts=_number(fields.get("ts")),
        dur=float("nan" if dur is None else dur),
        args=Args(
            correlation=_integer(args.get("correlation")),
            device=_integer(args.get("device")),
            stream=_identity(_value(args.get("stream"))),
            registers=_integer(args.get("registers per thread")),
            shared=_integer(args.get("shared memory")),
            grid=args.get("grid", _NO_RAW),
            block=args.get("block", _NO_RAW),
            size=_integer(args.get("bytes")),
            sequence=_integer(args.get("Sequence number")),
            forward_thread=max(_integer(args.get("Fwd thread id")), 0),
            dims=args.get("Input Dims", _NO_RAW),
            old_dims=args.get("Input dims", _NO_RAW),
            types=args.get("Input type", _NO_RAW),
            values=args.get("Concrete Inputs", _NO_RAW),
        ),
    )


def _value(raw: Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def _text(raw: Raw | None, missing: str) -> str:
    value = _value(raw)
    if value is None:
        return missing
    return value if isinstance(value, str) else str(value)


def _identity(value: Any) -> int | str:
    if isinstance(value, str):
        return int(value) if _DIGITS.match(value) else value
    if isinstance(value, int):
        return int(value)
    return -1 if value is None else str(value)


def _number(raw: Raw | None) -> Decimal | None:
    """A number exactly as written, with or without quotes."""
    text = "" if raw is None else bytes(raw).decode("utf-8", "replace").strip('" ')
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _integer(raw: Raw | None) -> int:
    number = _number(raw)
    return -1 if number is None else int(number)


def nanoseconds(times: list[Any], scale: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """``ts`` values (of one kind: float, int or Decimal; NaN or None where missing) times ``scale`` as int64, and which
    are there and fit.

    Exact for integers, for decimals, and for floats below EXACT_US with up to three decimals.
    """
    if times and isinstance(times[0], float):
        return float_nanoseconds(np.array(times, np.float64), scale)
    limit = (1 << 62) // scale
    fits = np.fromiter((t is not None and -limit < t < limit for t in times), np.bool_, len(times))
    if times and isinstance(times[0], int) and fits.all():
        return np.array(times, np.int64) * scale, fits
    exact = [int((t * scale).to_integral_value()) if isinstance(t, Decimal) else t * scale for t in _kept(times, fits)]
    values = np.zeros(len(times), np.int64)
    values[fits] = exact
    return values, fits


def _kept(times: list[Any], fits: NDArray[np.bool_]) -> list[Any]:
    return times if fits.all() else [time for time, ok in zip(times, fits.tolist(), strict=True) if ok]


def float_nanoseconds(value: NDArray[np.float64], scale: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Floats times ``scale``, rounded to int64, and which fit (NaN does not).

    Whole and fraction are scaled apart, so that no digit is lost.
    """
    fits = np.abs(value) < float(1 << 62) / scale
    value = np.where(fits, value, 0.0)
    whole = np.floor(value)
    return whole.astype(np.int64) * scale + np.rint((value - whole) * scale).astype(np.int64), fits
