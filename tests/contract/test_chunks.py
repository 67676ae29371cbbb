"""What every Chunks promises."""

import zlib
from dataclasses import replace

import pytest

from streams.errors import Corrupt, Determinate
from streams.ids import Offset, Topic
from streams.kafka.log import ChunkRef
from streams.kafka.topics import MAXIMUM_RECORD_BYTES, TopicKind, TopicSpec
from streams.torture.hostile.wire_batches import WireProducer, batch
from tests.contract.conftest import now_ms


@pytest.fixture
def data(make):
    return make(TopicKind.DATA, partitions=2)


def body(number: int) -> bytes:
    return b"%d" % number * 100


def test_bodies_come_back_in_the_order_asked_for(storage, data):
    refs = storage.chunks.write(data, [(body(number), number) for number in range(5)], {})
    requested = [refs[number] for number in (3, 0, 4, 4, 1)]
    assert storage.chunks.fetch(data, requested) == [body(number) for number in (3, 0, 4, 4, 1)]


def test_references_say_what_was_written(storage, data):
    (ref,) = storage.chunks.write(data, [(b"hello", 7)], {"collection": b"u1"})
    assert (ref.rows, ref.size, ref.checksum) == (7, 5, zlib.crc32(b"hello"))


def test_keys_are_fresh_for_every_write(storage, data):
    refs = [storage.chunks.write(data, [(b"same", 1)], {})[0] for _ in range(3)]
    assert len({ref.key for ref in refs}) == 3
    assert storage.chunks.fetch(data, refs) == [b"same"] * 3


def test_scattered_chunks_of_several_partitions_are_found(storage, data):
    refs = [storage.chunks.write(data, [(body(number), 1)], {})[0] for number in range(60)]
    assert {ref.partition for ref in refs} == {0, 1}
    scattered = refs[::13]
    assert storage.chunks.fetch(data, scattered) == [body(number) for number in range(60)][::13]


def test_large_bodies_survive(storage, data):
    large = bytes(range(256)) * 3600
    refs = storage.chunks.write(data, [(large, 1)] * 4, {})
    assert storage.chunks.fetch(data, refs) == [large] * 4


def test_nothing_is_written_and_nothing_fetched(storage, data):
    assert storage.chunks.write(data, [], {}) == ()
    assert storage.chunks.fetch(data, []) == []
    storage.chunks.forget(data, [])


def test_a_chunk_beyond_the_end_is_missing(storage, data):
    (ref,) = storage.chunks.write(data, [(b"a", 1)], {})
    with pytest.raises(Corrupt, match="missing"):
        storage.chunks.fetch(data, [replace(ref, offset=Offset(ref.offset + 1))])
    with pytest.raises(Corrupt, match="missing"):
        storage.chunks.fetch(data, [replace(ref, offset=Offset(ref.offset + 100))])


def test_another_chunk_in_its_place_is_recognised_by_its_key(storage, data):
    one, other = storage.chunks.write(data, [(b"a", 1), (b"a", 1)], {})
    with pytest.raises(Corrupt, match=f"expected key {one.key}"):
        storage.chunks.fetch(data, [replace(one, offset=other.offset)])


def test_altered_bytes_are_recognised_by_their_checksum(storage, data):
    (ref,) = storage.chunks.write(data, [(b"a", 1)], {})
    with pytest.raises(Corrupt, match="expected checksum"):
        storage.chunks.fetch(data, [replace(ref, checksum=ref.checksum ^ 1)])


def test_a_tombstone_is_no_chunk(storage, data):
    (ref,) = storage.chunks.write(data, [(b"a", 1)], {})
    storage.chunks.forget(data, [ref])
    with pytest.raises(Corrupt, match="tombstone"):
        storage.chunks.fetch(data, [replace(ref, offset=Offset(ref.offset + 1))])


def test_chunks_can_be_fetched_after_a_failed_fetch(storage, data):
    (ref,) = storage.chunks.write(data, [(b"a", 1)], {})
    with pytest.raises(Corrupt):
        storage.chunks.fetch(data, [replace(ref, checksum=0)])
    assert storage.chunks.fetch(data, [ref]) == [b"a"]


