"""What every reader of raw topics promises, and every transactional writer with it."""

import itertools
import time
from typing import Any

import pyarrow as pa
import pytest

from streams.errors import Determinate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.raw import RAW_SCHEMA, RawReader
from streams.kafka.client.records import records
from streams.kafka.client.transactions import Fenced, OutRecord, OutRecords, Transactions
from streams.kafka.log import Truncated
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader, MemoryTransactions
from streams.kafka.topics import MAXIMUM_RECORD_BYTES, TopicKind, TopicSpec
from streams.torture.hostile.wire_batches import WireProducer, batch
from tests.contract.conftest import now_ms

_ids = itertools.count()
ZERO = Offset(0)


@pytest.fixture
def reader(storage):
    if isinstance(storage, MemoryBroker):
        yield MemoryRawReader(storage.store)
        return
    raw_reader = RawReader(storage.settings)
    yield raw_reader
    raw_reader.close()


def unbegun(
    storage: MemoryBroker | KafkaBroker, name: str
) -> MemoryTransactions | Transactions:
    if isinstance(storage, MemoryBroker):
        return MemoryTransactions(storage.store, name, now_ms)
    return Transactions(storage.settings, name)


@pytest.fixture
def session(storage):
    """Makes sessions of one transactional id."""
    name = f"contract.{next(_ids)}"
    sessions = []

    def session():
        writer = unbegun(storage, name)
        sessions.append(writer)
        writer.init()
        return writer

    yield session
    for writer in sessions:
        writer.close()


@pytest.fixture
def topic(make):
    return make(TopicKind.RAW, partitions=2)


def high_of(
    reader: MemoryRawReader | RawReader, topic: Topic, partition: int, least: int
) -> Offset:
    """The end of a partition once it is at least so far: committed is not yet visible."""
    deadline = time.monotonic() + 60
    while True:
        high = reader.ends(topic)[partition].high
        if high >= least or time.monotonic() > deadline:
            assert high >= least
            return high


def rows(table: pa.Table) -> list[tuple[bytes | None, bytes | None]]:
    assert table.schema == RAW_SCHEMA
    return [(row["key"], row["value"]) for row in table.to_pylist()]


def test_ends_cover_every_partition(reader, topic):
    assert reader.ends(topic) == {0: (0, 0), 1: (0, 0)}


def test_a_topic_that_does_not_exist_has_no_ends(reader):
    with pytest.raises(Determinate):
        reader.ends(Topic("contract.missing"))


def test_keys_and_values_may_be_absent(reader, session, topic):
    pairs = [(b"k", b"v"), (None, b"v"), (b"k", None), (b"", b"")]
    session().commit([OutRecord(topic, key, value, (), 1) for key, value in pairs])
    high = high_of(reader, topic, 1, 5)
    records = reader.fetch(topic, 1, ZERO, high)
    assert rows(records) == pairs
    assert records["partition"].to_pylist() == [1] * 4
    assert records["offset"].to_pylist() == [0, 1, 2, 3]


def test_markers_take_offsets_and_no_rows(reader, session, topic):
    writer = session()
    for number in range(3):
        writer.commit([OutRecord(topic, None, b"%d" % number, (), 0)])
    assert high_of(reader, topic, 0, 6) == 6
    assert reader.fetch(topic, 0, ZERO, Offset(6))["offset"].to_pylist() == [0, 2, 4]
    assert reader.fetch(topic, 0, Offset(1), Offset(2)).num_rows == 0
    assert reader.fetch(topic, 0, Offset(5), Offset(6)).num_rows == 0
    assert reader.fetch(topic, 0, Offset(1), Offset(5))["offset"].to_pylist() == [2, 4]


