"""Writes output chunks in the tasks that computed them; the driver gets only references.

Chunks have no effect until an Append links them, so a task that is retried, or whose
micro-batch is given up, leaves only orphans.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas import chunk
from streams.kafka.log import ChunkRef, Chunks, ChunkWrite
from streams.operators.engine import EngineOutput
from streams.replica.tasks.descriptor import Output
from streams.storage.log.column_stats import with_ranges
from streams.trace.kernel.arrow import empty_table
from streams.trace.kernel.kernel import arrow_schema


@dataclass(frozen=True, slots=True)
class Encoded:
    """Updates of one dataflow as the bodies of chunks, with the row count of each.

    Shape: `updates` has c0 .. cn, time, diff; the bodies hold its rows in order, then errors.
    """

    output: Output
    updates: pa.Table
    bodies: tuple[tuple[bytes, int], ...]


def encode_rows(updates: pa.Table, output: Output | None) -> Encoded | None:
    """Encode updates without errors as chunks; None if there is nothing to write."""
    new = None if output is None else _from(updates, output)
    if output is None or new is None or not new.num_rows:
        return None
    return Encoded(output, new, tuple(chunk.encode(new, output.names, None)))


def encode(
    emitted: EngineOutput, output: Output | None, types: Sequence[str]
) -> Encoded | None:
    """Encode the output of a dataflow as chunks; None if there is nothing to write.

    `types` are the DuckDB types of the output's columns.
    """
    if output is None:
        return None
    updates, errors = _from(emitted.output, output), _from(emitted.errors, output)
    if updates is None and errors is None:
        return None
    if updates is None:
        updates = empty_table(arrow_schema(types))
    bodies = tuple(chunk.encode(updates, output.names, errors))
    return Encoded(output, updates, bodies) if bodies else None


def _from(updates: pa.Table | None, output: Output) -> pa.Table | None:
    """Return the updates that are not in the shard yet; None if there are none.

    A step that begins before the shard's upper, after a restart or behind another replica,
    repeats existing updates. Only its state is needed then.
    """
    if updates is None:
        return None
    new = pc.greater_equal(updates.column("time"), output.floor)
    rows = updates if pc.all(new).as_py() else updates.filter(new)
    return rows if rows.num_rows or rows is updates else None


def write(chunks: Chunks, wanted: Sequence[Encoded | None]) -> list[tuple[ChunkRef, ...]]:
    """Write the chunks of many dataflows with one flush.

    Returns the references of each, in the order given, with the ranges of larger chunks.
    """
    some = [encoded for encoded in wanted if encoded is not None]
    writes = [
        ChunkWrite(encoded.output.topic, encoded.bodies, encoded.output.headers)
        for encoded in some
    ]
    written = iter(chunks.write_all(writes) if some else [])
    return [
        () if encoded is None else with_ranges(next(written), encoded.updates)
        for encoded in wanted
    ]
