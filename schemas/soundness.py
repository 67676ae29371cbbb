"""Full validation of Arrow arrays that others wrote, with TIME up to 24:00:00.

PostgreSQL and DuckDB have a time 24:00:00 at the end of the day, so views have it too. Arrow's
validation refuses it, and says of no batch whether that alone is wrong with it: such a batch is
validated again with its times as integers, whose bounds are looked at here.
"""

import pyarrow as pa
import pyarrow.compute as pc

from schemas.relabelled import relabelled

_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def validate(batch: pa.RecordBatch) -> None:
    """Errors: ArrowInvalid when an array is not sound, or a time is none of a day."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        kinds = [_integers(field.type) for field in batch.schema]
        if kinds == batch.schema.types:
            raise
        for column, kind in zip(batch.columns, kinds, strict=True):
            numbers = relabelled(column, kind)
            numbers.validate(full=True)
            _check_times(numbers, column.type)


def _integers(kind: pa.DataType) -> pa.DataType:
    """The type with integers for times."""
    if pa.types.is_time(kind):
        return pa.int64() if pa.types.is_time64(kind) else pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([_integers_of(field) for field in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(_integers_of(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_integers_of(kind.value_field), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(_integers_of(kind.key_field), _integers_of(kind.item_field))
    return kind


def _integers_of(field: pa.Field) -> pa.Field:
    return field.with_type(_integers(field.type))


def _check_times(numbers: pa.Array, kind: pa.DataType) -> None:
    """Errors: ArrowInvalid when one of the numbers that stand for times is none of a day."""
    if pa.types.is_time(kind):
        ends = pc.min_max(numbers).as_py()
        if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] <= _DAY[kind.unit]:
            raise pa.ArrowInvalid(f"expected times of a day, actual {ends} {kind.unit}")
    elif pa.types.is_struct(kind):
        for child, field in zip(numbers.flatten(), kind.fields, strict=True):
            _check_times(child, field.type)
    elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        _check_times(numbers.flatten(), kind.value_type)
    elif pa.types.is_map(kind):
        _check_times(numbers.keys, kind.key_type)
        _check_times(numbers.items, kind.item_type)
