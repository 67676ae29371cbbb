"""Which Arrow types clients may send for a column, and how they are cast to the column's type.

Each DuckDB type travels in one Arrow type (`kernel.arrow_type`). Other Arrow types of the same
values are accepted if the cast is lossless for every value: text with 64-bit offsets, string
views or dictionaries, other integer and float widths, other time units. Nullability and time
zones are labels only (`schemas.chunk.uniform`). `schemas/CLIENTS.md` has the table; a test
compares the two.

A dictionary value that many rows share grows when it is repeated for each row, so the size of
the result is computed before dictionaries and views are unpacked.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from schemas.chunk import uniform
from schemas.relabelled import relabelled
from streams.errors import SlackwaterError
from streams.storage.limits import LARGEST_ROWS, check_size

Test = Callable[[pa.DataType], bool]

HUGEINT, UHUGEINT = "hugeint", "uhugeint"
_VIEW_BYTES = 16


class TypeMismatch(SlackwaterError):
    """A column does not have the expected type, or one of its values does not fit that type."""


def cast_losslessly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the column cast to the type `kind`, without loss.

    Errors: Misfit; TooLarge when it would be too large.
    """
    if column.type == kind:
        return column
    if not is_accepted(column.type, kind):
        raise TypeMismatch(
            f"expected {distinguishing_text(kind, column.type)}, actual {column.type}"
        )
    try:
        return pa.chunked_array([_cast(chunk, kind) for chunk in column.chunks], kind)
    except pa.ArrowException as cause:
        raise TypeMismatch(f"expected {kind}, actual {column.type}: {cause}") from cause


def is_accepted(actual: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a column of type `actual` is accepted for a column of type `kind`."""
    if uniform(actual) == uniform(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return actual == kind.storage_type or _stands_for(actual, kind)
    if pa.types.is_dictionary(actual):
        return not actual.value_type.num_fields and is_accepted(actual.value_type, kind)
    if pa.types.is_nested(kind):
        return _is_accepted_nested(actual, kind)
    return any(is_own(kind) and is_others(actual) for is_own, is_others in CASTS)


def _is_int(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    is_variable = types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(is_variable or types.is_fixed_size_binary(kind) or types.is_binary(kind))


def _is_local(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is None


def _is_zoned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


CASTS: tuple[tuple[Test, Test], ...] = (
    (_is_int, _is_int),
    (pa.types.is_boolean, lambda kind: kind == pa.bool8()),
    (pa.types.is_floating, lambda kind: kind in {pa.float16(), pa.float32()}),
    (pa.types.is_decimal, pa.types.is_decimal),
    (_is_text, _is_text),
    (_is_bytes, _is_bytes),
    (pa.types.is_date32, pa.types.is_date64),
    (pa.types.is_time64, pa.types.is_time),
    (_is_local, _is_local),
    (_is_zoned, _is_zoned),
)
"""Accepted types: pairs of tests, of the column's own type and of the type that was sent."""


def _stands_for(actual: pa.DataType, kind: pa.BaseExtensionType) -> bool:
    """Whether a plain Arrow type is accepted for one of DuckDB's own types."""
    if isinstance(kind, pa.JsonType):
        return is_accepted(actual, kind.storage_type)
    if opaque(kind) in {HUGEINT, UHUGEINT}:
        is_whole = pa.types.is_decimal(actual) and actual.scale == 0
        return bool(is_whole) or _is_int(actual)
    return False


def opaque(kind: pa.DataType) -> str:
    """DuckDB's name of a type that Arrow does not have; empty for any other type."""
    return str(kind.type_name) if isinstance(kind, pa.OpaqueType) else ""


def _is_accepted_nested(actual: pa.DataType, kind: pa.DataType) -> bool:
    """Whether the nested types are accepted; types that need more than a cast are not."""
    is_list = pa.types.is_list(kind) and (
        pa.types.is_list(actual) or pa.types.is_large_list(actual)
    )
    is_struct = (
        pa.types.is_struct(kind)
        and pa.types.is_struct(actual)
        and [field.name for field in kind.fields] == [field.name for field in actual.fields]
    )
    if not is_list and not is_struct:
        return False
    pairs = [
        (actual.field(index).type, kind.field(index).type) for index in range(kind.num_fields)
    ]
    return all(
        uniform(actual) == uniform(own) or _is_simple(actual, own) for actual, own in pairs
    )


def _is_simple(actual: pa.DataType, kind: pa.DataType) -> bool:
    types = pa.types
    is_shared = types.is_dictionary(actual) or types.is_string_view(actual)
    is_shared = is_shared or types.is_binary_view(actual)
    is_own = isinstance(kind, pa.BaseExtensionType) or isinstance(actual, pa.BaseExtensionType)
    return not is_shared and not is_own and is_accepted(actual, kind)


def _cast(chunk: pa.Array, kind: pa.DataType) -> pa.Array:
    """Errors: ArrowException where a value does not fit; TooLarge."""
    if uniform(chunk.type) == uniform(kind):
        return relabelled(chunk, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _storage(chunk, kind))
    check_size("bytes of updates", LARGEST_ROWS, unpacked_bytes(chunk))
    if pa.types.is_dictionary(chunk.type):
        return _cast(chunk.dictionary_decode(), kind)
    if isinstance(chunk, pa.ExtensionArray):
        chunk = chunk.storage
    converted = chunk.cast(kind)
    converted.validate(full=True)
    return converted


def _storage(chunk: pa.Array, kind: pa.BaseExtensionType) -> pa.Array:
    if chunk.type == kind.storage_type:
        return chunk
    if opaque(kind) not in {HUGEINT, UHUGEINT}:
        return _cast(chunk, kind.storage_type)
    # a decimal without a scale has the very bytes of a HUGEINT
    whole = chunk.cast(pa.decimal128(38, 0))
    if opaque(kind) == UHUGEINT and (pc.min(whole).as_py() or 0) < 0:
        raise pa.ArrowInvalid("a negative value of an unsigned type")
    return whole.view(kind.storage_type)


def unpacked_bytes(chunk: pa.Array) -> int:
    """A lower bound on the bytes of an array when each row has a value of its own."""
    kind = chunk.type
    if pa.types.is_dictionary(kind):
        lengths = _lengths(chunk.dictionary)
        return int(pc.sum(lengths.take(chunk.indices)).as_py() or 0)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return int(pc.sum(_lengths(chunk)).as_py() or 0)
    return int(chunk.nbytes)


def _lengths(values: pa.Array) -> pa.Array:
    """Return the bytes of each value."""
    kind = values.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # the first four bytes of a view are the length of its value, undefined for NULL
        views = pa.Array.from_buffers(
            pa.binary(_VIEW_BYTES), len(values), [None, values.buffers()[1]], 0, values.offset
        )
        first = pc.binary_slice(views, 0, 4).cast(pa.binary(4)).view(pa.int32())
        return pc.if_else(values.is_valid(), first, 0).cast(pa.int64())
    if _is_text(kind) or _is_bytes(kind):
        return pc.binary_length(values).cast(pa.int64())
    width = max(1, values.nbytes // max(1, len(values)))
    return pa.repeat(pa.scalar(width, pa.int64()), len(values))


def distinguishing_text(kind: pa.DataType, other: pa.DataType) -> str:
    """Format the type so that it differs visibly from the other one."""
    if str(kind) != str(other):
        return str(kind)
    return f"{kind} as DuckDB has it, without other names or metadata inside"
