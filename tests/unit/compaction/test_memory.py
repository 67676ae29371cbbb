"""A merge takes the memory of a bucket, and not of the collection."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from schemas import chunk
from streams.compaction import plan
from streams.compaction.consolidation import ERRORS, Part, split
from streams.compaction.merge_execution import Compacted, Worker
from streams.compaction.merge_task import Limits
from streams.ids import CapabilityId, Timestamp, Topic
from streams.kafka.log import ChunkRef, Chunks, ChunkWrite
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.log.events import Append, Downgrade
from streams.storage.log.events import Part as Part_
from streams.trace.kernel.kernel import Kernel
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, rows

HOLD = CapabilityId("u1.catalog")
BUDGET = Limits(bucket_bytes=1 << 19, fetch_bytes=1 << 17)
ROWS = 4_000


class Watched:
    """Chunks; the most that Arrow held at any call of them is remembered."""

    def __init__(self, inner: Chunks) -> None:
        self._inner = inner
        self._before = pa.total_allocated_bytes()
        self.most = 0

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        self._look()
        return self._inner.write(topic, bodies, headers)

    def write_all(self, chunks: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        return [self.write(*write) for write in chunks]

    def fetch(self, topic, refs):
        bodies = self._inner.fetch(topic, refs)
        self._look()
        return bodies

    def _look(self) -> None:
        self.most = max(self.most, pa.total_allocated_bytes() - self._before)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)


def fill(one: Shards, batches: int) -> None:
    """Rows that nothing shortens."""
    append_all(one, ([uuid.uuid4().hex for _ in range(ROWS)] for _ in range(batches)))


def fill_wide(one: Shards, batches: int) -> None:
    """As many bytes a batch, in rows of 4 KiB that are nearly alike."""
    wide = "x" * 4096
    append_all(one, ([f"{at}.{n}{wide}" for n in range(ROWS // 80)] for at in range(batches)))


def append_all(one: Shards, batches: Iterable[Sequence[str]]) -> None:
    """A collection of these batches, one a time, of which since is the last."""
    one.create("u1", U1, DESCRIPTION, Timestamp(0), read=HOLD)
    for at, texts in enumerate(batches):
        columns = {
            "c0": pa.array(texts),
            "c1": pa.array(range(len(texts)), pa.int32()),
            "time": pa.array(np.full(len(texts), at)),
            "diff": pa.array(np.ones(len(texts), np.int64)),
        }
        append(one, at, at + 1, pa.table(columns))
    to = frontier(at)
    one.submit([("u1", Downgrade(collection=U1, capability=HOLD, frontier=to))])


def most(batches: int, scratch: Path, fill: Callable[[Shards, int], None] = fill) -> int:
    """The most that Arrow held while a collection of so many batches was merged."""
    with client(broker()) as one:
        fill(one, batches)
        watched = Watched(one.chunks)
        one.chunks = watched
        [merge] = plan.whole(one.state(U1))
        done = Worker(one, Kernel(), lambda: uuid.uuid4().hex, scratch, BUDGET).compact(
            U1, merge
        )
        assert isinstance(done, Compacted)
        assert done.rows_written == done.rows_read >= batches
        return watched.most


def test_memory_does_not_grow_with_the_collection(tmp_path: Path) -> None:
    small, large = most(8, tmp_path), most(32, tmp_path)
    assert large < 4 << 20, "less than a third of the rows, which take 13 MB"
    assert large < 2 * small


def test_rows_that_are_wide_and_alike_take_no_more(tmp_path: Path) -> None:
    """In chunks they take a hundredth; a merge is not to believe that of its memory."""
    assert most(64, tmp_path, fill_wide) < 4 << 20, "the rows take 13 MB"


def fill_dense(one: Shards, batches: int) -> None:
    """Rows of a megabyte each, in chunks of a foreign writer that take a few hundred bytes.

    An honest batch before them has the largest chunk, and the one with most rows a byte.
    """
    append_all(one, [[uuid.uuid4().hex for _ in range(ROWS)]])
    for at in range(1, batches):
        row = rows("x", time=at).set_column(0, "c0", pa.array([f"{at}" + "x" * (1 << 20)]))
        [(body, count)] = chunk.encode(row, ["name", "size"])
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        dense = sink.getvalue().to_pybytes()
        assert len(dense) < 2_000
        part = Part_(
            collection=U1,
            capability=write_capability(U1),
            lower=frontier(at),
            upper=frontier(at + 1),
            chunks=one.chunks.write(one.data_topic(U1), [(dense, count)], {}),
        )
        one.submit([("u1", Append((part,)))])
    to = frontier(batches - 1)
    one.submit([("u1", Downgrade(collection=U1, capability=HOLD, frontier=to))])


def test_chunks_that_decode_to_a_thousand_times_their_size_take_no_more(
    tmp_path: Path,
) -> None:
    """What they decode to is measured before; the merge goes through as many buckets."""
    assert most(48, tmp_path, fill_dense) < 12 << 20, "the rows take 48 MB"


def test_a_row_that_changes_at_every_time_is_in_every_bucket() -> None:
    """Its changes at or beyond since are kept apart, however many they are."""
    count = 10_000
    updates = pa.RecordBatch.from_arrays(
        [
            pa.array(["hot"] * count),
            pa.array(np.arange(count)),
            pa.array(np.resize([1, -1], count)),
        ],
        ["c0", "time", "diff"],
    )
    none = pa.RecordBatch.from_pylist([], schema=ERRORS)
    parts = split(Part(updates, none), 8, Kernel())
    sizes = [part.updates.num_rows for part in parts]
    assert sum(sizes) == count
    assert max(sizes) < count // 4
