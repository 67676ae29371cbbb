"""What only a real broker shows: open transactions, compaction, a restart under its clients."""

import contextlib
import random
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from streams.errors import Corrupt, Determinate
from streams.ids import Offset, Topic
from streams.kafka.client import consumer_assignment, unread, watchdog
from streams.kafka.client import tail as tails
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.consumer_assignment import ConsumerSlot
from streams.kafka.client.raw import RawReader
from streams.kafka.client.transactions import OutRecord, Transactions
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.log import ChunkRef, Entry
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec

pytestmark = pytest.mark.integration

T = TypeVar("T")


@pytest.fixture(scope="module")
def settings(broker):
    return ClientSettings(broker.bootstrap)


@pytest.fixture(scope="module")
def kafka(settings):
    broker = KafkaBroker(settings)
    yield broker
    broker.close()


def wait_for(answer: Callable[[], T], seconds: float = 120.0) -> T:
    """The first answer that is true."""
    deadline = time.monotonic() + seconds
    while not (result := answer()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result


def placed(settings, topic: Topic, key: str, transaction: Producer | None = None) -> ChunkRef:
    """A chunk in partition 0, written by whoever does so outside of our code."""
    producer = transaction or Producer({"bootstrap.servers": settings.bootstrap})
    offsets: list[int] = []
    producer.produce(
        topic,
        b"body",
        key,
        0,
        on_delivery=lambda _, message: offsets.append(message.offset() or 0),
    )
    producer.flush()
    return ChunkRef(0, Offset(offsets[0]), key, zlib.crc32(b"body"), 1, 4)


def test_chunks_in_transactions_are_there_once_they_are_committed(kafka, settings):
    """The log cleaner drops records of aborted transactions, linked or not."""
    topic = Topic("stability.chunks.transactions")
    kafka.topics.create([TopicSpec(topic, 1, TopicKind.DATA)])
    writer = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": "chunks"})
    writer.init_transactions()
    for end in (writer.abort_transaction, writer.commit_transaction):
        before = placed(settings, topic, "before")
        writer.begin_transaction()
        inside = placed(settings, topic, "inside", writer)
        behind = placed(settings, topic, "behind")
        assert kafka.chunks.fetch(topic, [before, inside, behind]) == [b"body"] * 3
        assert kafka.chunks.fetch_committed(topic, [before])[0].body == b"body"
        for chunk in (inside, behind):
            with pytest.raises(Corrupt, match="missing"):
                kafka.chunks.fetch_committed(topic, [chunk])
        end()
        assert wait_for(partial(committed, kafka, topic, behind))
        assert committed(kafka, topic, inside) == (end == writer.commit_transaction)


def committed(kafka: KafkaBroker, topic: Topic, ref: ChunkRef) -> bool:
    try:
        kafka.chunks.fetch_committed(topic, [ref])
    except Corrupt:
        return False
    return True


def test_a_writer_waits_for_no_reader(kafka, settings):
    topic = Topic("stability.chunks.locks")
    kafka.topics.create([TopicSpec(topic, 1, TopicKind.DATA)])
    (ref,) = kafka.chunks.write(topic, [(b"body", 1)], {})
    reader = kafka.chunks._readers["read_uncommitted"]
    with reader._lent():  # as while a reader reads gigabytes
        assert kafka.chunks.fetch(topic, [ref]) == [b"body"]  # nor does another reader
        written = threading.Thread(target=kafka.chunks.write, args=(topic, [(b"more", 1)], {}))
        written.start()
        written.join(60)
        assert not written.is_alive()
    assert kafka.chunks.fetch(topic, [ref]) == [b"body"]


def test_an_open_transaction_hides_itself_and_what_follows(kafka, settings):
    """Rule 30: the end of a raw topic is its last stable offset."""
    topic = Topic("stability.open")
    kafka.topics.create([TopicSpec(topic, 1, TopicKind.RAW)])
    plain = Producer({"bootstrap.servers": settings.bootstrap})
    plain.produce(topic, b"before")
    plain.flush()
    writer = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": "open"})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(topic, b"pending")
    writer.flush()
    plain.produce(topic, b"after")
    plain.flush()
    reader = RawReader(settings)
    assert reader.ends(topic)[0] == (0, 1)
    assert reader.fetch(topic, 0, Offset(0), Offset(1))["value"].to_pylist() == [b"before"]
    writer.abort_transaction()
    wait_for(lambda: reader.ends(topic)[0].high == 4)
    batch = reader.fetch(topic, 0, Offset(0), Offset(4))
    assert batch["value"].to_pylist() == [b"before", b"after"]
    assert reader.fetch(topic, 0, Offset(1), Offset(2)).num_rows == 0
    reader.close()


def test_a_new_session_ends_what_a_killed_one_left_open(kafka, settings):
    topic = Topic("stability.left")
    kafka.topics.create([TopicSpec(topic, 1, TopicKind.OUTPUT)])
    dead = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": "left"})
    dead.init_transactions()
    dead.begin_transaction()
    dead.produce(topic, b"never", b"key")
    dead.flush()
    session = Transactions(settings, "left")
    session.init()
    assert session.last_value(topic, b"key") is None
    session.commit([OutRecord(topic, b"key", b"done")])
    session.init()
    assert session.last_value(topic, b"key") == b"done"
    session.close()


def test_a_compacted_chunk_is_missing_and_never_its_neighbour(kafka, settings):
    """Rule 6: a fetch at a vanished offset silently returns the next record."""
    topic = Topic("stability.compacted")
    kafka.topics.create([TopicSpec(topic, 1, TopicKind.DATA)])
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    quick = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {**quick, "max.compaction.lag.ms": "100"}.items()
    ]
    resource = ConfigResource("topic", topic, incremental_configs=entries)
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result()
    first, second, third = kafka.chunks.write(topic, [(b"a", 1), (b"b", 1), (b"c", 1)], {})
    kafka.chunks.forget(topic, [second])

    def vanished() -> bool:
        kafka.chunks.write(topic, [(b"filler", 0)], {})  # rolls the segment
        time.sleep(0.3)
        try:
            assert kafka.chunks.fetch(topic, [second]) == [b"b"]
        except Corrupt:
            return True
        return False

    wait_for(vanished, 180)
    assert kafka.chunks.fetch(topic, [first, third]) == [b"a", b"c"]
    with pytest.raises(Corrupt, match="is missing: the next record is at 2"):
        kafka.chunks.fetch(topic, [first, second, third])
    with pytest.raises(Corrupt, match="missing"):
        kafka.chunks.fetch(topic, [replace(second, key=third.key)])


