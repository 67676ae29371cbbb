"""Converts values of the protocol to those that databases take, a column at a time."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connectors.connector import Refused
from connectors.sql.columns import Kind, TableColumn
from schemas.flow_columns import Elements

Convert = Callable[[Elements], pa.Array]


def arrays_of(
    columns: Sequence[TableColumn], data: Sequence[Elements], converts: Mapping[Kind, Convert]
) -> list[pa.Array]:
    """Each column as one array; null stays null.

    Errors: Refused, which names the column of a value that is not of its kind.
    """
    return [
        converted(column, elements, converts[column.kind])
        for column, elements in zip(columns, data, strict=True)
    ]


def converted(column: TableColumn, elements: Elements, convert: Convert) -> pa.Array:
    """One column."""
    try:
        return convert(elements)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise Refused(f"column {column.name}: {error}") from error


def rows_of(arrays: Sequence[pa.Array]) -> list[tuple[object, ...]]:
    """Rows of Python's values, for databases that take no columns."""
    objects = [Elements(len(array), (array,)).objects() for array in arrays]
    return list(zip(*objects, strict=True))


def text(elements: Elements) -> pa.Array:
    """Text; other values as JSON has them."""
    return _united([_text(part) for part in elements.parts], elements, pa.string())


def json_text(elements: Elements) -> pa.Array:
    """The JSON of a value; an object, list or document is JSON already."""
    parts = [
        _dumped(part) if part.type == pa.string() else _text(part) for part in elements.parts
    ]
    return _united(parts, elements, pa.string())


def number(elements: Elements) -> pa.Array:
    """Doubles."""
    taken = [pa.int64(), pa.uint64(), pa.float64()]
    _expect(elements, taken, "a number")
    parts = [part.cast(pa.float64(), safe=False) for part in elements.parts]
    return _united(parts, elements, pa.float64())


def binary(elements: Elements) -> pa.Array:
    """The bytes that text in base64 stands for."""
    _expect(elements, [pa.string()], "text in base64")
    texts = elements.part(pa.string()).to_pylist()
    decoded = [
        None if text is None else base64.b64decode(text, validate=True) for text in texts
    ]
    return pa.array(decoded, pa.binary())


def whole(elements: Elements) -> pa.Array:
    """Integers that 64 bits with a sign hold."""
    _expect(elements, [pa.int64()], "an integer of at most 63 bits and a sign")
    return elements.part(pa.int64())


def boolean(elements: Elements) -> pa.Array:
    """True or false."""
    _expect(elements, [pa.bool_()], "true or false")
    return elements.part(pa.bool_())


def instant(elements: Elements) -> pa.Array:
    """Text of a time, to microseconds: databases would round the rest."""
    times = text(elements)
    finer = pc.match_substring_regex(times, r"\.\d{6}\d*[1-9]")
    if pc.any(finer).as_py():
        actual = times.filter(finer)[0].as_py()
        raise ValueError(f"expected at most six digits of a second, actual {actual!r}")
    return times


def offset_time(elements: Elements) -> pa.Array:
    """A time of day whose offset is in digits: some databases do not know Z."""
    return pc.replace_substring_regex(text(elements), r"[Zz]\z", "+00")


def _expect(elements: Elements, types: Sequence[pa.DataType], what: str) -> None:
    for part in elements.parts:
        if part.type not in types and part.null_count < len(part):
            actual = part.drop_null()[0].as_py()
            raise ValueError(f"expected {what}, actual {actual!r}")


def _united(parts: Sequence[pa.Array], elements: Elements, type_: pa.DataType) -> pa.Array:
    """Join parts that do not overlap into one array."""
    if not parts:
        return pa.nulls(elements.length, type_)
    return parts[0] if len(parts) == 1 else pc.coalesce(*parts)


def _text(part: pa.Array) -> pa.Array:
    """Bytes are JSON; booleans and integers are written by Arrow as JSON writes them."""
    return _dumped(part) if part.type == pa.float64() else part.cast(pa.string())


def _dumped(part: pa.Array) -> pa.Array:
    """Doubles and text where others stand beside them: few columns have them."""
    texts = [None if value is None else json.dumps(value) for value in part.to_pylist()]
    return pa.array(texts, pa.string())
