"""Rows as JSON texts, one object each, a whole table at a time."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def texts(table: pa.Table) -> pa.Array:
    """Each row as one JSON object.

    Shape: integers, floats, texts and timestamps without NULLs; a timestamp is the text
    `YYYY-MM-DDTHH:MM:SS.fff`. The texts hold no character that JSON would escape.
    """
    parts: list[object] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        before = f"{',' if parts else '{'}{json.dumps(name)}:"
        parts += [before, _values(column.combine_chunks())]
    return pc.binary_join_element_wise(*parts, "}", "")


def _values(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return _quoted(pc.strftime(column, "%Y-%m-%dT%H:%M:%S"))
    if not pa.types.is_string(column.type):
        return pc.cast(column, pa.string())
    data = np.frombuffer(column.buffers()[2], np.uint8)
    assert not ((data < ord(" ")) | (data == ord('"')) | (data == ord("\\"))).any()
    return _quoted(column)


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column, '"', "")
