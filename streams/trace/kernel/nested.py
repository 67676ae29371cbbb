"""Copies nested Arrow columns into the form that DuckDB can import.

DuckDB refuses a struct below a struct that was cut out of a longer column, and Arrow cuts
wherever rows are sliced or the chunks of a table's columns end at different rows. So every
batch passes here on its way in: a nested column in which any array has an offset is copied
once, and all others, flat ones above all, are handed on as they are.
"""

from collections.abc import Iterator

import pyarrow as pa


def has_nested(schema: pa.Schema) -> bool:
    """Whether any column is nested."""
    return any(_is_nested(field.type) for field in schema)


def importable(rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """The same rows, without array offsets in nested columns.

    Cost: nothing for flat columns; one copy of each nested column in which there is an offset.
    """
    if not has_nested(rows.schema):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return _without_offsets(rows)
    return pa.Table.from_batches(map(_without_offsets, rows.to_batches()), rows.schema)


def _without_offsets(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = rows.columns
    cut = {index for index, column in enumerate(columns) if _is_cut(column)}
    if not cut:
        return rows
    whole = [
        pa.concat_arrays([column]) if index in cut else column
        for index, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(whole, schema=rows.schema)


def _is_cut(array: pa.Array) -> bool:
    return _is_nested(array.type) and _has_offset(array)


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _has_offset(array: pa.Array) -> bool:
    """Whether an array or any that it is made of begins within its buffers."""
    return array.offset > 0 or any(map(_has_offset, _children(array)))


def exact(array: pa.Array) -> pa.Array:
    """A nested array with the bits of its floats and intervals in their place.

    What is equal in DuckDB's eyes and not in its bits (-0.0 and 0.0, a month and 30 days)
    stays apart. A map becomes the list of its entries.
    """
    return _exact(pa.concat_arrays([array])) if _is_vague(array.type) else array


def _exact(array: pa.Array) -> pa.Array:
    """Like `exact`, for an array without offsets."""
    types, kind = pa.types, array.type
    if types.is_floating(kind):
        return array.view(pa.int64() if kind == pa.float64() else pa.int32())
    if types.is_interval(kind):
        return array.view(pa.binary(16))
    if not _is_vague(kind):
        return array
    buffers, size = array.buffers(), len(array)
    if types.is_struct(kind):
        children = [_exact(array.field(index)) for index in range(kind.num_fields)]
        struct = _struct([field.name for field in kind.fields], children)
        return pa.Array.from_buffers(struct, size, buffers[:1], children=children)
    if types.is_map(kind):
        children = [_exact(array.keys), _exact(array.items)]
        child = pa.StructArray.from_arrays(children, ["key", "value"])
    else:
        child = _exact(array.values)
    if types.is_fixed_size_list(kind):
        struct = pa.list_(child.type, kind.list_size)
        return pa.Array.from_buffers(struct, size, buffers[:1], children=[child])
    return pa.Array.from_buffers(pa.list_(child.type), size, buffers[:2], children=[child])


def _struct(names: list[str], children: list[pa.Array]) -> pa.DataType:
    return pa.struct([(n, child.type) for n, child in zip(names, children, strict=True)])


def _is_vague(kind: pa.DataType) -> bool:
    """Whether a type has floats or intervals in it."""
    if pa.types.is_floating(kind) or pa.types.is_interval(kind):
        return True
    return any(_is_vague(kind.field(index).type) for index in range(kind.num_fields))


def _children(array: pa.Array) -> Iterator[pa.Array]:
    types, kind = pa.types, array.type
    if types.is_struct(kind) or types.is_union(kind):
        yield from (array.field(index) for index in range(kind.num_fields))
    elif types.is_map(kind):
        yield from (array.keys, array.items)
    elif types.is_nested(kind):
        yield array.values
