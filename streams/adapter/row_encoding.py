"""Encodes tables as rows of an answer: DuckDB writes the JSON, a whole table at a time.

A value that JSON can hold without loss is JSON: integers, finite floats, booleans, text, nested
values. Other values are DuckDB's text.
"""

import json
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streams.adapter.results import Rows
from streams.plan.physical import Column
from streams.trace.columns import int64
from streams.trace.kernel.kernel import Kernel, data_schema, round_trips, typed
from streams.trace.updates import flatten

CHANGE = (Column("slackwater_time", "BIGINT"), Column("slackwater_diff", "BIGINT"))
"""The columns of a change, before those of the data."""

BLOCK = 1000
"""Rows per piece of an answer."""

_JSON = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|BOOLEAN|VARCHAR|JSON|(STRUCT|MAP|UNION)\b.*|.*\[\d*\]",
    re.DOTALL,
)


def as_json(column: str, duckdb_type: str) -> str:
    """Return SQL for a column's values as JSON."""
    if _JSON.fullmatch(duckdb_type):
        return f"to_json({column})"
    if duckdb_type in {"FLOAT", "DOUBLE"}:
        text = f"to_json({column}::VARCHAR)"
        return f"CASE WHEN isfinite({column}) THEN to_json({column}) ELSE {text} END"
    return f"to_json({column}::VARCHAR)"


def rows(table: pa.Table, types: Sequence[str], kernel: Kernel) -> Iterator[Rows]:
    """Yield the table's rows in order. Shape: `types` are those of the columns, in order."""
    if not table.num_rows:
        return
    names = [f"c{index}" for index in range(len(types))]
    odd = [not round_trips(kind) for kind in types]
    if any(odd):
        table = pa.Table.from_batches([flatten([table], data_schema(types))])
    values = [
        typed(name, kind) if is_odd else name
        for name, kind, is_odd in zip(names, types, odd, strict=True)
    ]
    cells = [as_json(*column) for column in zip(values, types, strict=True)]
    texts = [f"coalesce({cell}::VARCHAR, 'null')" for cell in cells]
    sql = f"SELECT '[' || concat_ws(', ', {', '.join(texts)}) || ']' AS row FROM answer"
    named = table.rename_columns(names)
    for start in range(0, named.num_rows, BLOCK):
        block = kernel.query(sql, answer=named.slice(start, BLOCK))
        yield Rows(tuple(block["row"].to_pylist()))


def change_rows(
    columns: Sequence[Column], updates: pa.RecordBatch, kernel: Kernel
) -> Iterator[Rows]:
    """Yield updates as rows, in the order of their times: time, diff, then the data."""
    if not updates.num_rows:
        return
    order = pc.sort_indices(pa.array(int64(updates.column("time"))))
    table = pa.Table.from_batches([updates.take(order)])
    width = len(columns)
    shown = table.select([width, width + 1, *range(width)])
    yield from rows(shown, [column.type for column in (*CHANGE, *columns)], kernel)


def text_rows(values: Sequence[Sequence[str | int | None]]) -> Rows:
    """Encode rows of our own, for SHOW and EXPLAIN."""
    return Rows(tuple(json.dumps(value, ensure_ascii=False) for value in values))
