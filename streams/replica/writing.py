"""Output chunks, written by the tasks that computed them; the driver gets references only.

Chunks are of no effect until an Append links them, so a task that is retried, or whose
micro-batch is given up, leaves orphans and nothing worse.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas import chunk
from streams.kafka.chunks import KafkaChunks
from streams.kafka.log import ChunkRef, ChunkWrite
from streams.operators.engine import Emitted
from streams.replica.descriptor import Output
from streams.trace.arrow import empty_table
from streams.trace.kernel import arrow_schema


def bodies(
    emitted: Emitted, output: Output | None, types: Sequence[str]
) -> list[tuple[bytes, int]]:
    """The chunks of what a dataflow put out, with their row counts; none for nothing.

    `types` are the DuckDB types of the output's columns.
    """
    if output is None:
        return []
    updates, errors = _from(emitted.output, output), _from(emitted.errors, output)
    if updates is None and errors is None:
        return []
    if updates is None:
        updates = empty_table(arrow_schema(types))
    return list(chunk.encode(updates, output.names, errors))


def _from(updates: pa.Table | None, output: Output) -> pa.Table | None:
    """What of some updates is not in the shard yet; None when that is nothing.

    A step that begins before the shard's upper, after a restart or behind another replica,
    makes again what is there. Only its state is wanted of that.
    """
    if updates is None:
        return None
    new = pc.greater_equal(updates.column("time"), output.floor)
    kept = updates if pc.all(new).as_py() else updates.filter(new)
    return kept if kept.num_rows or kept is updates else None


def write(
    chunks: KafkaChunks, wanted: Sequence[tuple[Output | None, list[tuple[bytes, int]]]]
) -> list[tuple[ChunkRef, ...]]:
    """Write the chunks of many dataflows in one flush; their references, in the order given."""
    some = [
        ChunkWrite(output.topic, found, output.headers)
        for output, found in wanted
        if output is not None and found
    ]
    written = iter(chunks.write_all(some) if some else [])
    return [next(written) if output and found else () for output, found in wanted]
