"""Exchange format between rounds: rows (bucket int32, blob binary), each blob one message.

A shuffle of rows costs Spark far more than a shuffle of a few blobs, so a task sends one blob
for each (dataflow, node, port, bucket). A blob is an Arrow IPC stream of one table; the
metadata of its schema has its kind:

    update     updates for one port of one node; `level` is the round that takes them
    wake       no updates, but a bucket that has to be advanced in round `level`
    report     what a task did for a dataflow: new runs, written chunks; for the driver
    failure    a dataflow failed in a task; for the driver

A stage consumes the updates and wakes of its own level and passes everything else through, so
that what the driver collects after the last round is all reports and failures.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from streams.ids import CollectionId
from streams.operators.context import Packet

Kind = Literal["update", "wake", "report", "failure"]

SCHEMA = pa.schema([("bucket", pa.int32()), ("blob", pa.binary())])
_EMPTY = pa.table({})
_HEAD = b"slackwater"
_OPTIONS = pa.ipc.IpcWriteOptions()
"""Arrow's default memory pool; without any, pyarrow reads the environment at every stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The kind and destination of a blob. `step` names the micro-batch's descriptor."""

    kind: Kind
    step: str
    dataflow: CollectionId
    bucket: int
    level: int = 0
    node: int = 0
    port: str = ""
    body: str = ""
    """The text of a report or failure: JSON, in the form of `streams.replica.tasks.report`."""


@dataclass(frozen=True, slots=True)
class Message:
    """A blob decoded; `table` is empty except for an update."""

    head: Head
    table: pa.Table

    def packet(self, base: int = 0) -> Packet:
        """Return an update as the engine's packet; `base` is the round of level 0."""
        head, table = self.head, self.table.replace_schema_metadata()
        return Packet(head.bucket, head.level - base, head.node, head.port, table)


def pack_packet(packet: Packet, step: str, dataflow: CollectionId, base: int = 0) -> bytes:
    """Encode a packet of a dataflow as an update: the opposite of `Message.packet`."""
    head = Head(
        kind="update", step=step, dataflow=dataflow, bucket=packet.bucket,
        level=base + packet.level, node=packet.node, port=packet.port,
    )  # fmt: skip
    return pack(head, packet.table)


def pack(head: Head, table: pa.Table = _EMPTY) -> bytes:
    """Encode a message."""
    facts = [
        head.kind, head.step, head.dataflow, head.bucket,
        head.level, head.node, head.port, head.body,
    ]  # fmt: skip
    schema = table.schema.with_metadata({_HEAD: json.dumps(facts).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    blob: bytes = sink.getvalue().to_pybytes()
    return blob


def unpack(blob: pa.Buffer) -> Message:
    """Decode a blob, without copying its columns."""
    with pa.ipc.open_stream(blob) as reader:
        table = reader.read_all()
    return Message(_head(table.schema.metadata), table)


def peek(blob: pa.Buffer) -> Head:
    """Decode only the head of a blob."""
    with pa.ipc.open_stream(blob) as reader:
        return _head(reader.schema.metadata)


def _head(metadata: Mapping[bytes, bytes]) -> Head:
    kind, step, dataflow, bucket, level, node, port, body = json.loads(metadata[_HEAD])
    return Head(
        kind=kind, step=step, dataflow=dataflow, bucket=bucket,
        level=level, node=node, port=port, body=body,
    )  # fmt: skip


def rows(blobs: Sequence[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
    """Return the record batch of blobs with their buckets, for Spark; none for none."""
    if blobs:
        buckets, bodies = zip(*blobs, strict=True)
        columns = [pa.array(buckets, pa.int32()), pa.array(bodies, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def blobs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield each blob of a stage's input with its bucket."""
    for batch in batches:
        for bucket, blob in zip(batch.column(0), batch.column(1), strict=True):
            yield bucket.as_py(), blob.as_buffer()
