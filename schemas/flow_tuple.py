"""Keys and values of the materialization protocol: JSON values as packed tuples.

The encoding is FoundationDB's tuple layer; which JSON value becomes which element is the
protocol's, and differs from that of output topics (`schemas.keys`). Null, booleans and text are
themselves. A whole number is an integer if 64 bits hold it, signed or not, else a double. An
object or a list is its compact JSON text, keys sorted, as bytes.

So 1 and 1.0 are two keys, an integer past 64 bits loses digits, and integers sort before all
doubles. A producer that wants other numbers writes them as text.

Source: FoundationDB, "Tuple layer"; the JSON mapping of Estuary Flow, November 2021.
"""

import json
from collections.abc import Mapping, Sequence
from struct import error as StructError  # noqa: N812

from fdb import tuple as layer

from streams.errors import InvalidUsage

Element = bytes | str | int | float | bool | None

LEAST, MOST = -(1 << 63), (1 << 64) - 1


class MalformedTuple(InvalidUsage):
    """Bytes that are no packed tuple of the protocol; the text says why."""


def pack(values: Sequence[Element]) -> bytes:
    """One tuple. Errors: MalformedTuple for what has no element."""
    try:
        packed: bytes = layer.pack(tuple(values))
    except (TypeError, ValueError, OverflowError) as error:
        raise MalformedTuple(f"expected values of JSON, actual {values!r}: {error}") from error
    return packed


def unpack(packed: bytes) -> tuple[Element, ...]:
    """The elements of a tuple that another program packed.

    Errors: MalformedTuple if it is cut off, has an element that the protocol does not have, or
    is not what packing its elements gives.
    """
    try:
        elements: tuple[Element, ...] = layer.unpack(packed)
        again: bytes = layer.pack(elements)
    except (ValueError, TypeError, IndexError, StructError, RecursionError) as error:
        raise MalformedTuple(f"cannot unpack 0x{packed.hex()}: {error}") from error
    if again != packed:
        raise MalformedTuple(f"0x{packed.hex()} is cut off or not canonical")
    if not all(map(_plain, elements)):
        raise MalformedTuple(f"0x{packed.hex()} has an element that is not a JSON value")
    return elements


def _plain(value: Element) -> bool:
    if isinstance(value, int):
        return LEAST <= value <= MOST
    return value is None or isinstance(value, str | float | bytes)


def unpack_some(
    packed: Sequence[bytes], places: Sequence[int], width: int
) -> list[tuple[Element, ...]]:
    """The tuples at some places, one by one, of `width` elements each.

    Errors: MalformedTuple, which names the first tuple that is wrong by its place.
    `schemas.flow_columns.unpack_columns` is the same for all of them together.
    """
    rows: list[tuple[Element, ...]] = []
    try:
        rows.extend(unpack(packed[place]) for place in places)
    except MalformedTuple as error:
        raise MalformedTuple(f"tuple {places[len(rows)]}: {error}") from None
    lengths = list(map(len, rows))
    if lengths.count(width) != len(rows):
        wrong = next(index for index, length in enumerate(lengths) if length != width)
        raise MalformedTuple(
            f"tuple {places[wrong]}: expected {width} elements, actual {lengths[wrong]}"
        )
    return rows


def element(value: object) -> Element:
    """One JSON value, as `json.loads` gives it, as an element.

    Errors: MalformedTuple for what is no JSON value, or a number that no double can hold.
    """
    match value:
        case None | bool() | str() | float():
            return value
        case int() if LEAST <= value <= MOST:
            return value
        case int():
            try:
                return float(value)
            except OverflowError as error:
                raise MalformedTuple(
                    f"expected a number in the range of a double, actual {value}"
                ) from error
        case Mapping() | list() | tuple():
            return compact(value)
        case _:
            raise MalformedTuple(f"expected a JSON value, actual {type(value).__name__}")


def compact(value: object) -> bytes:
    """The text of a JSON value without spaces, keys of objects sorted.

    Errors: MalformedTuple for what is no JSON value, as NaN and text of half a code point.
    """
    try:
        text = json.dumps(
            value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise MalformedTuple(f"expected a JSON value: {error}") from error
