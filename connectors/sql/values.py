"""Values of the protocol as databases take them, a column at a time."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence

from connectors.sql.columns import Column, Kind, Row
from schemas.flow_tuple import Element
from streams.errors import InvalidUsage

Convert = Callable[[Element], object]


def rows_of(
    columns: Sequence[Column], rows: Sequence[Row], converts: Mapping[Kind, Convert]
) -> list[tuple[object, ...]]:
    """Rows with the values of each column converted; null stays null.

    Errors: InvalidUsage, which names the column of a value that is not of its kind.
    """
    if not rows:
        return []
    values = zip(*rows, strict=True)
    converted = [
        convert_all(column, each, converts.get(column.kind))
        for column, each in zip(columns, values, strict=True)
    ]
    return list(zip(*converted, strict=True))


def convert_all(
    column: Column, values: Sequence[Element], convert: Convert | None
) -> Sequence[object]:
    """One column."""
    if convert is None:
        return values
    try:
        return [None if value is None else convert(value) for value in values]
    except (ValueError, TypeError) as error:
        raise InvalidUsage(f"column {column.name}: {error}") from error


def text(value: Element) -> str:
    """Text; other values as JSON has them."""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else json.dumps(value)


def json_text(value: Element) -> str:
    """The JSON of a value; an object, list or document is JSON already."""
    return value.decode() if isinstance(value, bytes) else json.dumps(value)


def number(value: Element) -> float:
    """A double."""
    if isinstance(value, int | float):
        return float(value)
    raise ValueError(f"expected a number, actual {value!r}")


def binary(value: Element) -> bytes:
    """The bytes that text in base64 stands for."""
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError(f"expected text in base64, actual {value!r}")


def whole(value: Element) -> int:
    """An integer."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"expected a whole number, actual {value!r}")


def boolean(value: Element) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, actual {value!r}")


def offset_time(value: Element) -> str:
    """A time of day whose offset is in digits: some databases do not know Z."""
    written = text(value)
    return written[:-1] + "+00" if written.endswith(("Z", "z")) else written