def test_times_and_headers_come_when_they_are_asked_for(reader, session, topic):
    headers = (("a", b"1"), ("a", b"\xff"), ("é", b""))
    before = now_ms()
    session().commit(
        [OutRecord(topic, None, b"x", headers, 0), OutRecord(topic, None, b"y", (), 0)]
    )
    high = high_of(reader, topic, 0, 3)
    assert reader.fetch(topic, 0, ZERO, high).schema == RAW_SCHEMA
    records = reader.fetch(topic, 0, ZERO, high, more=("headers", "timestamp"))
    assert records.schema.names == [*RAW_SCHEMA.names, "headers", "timestamp"]
    assert records["headers"].to_pylist() == [
        [{"key": key, "value": value} for key, value in headers],
        [],
    ]
    assert all(before <= at <= now_ms() for at in records["timestamp"].to_pylist())
    nothing = reader.fetch(topic, 0, high, high, more=("headers", "timestamp"))
    assert nothing.schema == records.schema


def test_records_of_one_topic_are_written_together(reader, session, topic):
    """In order, with what each has; the key decides of the partition as for one record."""
    shared, own = [("time", b"1")], [("time", b"2")]
    keys = [b"%d" % number for number in range(6)]
    values = [b"a", None, b"", b"d", b"e", b"f"]
    together = OutRecords(topic, keys, values, [shared] * 5 + [own])
    writer = session()
    writer.commit([together, OutRecord(topic, b"0", b"last")])
    writer.commit([OutRecords(topic, [], [], []), OutRecord(topic, b"5", b"later")])
    expected = [*zip(keys, values, strict=True), (b"0", b"last"), (b"5", b"later")]
    read = written(reader, topic, len(expected))
    places = {row["key"]: row["partition"] for row in read}
    assert set(places.values()) == {0, 1}
    assert [(row["key"], row["value"]) for row in read] == [
        pair for partition in (0, 1) for pair in expected if places[pair[0]] == partition
    ]
    for row in read:
        of_key = b"2" if row["key"] == b"5" else b"1"
        is_alone = row["value"] in {b"last", b"later"}
        assert row["headers"] == ([] if is_alone else [{"key": "time", "value": of_key}])


def written(
    reader: MemoryRawReader | RawReader, topic: Topic, count: int
) -> list[dict[str, Any]]:
    """So many records of a topic, partition by partition."""
    deadline = time.monotonic() + 60
    while True:
        ends = sorted(reader.ends(topic).items())
        ranges = [(partition, ZERO, end.high) for partition, end in ends]
        read: list[dict[str, Any]]
        read = reader.fetch_ranges(topic, ranges, more=("headers",)).to_pylist()
        if len(read) >= count or time.monotonic() > deadline:
            return read


@pytest.mark.integration
def test_names_of_headers_that_are_not_utf_8_cost_the_record_its_headers(real, broker):
    topic = Topic(f"contract.headers.{next(_ids)}")
    real.topics.create([TopicSpec(topic, 1, TopicKind.RAW)])
    written: list[list[tuple[bytes, bytes | None]]]
    written = [[(b"b", None)], [(b"a\xffb", b"1"), (b"b", None)], []] * 100
    writer = WireProducer(broker.bootstrap)
    for offset, headers in enumerate(written):
        assert writer.send(topic, 0, batch(b"k", b"v", headers, now_ms())) == (0, offset)
    reader, end = RawReader(real.settings), Offset(len(written))
    table = reader.fetch(topic, 0, ZERO, end, more=("headers",))
    reader.close()
    assert table["headers"].to_pylist() == [[{"key": "b", "value": None}], None, []] * 100
    assert table["value"].to_pylist() == [b"v"] * len(written)
    batches = records(real.settings, topic, {0: ZERO}, {0: end})
    shown = [record.headers for some in batches for record in some]
    assert shown == [(("b", None),), (), ()] * 100


def test_adjacent_ranges_meet_exactly(reader, session, topic):
    writer = session()
    values = [b"%d" % number for number in range(100)]
    writer.commit([OutRecord(topic, None, value, (), 0) for value in values])
    assert high_of(reader, topic, 0, 101) == 101
    cuts = [0, 1, 1, 30, 31, 99, 100, 101]
    pieces = [
        reader.fetch(topic, 0, Offset(lo), Offset(hi)) for lo, hi in itertools.pairwise(cuts)
    ]
    assert [value for piece in pieces for _, value in rows(piece)] == values