def test_what_is_forgotten_takes_nothing_else_along(storage, data):
    refs = storage.chunks.write(data, [(body(number), 1) for number in range(3)], {})
    storage.chunks.forget(data, [refs[1]])
    assert storage.chunks.fetch(data, [refs[0], refs[2]]) == [body(0), body(2)]


def test_where_no_record_can_be_there_is_nothing_to_forget(storage, data):
    """A log may name any place; one that is none used to stop the collector of its group."""
    (ref,) = storage.chunks.write(data, [(body(1), 1)], {})
    nowhere = [replace(ref, partition=-1), replace(ref, partition=2)]
    storage.chunks.forget(data, [*nowhere, replace(ref, offset=Offset(-1))])
    assert storage.chunks.fetch(data, [ref]) == [body(1)]


def test_a_body_too_large_is_refused(storage, data):
    with pytest.raises(Determinate):
        storage.chunks.write(data, [(bytes(MAXIMUM_RECORD_BYTES + 1), 1)], {})


def test_an_unknown_topic_holds_no_chunks(storage, data):
    (ref,) = storage.chunks.write(data, [(b"a", 1)], {})
    with pytest.raises(Determinate):
        storage.chunks.write(Topic("contract.nowhere"), [(b"a", 1)], {})
    with pytest.raises((Corrupt, Determinate)):
        storage.chunks.fetch(Topic("contract.nowhere"), [ref])


def test_chunks_of_many_topics_are_fetched_at_once(storage, make):
    topics = [make(TopicKind.DATA, partitions=2) for _ in range(5)]
    bodies = {topic: [(body(n), 1) for n in range(3)] for topic in topics}
    refs = {topic: storage.chunks.write(topic, bodies[topic], {}) for topic in topics}
    requested = {topic: [refs[topic][2], refs[topic][0]] for topic in topics}
    assert storage.chunks.fetch_all(requested) == {
        topic: [body(2), body(0)] for topic in topics
    }
    assert storage.chunks.fetch_all({}) == {}
    requested[topics[3]] = [replace(refs[topics[3]][0], key="another")]
    with pytest.raises(Corrupt, match=f"{topics[3]}.*expected key another"):
        storage.chunks.fetch_all(requested)


def test_committed_chunks_come_with_their_headers(storage, data):
    refs = storage.chunks.write(data, [(b"a", 3), (b"bc", 4)], {"group": b"g"})
    chunks = storage.chunks.fetch_committed(data, [refs[1], refs[0]])
    assert [chunk.body for chunk in chunks] == [b"bc", b"a"]
    assert dict(chunks[0].headers) == {
        "group": b"g",
        "rows": b"4",
        "crc32": b"%08x" % zlib.crc32(b"bc"),
    }
    assert storage.chunks.fetch_committed(data, []) == []
    with pytest.raises(Corrupt, match="missing"):
        storage.chunks.fetch_committed(data, [replace(refs[0], offset=Offset(99))])


@pytest.mark.integration
def test_a_chunk_with_a_header_of_other_bytes_is_refused(real, broker):
    topic = Topic("contract.chunk.headers")
    real.topics.create([TopicSpec(topic, 1, TopicKind.DATA)])
    record = batch(b"key", b"body", [(b"\xff", b"1")], now_ms())
    assert WireProducer(broker.bootstrap).send(topic, 0, record) == (0, 0)
    ref = ChunkRef(0, Offset(0), "key", zlib.crc32(b"body"), 1, 4)
    for fetch in (real.chunks.fetch, real.chunks.fetch_committed):
        with pytest.raises(Corrupt, match="UTF-8"):
            fetch(topic, [ref])


def test_a_partition_that_does_not_exist_holds_no_chunks(storage, data):
    (ref,) = storage.chunks.write(data, [(b"a", 1)], {})
    for fetch in (storage.chunks.fetch, storage.chunks.fetch_committed):
        with pytest.raises(Corrupt, match="missing"):
            fetch(data, [replace(ref, partition=2)])