def test_a_consumer_that_reads_nothing_is_replaced(kafka, settings, monkeypatch):
    """One without brokers may report nothing: here it is told to fetch nothing any more.

    A mark of a transaction behind the last record is no record that waits.
    """
    monkeypatch.setattr(watchdog, "_LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(watchdog, "_LOOK_SHARE", 0)
    for name in ("_LOOK_EVERY_S", "_LOOK_AGAIN_S", "_LOOK_SHARE"):
        monkeypatch.setattr(unread, name, 0.0)
    quick = {**tails.PACE[ConsumerSlot.IDLE], "fetch.wait.max.ms": 200}
    monkeypatch.setattr(tails, "PACE", {**tails.PACE, ConsumerSlot.IDLE: quick})
    topic = Topic("stability.unread")
    kafka.topics.create([TopicSpec(topic, 1, TopicKind.LOG)])
    writer = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": "unread"})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(topic, b"first")
    writer.commit_transaction()
    tail = kafka.logs.tail({topic: Offset(0)})
    looks: list[frozenset[Topic]] = []
    look = tail._unread.look

    def counted(places):
        looks.append(look(places))
        return looks[-1]

    monkeypatch.setattr(tail._unread, "look", counted)
    with contextlib.closing(tail):
        wait_for(lambda: tail.poll(100))
        wait_for(lambda: tail.poll(100) or tail._slots.places()[topic] == 2)
        monkeypatch.setattr(unread, "_PATIENCE_S", 0.5)
        deaf, looked, began = tail._consumers[ConsumerSlot.IDLE], len(looks), time.monotonic()
        while len(looks) < looked + 5 or time.monotonic() < began + 1:
            assert not tail.poll(100)
        assert tail._consumers[ConsumerSlot.IDLE] is deaf, "it read all"
        deaf.pause([TopicPartition(topic, 0)])
        kafka.logs.append([(topic, b"second")])
        (entry,) = wait_for(lambda: tail.poll(100), 180)
        assert entry.value == b"second"
        assert tail._consumers[ConsumerSlot.IDLE] is not deaf


def test_clients_outlive_a_restart_of_the_broker(own, monkeypatch):
    # On a busy machine a broker takes longer to start than clients wait for answers.
    monkeypatch.setattr("streams.kafka.client.clients.ANSWER_TIMEOUT_S", 300.0)
    kafka = KafkaBroker(ClientSettings(own.bootstrap))
    with contextlib.closing(kafka):
        outlive(kafka, own)


def outlive(kafka: KafkaBroker, broker: EmbeddedBroker) -> None:
    log, data = Topic("r.log"), Topic("r.data")
    kafka.topics.create([TopicSpec(log, 1, TopicKind.LOG), TopicSpec(data, 2, TopicKind.DATA)])
    tail = kafka.logs.tail({log: Offset(0)})
    kafka.logs.append([(log, b"before")])
    refs = kafka.chunks.write(data, [(b"before", 1)], {})
    assert wait_for(lambda: tail.poll(100))
    broker.stop()
    assert tail.poll(100) == ()
    appended: list[tuple[Offset, ...]] = []
    waiting = threading.Thread(
        target=lambda: appended.append(kafka.logs.append([(log, b"after")]))
    )
    waiting.start()  # it waits until the broker is back, however soon that is
    time.sleep(1.0)
    broker.start()
    waiting.join()
    assert appended == [(1,)]
    assert kafka.chunks.fetch(data, refs) == [b"before"]
    assert [entry.value for entry in wait_for(lambda: tail.poll(100))] == [b"after"]
    tail.close()


def test_a_hundred_views_are_made_and_followed_in_seconds(kafka):
    logs = [Topic(f"hundred.{number}.log") for number in range(100)]
    specs = [TopicSpec(log, 1, TopicKind.LOG) for log in logs]
    specs += [TopicSpec(Topic(f"hundred.{n}.data"), 2, TopicKind.DATA) for n in range(100)]
    begun = time.monotonic()
    kafka.topics.create(specs)
    tail = kafka.logs.tail(dict.fromkeys(logs, Offset(0)))
    kafka.logs.append([(log, b"x") for log in logs])
    seen: list[Entry] = []
    while len(seen) < 100:
        seen += wait_for(lambda: tail.poll(100))
    assert {entry.topic for entry in seen} == set(logs)
    assert time.monotonic() - begun < 60
    tail.close()
    kafka.topics.delete([spec.name for spec in specs])


def test_partitions_that_a_topic_gets_are_used_by_who_knows_it_already(kafka, settings):
    """Who reads a chunk of a new partition, or deletes it, may not know it yet."""
    topic = Topic("stability.grown")
    kafka.topics.create([TopicSpec(topic, 1, TopicKind.DATA)])
    (old,) = kafka.chunks.write(topic, [(b"old", 1)], {})
    assert kafka.chunks.fetch(topic, [old]) == [b"old"]
    kafka.topics.grow(topic, 3)
    assert kafka.topics.describe(topic).partitions == 3
    other = KafkaBroker(settings)
    try:
        refs = [other.chunks.write(topic, [(b"new", 1)], {})[0] for _ in range(30)]
    finally:
        other.close()
    assert {ref.partition for ref in refs} == {0, 1, 2}
    assert kafka.chunks.fetch(topic, [old, *refs]) == [b"old", *[b"new"] * 30]
    kafka.chunks.forget(topic, refs)
    with contextlib.closing(RawReader(settings)) as reader:
        ends = reader.ends(topic)
        assert sum(end.high for end in ends.values()) == 61
        none = Topic("stability.not-there")
        assert reader.ends_of_all([topic]) == {topic: ends}
        surveyed = reader.ends_of_all([topic, none])
        assert surveyed[topic] == ends
        assert type(surveyed[none]) is Determinate
        highs = {number: end.high for number, end in ends.items()}
        assert reader.highs_of_all({topic: ends}) == {topic: highs}
        polled = reader.highs_of_all({none: [0], topic: ends})
        assert polled[topic] == highs
        assert type(polled[none]) is Determinate
        ids = {topic: kafka.topics.describe(topic).id, none: None}
        assert reader.ids_of_all([none, topic]) == ids


def test_a_topic_that_does_not_exist_has_neither_id_nor_ends(settings):
    none = Topic("stability.none")
    with contextlib.closing(RawReader(settings)) as reader:
        assert reader.ids_of_all([none]) == {none: None}
        assert reader.highs_of_all({none: [0]}) == {}, "it may have no leader yet"
        assert type(reader.ends_of_all([none])[none]) is Determinate
        with pytest.raises(Determinate):
            reader.ends(none)


@pytest.mark.parametrize("loses_brokers", [False, True])
def test_logs_that_change_hands_between_consumers_lose_nothing(
    kafka, monkeypatch, loses_brokers
):
    """Logs become idle and busy again all the time, while they are written to.

    Or a consumer is replaced at any moment, as one that lost all brokers.
    """
    monkeypatch.setattr(watchdog, "_LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(watchdog, "_LOOK_SHARE", 0)
    monkeypatch.setattr(consumer_assignment, "REST_S", 0.1)
    monkeypatch.setattr(consumer_assignment, "FEW", 2)
    monkeypatch.setattr(tails, "_REST_EVERY_S", 0.02)
    quick = {**tails.PACE[ConsumerSlot.IDLE], "fetch.wait.max.ms": 200}
    monkeypatch.setattr(tails, "PACE", {**tails.PACE, ConsumerSlot.IDLE: quick})
    logs = [Topic(f"stability.slots.{loses_brokers}.{number}") for number in range(6)]
    kafka.topics.create([TopicSpec(log, 1, TopicKind.LOG) for log in logs])
    tail = kafka.logs.tail({log: Offset(0) for log in logs[:3]})
    tail.add({log: Offset(0) for log in logs[3:]})
    chance, sent, moved = random.Random(7), dict.fromkeys(logs, 0), set()
    seen: list[Entry] = []
    for _ in range(120):
        log = chance.choice(logs[: chance.choice([1, 6])])
        kafka.logs.append([(log, b"%d" % sent[log])])
        sent[log] += 1
        if loses_brokers and chance.random() < 0.2:
            tail._cut_off.add(chance.choice(list(tail._consumers)))
        seen += tail.poll(chance.choice([0, 1, 20, 150]))
        moved |= {(log, tail._slots._logs[log].slot) for log in logs}
    while len(seen) < 120:
        seen += wait_for(lambda: tail.poll(100))
    assert tail.poll(500) == ()
    tail.close()
    for log in logs:
        values = [entry.value for entry in seen if entry.topic == log]
        assert values == [b"%d" % number for number in range(sent[log])]
    assert len(moved) > len(logs), "some have changed hands"