def test_partitions_are_read_in_turn(reader, session, topic):
    records = [OutRecord(topic, None, b"%d" % n, (), n % 2) for n in range(20)]
    session().commit(records)
    for partition in (0, 1):
        assert high_of(reader, topic, partition, 11) == 11
    for lo in (0, 5):
        for partition in (0, 1):
            batch = reader.fetch(topic, partition, Offset(lo), Offset(lo + 5))
            expected = [b"%d" % n for n in range(20) if n % 2 == partition][lo : lo + 5]
            assert [value for _, value in rows(batch)] == expected


def test_ranges_of_many_partitions_are_read_together(reader, session, make):
    topic = make(TopicKind.RAW, partitions=8)
    writer = session()
    for first in (0, 400):
        writer.commit(
            [OutRecord(topic, None, b"%d" % n, (), n % 8) for n in range(first, first + 400)]
        )
    for partition in range(8):
        assert high_of(reader, topic, partition, 102) == 102
    cuts = [0, 7, 49, 50, 52, 102]
    read: dict[int, list[int]] = {}
    for lo, hi in itertools.pairwise(cuts):
        ranges = [(partition, Offset(lo), Offset(hi)) for partition in range(8)]
        table = reader.fetch_ranges(topic, ranges)
        places = [(row["partition"], row["offset"]) for row in table.to_pylist()]
        assert places == sorted(places)
        for row in table.to_pylist():
            read.setdefault(row["partition"], []).append(int(row["value"]))
    assert read == {partition: list(range(partition, 800, 8)) for partition in range(8)}


def test_ranges_come_in_the_order_in_which_they_are_asked_for(reader, session, topic):
    session().commit([OutRecord(topic, None, b"%d" % n, (), n % 2) for n in range(20)])
    for partition in (0, 1):
        assert high_of(reader, topic, partition, 11) == 11
    ranges = [(1, 6, 9), (0, 2, 4), (1, 1, 3), (0, 5, 5), (0, 0, 1), (1, 10, 11)]
    table = reader.fetch_ranges(
        topic, [(partition, Offset(lo), Offset(hi)) for partition, lo, hi in ranges]
    )
    places = [(row["partition"], row["offset"]) for row in table.to_pylist()]
    expected = [(partition, at) for partition, lo, hi in ranges for at in range(lo, hi)]
    assert places == expected[:-1]  # the marker is no record
    assert reader.fetch_ranges(topic, []).num_rows == 0
    with pytest.raises(InvalidUsage):
        reader.fetch_ranges(topic, [(0, ZERO, Offset(1)), (1, Offset(1), ZERO)])


def test_one_range_that_retention_took_away_fails_all(storage, reader, session, make):
    topic = make(TopicKind.RAW, partitions=2)
    session().commit([OutRecord(topic, None, b"%d" % n, (), n % 2) for n in range(10)])
    for partition in (0, 1):
        high_of(reader, topic, partition, 6)
    if isinstance(storage, MemoryBroker):  # of a log; this is a topic of two partitions
        storage.store.partition(topic, 0).truncate(3)
    else:
        storage.logs.truncate(topic, Offset(3))
    low = {partition: ends.low for partition, ends in reader.ends(topic).items()}
    assert low == {0: 3, 1: 0}
    with pytest.raises(Truncated) as caught:
        reader.fetch_ranges(topic, [(1, ZERO, Offset(5)), (0, Offset(2), Offset(5))])
    assert (caught.value.topic, caught.value.position) == (topic, 2)
    table = reader.fetch_ranges(topic, [(1, ZERO, Offset(5)), (0, Offset(3), Offset(5))])
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 4, 3, 4]


def test_a_limit_cuts_and_the_rest_follows(reader, session, topic):
    session().commit([OutRecord(topic, None, b"%d" % n, (), 0) for n in range(10)])
    assert high_of(reader, topic, 0, 11) == 11
    first = reader.fetch(topic, 0, ZERO, Offset(10), limit=4)
    assert first["offset"].to_pylist() == [0, 1, 2, 3]
    rest = reader.fetch(topic, 0, Offset(4), Offset(10), limit=100)
    assert rest["offset"].to_pylist() == [4, 5, 6, 7, 8, 9]


