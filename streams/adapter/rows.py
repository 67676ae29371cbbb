"""Tables as the rows of an answer: DuckDB writes the JSON, a whole table at a time.

A value is JSON where JSON can hold it without loss: integers, finite floats, booleans, text,
nested values. Everything else is DuckDB's text for it.
"""

import json
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from streams.adapter.results import Rows
from streams.trace.kernel import Kernel, data_schema, typed
from streams.trace.updates import flatten

BLOCK = 1000
"""Rows in one piece of an answer."""

_JSON = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|BOOLEAN|VARCHAR|JSON|(STRUCT|MAP|UNION)\b.*|.*\[\d*\]",
    re.DOTALL,
)


def as_json(column: str, duckdb_type: str) -> str:
    """SQL for a column's values as JSON."""
    if _JSON.fullmatch(duckdb_type):
        return f"to_json({column})"
    if duckdb_type in {"FLOAT", "DOUBLE"}:
        text = f"to_json({column}::VARCHAR)"
        return f"CASE WHEN isfinite({column}) THEN to_json({column}) ELSE {text} END"
    return f"to_json({column}::VARCHAR)"


def rows(table: pa.Table, types: Sequence[str], kernel: Kernel) -> Iterator[Rows]:
    """The table's rows, in its order. Shape: `types` are those of the columns, in order."""
    if not table.num_rows:
        return
    names = [f"c{index}" for index in range(len(types))]
    odd = [not kernel.round_trips(kind) for kind in types]
    if any(odd):
        table = pa.Table.from_batches([flatten([table], data_schema(types))])
    values = [
        typed(name, kind) if is_odd else name
        for name, kind, is_odd in zip(names, types, odd, strict=True)
    ]
    cells = [as_json(*each) for each in zip(values, types, strict=True)]
    texts = [f"coalesce({cell}::VARCHAR, 'null')" for cell in cells]
    sql = f"SELECT '[' || concat_ws(', ', {', '.join(texts)}) || ']' AS row FROM answer"
    named = table.rename_columns(names)
    for start in range(0, named.num_rows, BLOCK):
        block = kernel.query(sql, answer=named.slice(start, BLOCK))
        yield Rows(tuple(block["row"].to_pylist()))


def text_rows(values: Sequence[Sequence[str | int | None]]) -> Rows:
    """Rows of our own making, as SHOW and EXPLAIN have them."""
    return Rows(tuple(json.dumps(each, ensure_ascii=False) for each in values))
