"""The task code of an ingestion: fetch exact ranges, decode, apply the envelope.

A `Resources` belongs to a worker process and is reused by its tasks: the connection to the
broker, DuckDB, and the decoders of every source that the worker has read. It holds no state: a
task returns the same result in any process, at any time, as long as the topic still holds the
range.
"""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from streams.compute.description import IngestionDescription
from streams.ids import Offset, Timestamp, Topic
from streams.plan.physical import Column
from streams.replica.ingest import metadata
from streams.replica.ingest.envelope import Envelope, IngestResult, Loaded
from streams.replica.ingest.event_times import FRESH, ReadMode
from streams.replica.ingest.ranges import Slice
from streams.trace.kernel.kernel import Kernel

MESSAGES = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


class TopicReader(Protocol):
    """Reads raw topics: `streams.kafka.client.raw.RawReader`, or a table in memory in tests."""

    def fetch_ranges(
        self,
        topic: Topic,
        ranges: Sequence[tuple[int, Offset, Offset]],
        *,
        more: Sequence[str] = (),
    ) -> pa.Table:
        """Return the records at offsets in [lo, hi) of each `(partition, lo, hi)`, in order.

        There are fewer records than offsets if there are gaps. Shape: `MESSAGES`, and `more`
        columns of `metadata.MORE`. Errors: Determinate when some can no longer be read.
        """


class Resources:
    """Resources that a worker process keeps for its ingestions."""

    def __init__(self, reader: TopicReader, kernel: Kernel) -> None:
        self.reader, self.kernel = reader, kernel
        self._envelopes: dict[tuple[IngestionDescription, tuple[Column, ...]], Envelope] = {}

    def envelope(self, source: IngestionDescription, columns: Sequence[Column]) -> Envelope:
        """Return the envelope of a source. Errors: InvalidUsage."""
        key = (source, tuple(columns))
        envelope = self._envelopes.get(key)
        if envelope is None:
            envelope = self._envelopes[key] = Envelope(source, columns, self.kernel)
        return envelope


def load(
    source: IngestionDescription,
    columns: Sequence[Column],
    slices: Sequence[Slice],
    time: Timestamp,
    resources: Resources,
    manner: ReadMode = FRESH,
) -> IngestResult:
    """Return the updates, errors and dead letters of the messages of these slices, at `time`.

    `manner` is for a source with a watermark.

    Errors: Determinate if the broker no longer has the range, or cannot be reached; Undecodable
    if the source stops at a message that cannot be decoded.
    """
    more = metadata.fetched(source)
    ranges = [(piece.partition, piece.lo, piece.hi) for piece in slices]
    messages = resources.reader.fetch_ranges(source.topic, ranges, more=more)
    return resources.envelope(source, columns).updates(messages, time, manner)


def replay(
    source: IngestionDescription,
    columns: Sequence[Column],
    history: tuple[pa.Table, pa.Table],
    resources: Resources,
) -> Loaded:
    """Return part of a source's own shard as messages of its topic (`Envelope.replay`)."""
    return resources.envelope(source, columns).replay(*history)
