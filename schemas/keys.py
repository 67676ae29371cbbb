"""Keys of output topics: tuples of column values as bytes that sort as the values do.

The encoding is FoundationDB's tuple layer, which has implementations in many languages. What
it has no element for is spelled out so that order is kept: a decimal as its unscaled integer
(a column has one scale), dates, times and timestamps as ISO 8601 text, an elapsed time as
microseconds, a list or struct as a nested tuple. A value without such a form comes as text: an
INTERVAL does, as DuckDB prints it (OUTPUT.md). `schemas.tuple_elements` is the same for whole
columns of most types.

Source: FoundationDB, "Tuple layer" specification; `fdb.tuple` needs no native library.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

from fdb import tuple as layer

Element = bytes | str | int | float | bool | UUID | tuple["Element", ...] | None

MICROSECOND = timedelta(microseconds=1)


def pack(values: Sequence[object]) -> bytes:
    """The key of a row, given the values of its key columns.

    Errors: TypeError for a value that no column of ours can have.
    """
    packed: bytes = layer.pack(tuple(element(value) for value in values))
    return packed


def unpack(key: bytes) -> tuple[Element, ...]:
    """The elements of a key, spelled out as `pack` does."""
    elements: tuple[Element, ...] = layer.unpack(key)
    return elements


def element(value: object) -> Element:
    """One value as an element of the tuple layer."""
    match value:
        case None | bool() | int() | float() | str() | bytes() | UUID():
            return value
        case Decimal():
            return unscaled(value)
        case datetime() | date() | time() | timedelta():
            return instant(value)
        case Mapping():
            return tuple(element(value_) for value_ in value.values())
        case list() | tuple():
            return tuple(element(value_) for value_ in value)
        case _:
            raise TypeError(f"key: expected a column's value, actual {type(value).__name__}")


def unscaled(value: Decimal) -> int:
    """The digits of a decimal as one integer: 1.50 is 150."""
    sign, digits, _ = value.as_tuple()
    magnitude = int("".join(map(str, digits)))
    return -magnitude if sign else magnitude


def instant(value: datetime | date | time | timedelta) -> str | int:
    """A date or time as text of fixed width, an elapsed time as microseconds."""
    match value:
        case datetime() | time():
            return value.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case timedelta():
            return value // MICROSECOND
