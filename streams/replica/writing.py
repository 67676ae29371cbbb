"""Output chunks, written by the tasks that computed them; the driver gets references only.

Chunks are of no effect until an Append links them, so a task that is retried, or whose
micro-batch is given up, leaves orphans and nothing worse.
"""

from collections.abc import Sequence

from schemas import chunk
from streams.kafka.chunks import KafkaChunks
from streams.kafka.log import ChunkRef, ChunkWrite
from streams.operators.engine import Emitted
from streams.replica.descriptor import Output
from streams.trace.kernel import arrow_schema, empty_table


def bodies(
    emitted: Emitted, output: Output | None, types: Sequence[str]
) -> list[tuple[bytes, int]]:
    """The chunks of what a dataflow put out, with their row counts; none for nothing.

    `types` are the DuckDB types of the output's columns.
    """
    if output is None or (emitted.output is None and emitted.errors is None):
        return []
    updates = emitted.output
    if updates is None:
        updates = empty_table(arrow_schema(types))
    return list(chunk.encode(updates, output.names, emitted.errors))


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