def test_an_empty_range_reads_nothing_and_an_inverted_one_is_refused(reader, topic):
    assert reader.fetch(topic, 0, ZERO, ZERO).num_rows == 0
    with pytest.raises(InvalidUsage):
        reader.fetch(topic, 0, Offset(1), ZERO)
    with pytest.raises(InvalidUsage):
        reader.fetch(topic, 0, ZERO, Offset(1), limit=0)


def test_a_range_that_retention_took_away_is_an_error(storage, reader, session, make):
    log = make(TopicKind.RAW, partitions=1)
    session().commit([OutRecord(log, None, b"%d" % n, (), 0) for n in range(5)])
    high_of(reader, log, 0, 6)
    storage.logs.truncate(log, Offset(3))
    assert reader.ends(log)[0].low == 3
    with pytest.raises(Truncated) as caught:
        reader.fetch(log, 0, Offset(2), Offset(5))
    assert (caught.value.topic, caught.value.position) == (log, 2)
    assert reader.fetch(log, 0, Offset(3), Offset(5))["offset"].to_pylist() == [3, 4]


def test_a_key_always_finds_the_same_partition(reader, session, topic):
    writer = session()
    for number in range(6):
        writer.commit([OutRecord(topic, b"a-key", b"%d" % number)])
    session()  # what the older one left is settled
    counts = [
        reader.fetch(topic, partition, ZERO, ends.high).num_rows
        for partition, ends in reader.ends(topic).items()
    ]
    assert sorted(counts) == [0, 6]


def test_an_older_session_is_fenced_for_good(reader, session, topic):
    old = session()
    old.commit([OutRecord(topic, None, b"old", (), 0)])
    new = session()
    with pytest.raises(Fenced, match="belongs to a newer session"):
        old.commit([OutRecord(topic, None, b"zombie", (), 0)])
    with pytest.raises((Fenced, InvalidUsage)):
        old.commit([OutRecord(topic, None, b"zombie again", (), 0)])
    new.commit([OutRecord(topic, None, b"new", (), 0)])
    records = reader.fetch(topic, 0, ZERO, high_of(reader, topic, 0, 4))
    assert [value for _, value in rows(records)] == [b"old", b"new"]


def test_a_refused_transaction_leaves_no_trace_and_the_session_lives(reader, session, topic):
    writer = session()
    with pytest.raises(Determinate):
        writer.commit(
            [
                OutRecord(topic, None, b"first", (), 0),
                OutRecord(topic, None, bytes(MAXIMUM_RECORD_BYTES * 2), (), 0),
            ]
        )
    writer.commit([OutRecord(topic, None, b"second", (), 0)])
    session()  # what the older one left is settled
    records = reader.fetch(topic, 0, ZERO, high_of(reader, topic, 0, 2))
    assert [value for _, value in rows(records)] == [b"second"]


def test_the_last_value_of_a_key_is_the_newest_committed(session, make):
    progress = make(TopicKind.OUTPUT)
    writer = session()
    assert writer.last_value(progress, b"a") is None
    for number in range(3):
        writer.commit(
            [
                OutRecord(progress, b"a", b"a%d" % number),
                OutRecord(progress, b"b", b"b%d" % number),
            ]
        )
    writer.commit([OutRecord(progress, b"c", b"c") for _ in range(3000)])
    assert session().last_value(progress, b"a") == b"a2"
    assert session().last_value(progress, b"none") is None
    writer = session()
    writer.commit([OutRecord(progress, b"a", None)])
    writer = session()
    assert writer.last_value(progress, b"a") is None
    assert writer.last_value(progress, b"b") == b"b2"


def test_a_session_has_to_be_begun(storage):
    with pytest.raises(InvalidUsage, match="begun by init"):
        unbegun(storage, "unbegun").commit([])
