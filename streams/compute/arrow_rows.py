"""Rows in messages, which another process wrote: bounded and sound, in the columns expected.

They are checked as chunks are, by the same functions (`schemas.stream`, `schemas.chunk`): what
they decode to is added up before any of it is decoded, each batch is validated in full, and
types are compared in the one form that is independent of the writer.
"""

from collections.abc import Sequence

import pyarrow as pa

from schemas import chunk, stream
from schemas.relabelled import relabelled
from streams.errors import Corrupt
from streams.storage.write.arrow_types import TypeMismatch
from streams.storage.write.union_structs import check_unions
from streams.trace.kernel.kernel import arrow_schema, data_schema
from streams.trace.updates import flatten

MOST_BYTES = 64 << 20
"""Bytes of an answer when decoded; of one that is not compressed, more than a record holds."""

MOST_ROWS = 8 << 20
"""Rows of an answer: a row may take a bit, and more once it is read."""


def key_rows(body: bytes, types: Sequence[str]) -> pa.RecordBatch:
    """Return keys of these DuckDB types as columns c0 .. cn. Errors: as `answered_rows`."""
    return _typed(_opened(body), types, data_schema(types))


def answered_rows(body: bytes, count: int, types: Sequence[str]) -> pa.RecordBatch:
    """Return the rows of an answer as columns c0 .. cn of these DuckDB types.

    Errors: Corrupt if it is no sound Arrow stream, is too large, has columns of other names or
    types, or another number of rows than it says.
    """
    return _answered(body, count, types, data_schema(types))


def answered_updates(body: bytes, count: int, types: Sequence[str]) -> pa.RecordBatch:
    """Return the same with time and diff behind the columns; without rows there are no bytes.

    Errors: as `answered_rows`; Corrupt also for NULL as a time or diff.
    """
    schema = arrow_schema(types)
    if not body and not count:
        return flatten([], schema)
    updates = _answered(body, count, types, schema)
    if updates.column("time").null_count or updates.column("diff").null_count:
        raise Corrupt("expected no NULL in time and diff, actual one or more")
    return updates


def _answered(
    body: bytes, count: int, types: Sequence[str], schema: pa.Schema
) -> pa.RecordBatch:
    decoded = _opened(body)
    if decoded.schema.names != schema.names:
        raise _other_columns(schema, decoded.schema)
    rows = _typed(decoded, types, schema)
    if rows.num_rows != count:
        raise Corrupt(f"expected {count} rows, as it says, actual {rows.num_rows}")
    return rows


def _opened(body: bytes) -> stream.Stream:
    decoded = stream.read(body, MOST_BYTES)
    rows = sum(batch.num_rows for batch in decoded.batches)
    if rows > MOST_ROWS:
        raise stream.TooMuch("rows", MOST_ROWS, rows)
    return decoded


def _typed(decoded: stream.Stream, types: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Return the batches as one of a schema. Errors: Corrupt for columns of other types."""
    kinds = [chunk.uniform(kind) for kind in schema.types]
    if [chunk.uniform(kind) for kind in decoded.schema.types] != kinds:
        raise _other_columns(schema, decoded.schema)
    parts = [
        pa.RecordBatch.from_arrays(list(map(relabelled, batch.columns, kinds)), schema.names)
        for batch in decoded.batches
    ]
    rows = flatten(parts, schema)
    try:
        for kind, column in zip(types, rows.columns, strict=False):
            check_unions(pa.chunked_array([column]), kind)
    except TypeMismatch as cause:
        raise Corrupt(f"expected rows of {', '.join(types)}: {cause}") from cause
    return rows


def _other_columns(expected: pa.Schema, actual: pa.Schema) -> Corrupt:
    wanted, came = chunk.names_text(expected), chunk.names_text(actual)
    return Corrupt(f"expected columns {wanted}, actual {came}")
