"""What a client writes beforehand is checked in full before it counts."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from streams.errors import Corrupt, InvalidUsage
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.log import ChunkRecord, ChunkRef, ChunkWrite
from streams.kafka.memory.logs import MemoryChunks
from streams.storage import Storage
from streams.storage.client.handles import WriteCapability
from streams.storage.description import Description
from streams.storage.limits import LARGEST_ROWS, MOST_DIFF, TooLarge
from streams.storage.write import update
from streams.storage.write.chunk_validation import Uncommitted, check_ref, read_staged
from streams.storage.write.update import Write
from streams.storage.write.validation import WrongRows, conform
from tests.support import foreign
from tests.support.storages import T1, T2, TABLE, Place, table

SOUND = foreign.chunk_of([pa.array(["a"]), pa.array([1], pa.int32())], TABLE.names, [3])


def write_chunk(
    storage: Storage,
    body: bytes,
    rows: int = 1,
    more: Mapping[str, bytes] | None = None,
    collection: CollectionId = T1,
) -> ChunkRef:
    """A chunk in the collection's data topic, with its headers or some of them changed."""
    shards = storage.shards
    headers = {**shards.headers(collection), **(more or {})}
    write = ChunkWrite(shards.data_topic(collection), [(body, rows)], headers)
    ((ref,),) = shards.chunks.write_all([write])
    return ref


def link(storage: Storage, write: WriteCapability, *refs: ChunkRef) -> None:
    moved = storage._update([Write(write, None, 5, tuple(refs))])
    assert isinstance(moved, tuple)


def refused(place: Place, body: bytes, rows: int = 1) -> str:
    """Why a chunk is refused; nothing of it counts."""
    storage = place.client()
    _, write = storage.create(T1, TABLE)
    ref = write_chunk(storage, body, rows)
    with pytest.raises(InvalidUsage) as raised:
        link(storage, write, ref)
    assert not list(storage.shards.state(T1).batches)
    return f"{type(raised.value).__name__}: {raised.value}"


def test_a_sound_chunk_counts(place: Place) -> None:
    storage = place.client()
    _, write = storage.create(T1, TABLE)
    ref = write_chunk(storage, SOUND)
    link(storage, write, ref)
    (batch,) = storage.shards.state(T1).batches
    assert batch.chunks == (ref,)


@pytest.mark.parametrize("text", [foreign.outside(), foreign.not_utf8()])
def test_a_chunk_that_is_not_sound_is_refused(place: Place, text: pa.Array) -> None:
    body = foreign.chunk_of([text, pa.array([1, 2], pa.int32())], TABLE.names, [3, 3])
    assert "expected an arrow stream, actual" in refused(place, body, 2)


def test_a_chunk_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    place: Place,
) -> None:
    columns = [pa.array(["x" * (LARGEST_ROWS + 1)]), pa.array([1], pa.int32())]
    body = foreign.chunk_of(columns, TABLE.names, [3], None, "zstd")
    assert len(body) < 100_000
    del columns
    before = pa.total_allocated_bytes()
    assert refused(place, body).startswith("TooLarge: bytes when decoded of chunk")
    assert pa.default_memory_pool().bytes_allocated() - before < 1 << 20


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": 0}, "expected 0 bytes, actual"),
        ({"size": -1}, "expected -1 bytes, actual"),
        ({"rows": 2}, "expected header rows once, b'2', actual"),
        ({"partition": -1}, "expected a partition and an offset from 0 on"),
        ({"offset": -1001}, "expected a partition and an offset from 0 on"),
        ({"key": "no uuid"}, "expected a UUID in hexadecimal digits"),
        ({"checksum": 1}, "expected checksum 00000001"),
    ],
)
def test_a_reference_says_what_is_there(
    storage: Storage, change: Mapping[str, object], why: str
) -> None:
    _, write = storage.create(T1, TABLE)
    ref = write_chunk(storage, SOUND)
    with pytest.raises(WrongRows, match=why):
        link(storage, write, replace(ref, **change))  # type: ignore[arg-type]  # one of its own


def test_a_key_may_be_written_with_hyphens() -> None:
    """Any UUID as text is one; braces and prefixes are none."""
    ref = write_chunk_ref("4ac7a9e9-607c-4c8a-84f3-843f0191e3fd")
    check_ref(T1, ref)
    for key in (
        "{4ac7a9e9-607c-4c8a-84f3-843f0191e3fd}",
        "4ac7a9e9607c-4c8a-84f3-843f0191e3fd",
    ):
        with pytest.raises(WrongRows, match="expected a UUID"):
            check_ref(T1, replace(ref, key=key))


