"""Dates, times and timestamps as ISO 8601 text of fixed width, a column at a time.

The texts are those of Python's `isoformat`, with microseconds. Values that Python does not
hold (years that are not 1 to 9999, infinities, the time 24:00:00) have no such text.
"""

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.pieces import Bytes

Longs = NDArray[np.int64]

_EPOCH = date(1970, 1, 1)
_FIRST_DAY = (date.min - _EPOCH).days
_LAST_DAY = (date.max - _EPOCH).days
_SECONDS = 86_400
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}
"""How many of a unit are a second."""

_DIGITS = np.frombuffer("".join(f"{n:04}" for n in range(10_000)).encode(), np.uint8)
_DIGITS = _DIGITS.reshape(-1, 4)
"""The four digits of each number below 10,000."""


def has_iso_texts(array: pa.Array) -> bool:
    """Whether the type is one of dates or times, and each value has a text."""
    limits = _limits(array.type)
    return limits is not None and _is_within(_longs(array), *limits)


def iso_texts(array: pa.Array) -> Bytes:
    """A row of characters for each value, all of one width; NULL's is any.

    Each value has a text.
    """
    kind, values = array.type, _longs(array)
    if pa.types.is_date32(kind):
        return _dates(values)
    if pa.types.is_time64(kind):
        return _times(values, _UNITS[kind.unit])
    return _timestamps(values, _UNITS[kind.unit], is_utc=bool(kind.tz))


def _limits(kind: pa.DataType) -> tuple[int, int] | None:
    """The least and the greatest number that has a text; None if none of the type has."""
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _LAST_DAY
    if pa.types.is_time64(kind) and kind.unit in _UNITS:
        return 0, _SECONDS * _UNITS[kind.unit] - 1
    if pa.types.is_timestamp(kind) and kind.unit in _UNITS and kind.tz in {None, "UTC"}:
        a_day = _SECONDS * _UNITS[kind.unit]
        return _FIRST_DAY * a_day, (_LAST_DAY + 1) * a_day - 1
    return None


def _longs(array: pa.Array) -> Longs:
    stored = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
    values: Longs = pc.fill_null(array.view(stored), 0).to_numpy().astype(np.int64)
    return values


def _is_within(values: Longs, least: int, most: int) -> bool:
    return not len(values) or (int(values.min()) >= least and int(values.max()) <= most)


def _timestamps(values: Longs, units: int, *, is_utc: bool) -> Bytes:
    days, rest = np.divmod(values, _SECONDS * units)
    between = _letters("T", len(values))
    zone = [_letters("+00:00", len(values))] if is_utc else []
    return np.concatenate([_dates(days), between, _times(rest, units), *zone], axis=1)


def _dates(days: Longs) -> Bytes:
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]")
    day = (dates - months.astype("M8[D]")).astype(np.int64) + 1
    year, month = np.divmod(months.astype(np.int64), 12)
    dash = _letters("-", len(days))
    parts = [_DIGITS[year + 1970], dash, _two(month + 1), dash, _two(day)]
    return np.concatenate(parts, axis=1)


def _times(values: Longs, units: int) -> Bytes:
    seconds, part = np.divmod(values, units)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    high, low = np.divmod(part * (_UNITS["us"] // units), 1_000)
    colon, dot = _letters(":", len(values)), _letters(".", len(values))
    clock = [_two(hour), colon, _two(minute), colon, _two(second), dot]
    return np.concatenate([*clock, _DIGITS[high][:, 1:], _DIGITS[low][:, 1:]], axis=1)


def _two(values: Longs) -> Bytes:
    return _DIGITS[values][:, 2:]


def _letters(text: str, rows: int) -> Bytes:
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (rows, len(text)))