@pytest.mark.parametrize(
    ("header", "value"), [("group", b"other"), ("collection", b"t2"), ("group", b"")]
)
def test_headers_are_those_of_the_collection(
    storage: Storage, header: str, value: bytes
) -> None:
    _, write = storage.create(T1, TABLE)
    ref = write_chunk(storage, SOUND, more={header: value})
    with pytest.raises(WrongRows, match=f"expected header {header} once, .*actual"):
        link(storage, write, ref)


def test_a_chunk_is_named_once_in_a_command(storage: Storage) -> None:
    _, write = storage.create(T1, TABLE)
    ref = write_chunk(storage, SOUND)
    with pytest.raises(WrongRows, match="expected each chunk once, actual twice"):
        link(storage, write, ref, ref)
    _, other = storage.create(T2, TABLE, group="t1")
    with pytest.raises(WrongRows, match="expected each chunk once, actual twice"):
        storage._update([Write(write, None, 5, (ref,)), Write(other, None, 5, (ref,))])


def test_the_columns_are_found_by_their_names(place: Place) -> None:
    columns = [pa.array([1], pa.int32()), pa.array(["a"])]
    body = foreign.chunk_of(columns, ["size", "name"], [3])
    assert r"expected columns ['name', 'size'] in data, actual ['size', 'name']" in refused(
        place, body
    )


def test_a_chunk_has_the_types_that_we_write(place: Place) -> None:
    columns = [pa.array(["a"], pa.large_utf8()), pa.array([1], pa.int32())]
    body = foreign.chunk_of(columns, TABLE.names, [3])
    assert (
        "column name: expected string as Slackwater writes it, actual large_string"
        in refused(place, body)
    )


def test_a_row_is_not_null(place: Place) -> None:
    kind = pa.struct([("name", pa.utf8()), ("size", pa.int32())])
    columns = [pa.nulls(1, kind), pa.array([3]), pa.array([1]), pa.nulls(1, pa.utf8())]
    sheet = pa.RecordBatch.from_arrays(columns, names=["data", "time", "diff", "error"])
    assert "expected no NULL in column data" in refused(place, foreign.stream(sheet))


def test_a_diff_that_could_overflow_is_refused() -> None:
    columns = [pa.array(["a"]), pa.array([1], pa.int32())]
    for diff in (MOST_DIFF + 1, -MOST_DIFF - 1, -(1 << 63)):
        body = foreign.chunk_of(columns, TABLE.names, [3], [diff])
        assert f"column diff: expected {-MOST_DIFF} to {MOST_DIFF}, actual {diff}" in refused(
            Place(), body
        )
        with pytest.raises(WrongRows, match="column diff"):
            conform(T1, table(("a", 1, 3, diff)), TABLE)
    conform(T1, table(("a", 1, 3, MOST_DIFF), ("a", 2, 3, -MOST_DIFF)), TABLE)


def test_columns_with_the_engines_names_are_not_taken_by_position() -> None:
    swapped = Description((("c1", "BIGINT"), ("c0", "BIGINT")), kind="table")
    one = pa.array([1])
    rows = pa.table([one, one, one, one], names=["c0", "c1", "time", "diff"])
    with pytest.raises(WrongRows, match=r"expected columns \['c1', 'c0', 'time', 'diff'\]"):
        conform(T1, rows, swapped)
    reordered = pa.table([pa.array([7]), one, one, one], names=["c1", "c0", "time", "diff"])
    assert conform(T1, reordered, swapped).column("c0").to_pylist() == [7]


class Aborted(MemoryChunks):
    """Chunks of which no reader of committed data sees any."""

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        raise Corrupt(f"chunk {topic}/0@{refs[0].offset} is missing")


def test_a_chunk_in_a_transaction_does_not_count(place: Place) -> None:
    storage = place.client()
    storage.create(T1, TABLE)
    ref = write_chunk(storage, SOUND)
    shards = storage.shards
    chunks = Aborted(place.broker.store)
    about = (T1, TABLE, shards.headers(T1))
    with pytest.raises(Uncommitted, match="in a transaction that is open or was aborted"):
        list(read_staged(chunks, shards.data_topic(T1), [ref], about))
    missing = replace(ref, offset=Offset(ref.offset + 7))
    with pytest.raises(WrongRows, match="is missing"):
        list(read_staged(chunks, shards.data_topic(T1), [missing], about))


def test_the_chunks_that_are_counted_have_a_bound(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "LARGEST_COUNTED", 10)
    storage = place.client(checks_counts=True)
    _, write = storage.create(T1, TABLE)
    ref = write_chunk(storage, SOUND)
    with pytest.raises(TooLarge, match="bytes of chunks whose multiplicities are checked"):
        link(storage, write, ref)


def write_chunk_ref(key: str) -> ChunkRef:
    return ChunkRef(0, Offset(0), key, zlib.crc32(SOUND), 1, len(SOUND))
