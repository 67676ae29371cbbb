"""Shards on a real broker: durable, recovered from the topics, raced for, kept small."""

import itertools
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from streams.errors import Corrupt
from streams.ids import CollectionId, EventId, Offset, Timestamp
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.log import Truncated, WronglyTimed
from streams.kafka.settings import ClientSettings
from streams.progress import frontier
from streams.storage.client import maintenance
from streams.storage.client.group import Group
from streams.storage.client.log_verification import Verdict, skip, verify
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log import event_codec, rollup
from streams.storage.log.events import Advance, Append, Event, Part
from streams.storage.log.outcomes import Appended, RolledUp
from streams.storage.read import reader as read
from tests.support.processes import eventually

pytestmark = pytest.mark.integration

DESCRIPTION = Description((("name", "VARCHAR"),))
names = itertools.count()


@pytest.fixture(scope="module")
def kafka(broker: EmbeddedBroker) -> Iterator[KafkaBroker]:
    memory_broker = KafkaBroker(ClientSettings(broker.bootstrap))
    yield memory_broker
    memory_broker.close()


@pytest.fixture
def u() -> CollectionId:
    return CollectionId(f"shards{next(names)}")


@pytest.fixture
def one(kafka: KafkaBroker) -> Iterator[Shards]:
    opened = client(kafka)
    yield opened
    opened.close()


@pytest.fixture
def other(kafka: KafkaBroker) -> Iterator[Shards]:
    opened = client(kafka)
    yield opened
    opened.close()


def client(kafka: KafkaBroker) -> Shards:
    now_ms = lambda: time.time_ns() // 1_000_000  # noqa: E731  # the one clock of these tests
    return Shards(kafka.logs, kafka.chunks, kafka.topics, now_ms=now_ms, pump=True)


def row(name: str, time_: int) -> pa.Table:
    return pa.table({"c0": [name], "time": [time_], "diff": [1]})


def append(to: Shards, u: CollectionId, lower: int, upper: int, *tables: pa.Table) -> object:
    part = Part(
        collection=u,
        capability=write_capability(u),
        lower=frontier(lower),
        upper=frontier(upper),
        chunks=tuple(ref for table in tables for ref in to.write(u, table)),
    )
    return to.submit([(u, Append((part,)))])[0]


def present(shards: Shards, u: CollectionId, as_of: int) -> list[str]:
    return sorted(read.snapshot(shards, u, Timestamp(as_of))[0].column("c0").to_pylist())


def test_what_one_appends_another_reads(one: Shards, other: Shards, u: CollectionId) -> None:
    one.create(u, u, DESCRIPTION, Timestamp(0))
    other.open(u)
    assert append(one, u, 0, 10, row("a", 3)) == Appended((frontier(10),))
    read.await_upper(other, u, Timestamp(1), 10_000)
    news = read.changes(other, other.state(u), Timestamp(1))
    assert news.updates.column("c0").to_pylist() == ["a"]
    assert append(other, u, 10, 20, row("b", 13)) == Appended((frontier(20),))
    assert present(one, u, 12) == ["a"]
    assert present(one, u, 19) == ["a", "b"]
    assert abs(one.skew_ms(u)) < 5_000


def test_two_writers_race_and_each_time_is_written_once(
    one: Shards, other: Shards, u: CollectionId
) -> None:
    one.create(u, u, DESCRIPTION, Timestamp(0))
    other.open(u)

    def race(shards: Shards, name: str) -> None:
        for number in range(25):
            upper = shards.state(u).upper.time
            append(shards, u, upper, upper + 1, row(f"{name}{number}", upper))

    threads = [
        threading.Thread(target=race, args=(one, "one")),
        threading.Thread(target=race, args=(other, "other")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one.sync(u)
    other.sync(u)
    upper = one.state(u).upper.time
    assert one.state(u) == other.state(u)
    updates, _ = read.snapshot(one, u, Timestamp(upper - 1))
    assert updates.num_rows == upper


def test_a_group_is_rolled_up_truncated_and_recovered(
    kafka: KafkaBroker, one: Shards, u: CollectionId
) -> None:
    one.create(u, u, DESCRIPTION, Timestamp(0))
    for lap in range(3):
        for _ in range(70):
            upper = one.state(u).upper.time
            append(one, u, upper, upper + 1, *([row(f"r{upper}", upper)] * (upper % 10 == 0)))
        assert isinstance(maintenance.roll_up(one, u), RolledUp), lap
    assert kafka.logs.bounds(one.names(u).log)[0] > 100
    late = client(kafka)
    late.open(u)
    assert rollup.encode(late.group_state(u)) == rollup.encode(one.group_state(u))
    assert present(late, u, 205) == sorted(f"r{time_}" for time_ in range(0, 206, 10))
    late.close()


def test_a_topic_that_was_made_anew_is_noticed(
    kafka: KafkaBroker, one: Shards, other: Shards, u: CollectionId
) -> None:
    one.create(u, u, DESCRIPTION, Timestamp(0))
    for upper in range(3):
        append(one, u, upper, upper + 1)
    other.delete(u)
    other.create(u, u, DESCRIPTION, Timestamp(0))
    with pytest.raises((Truncated, Corrupt)):
        one.sync(u)


def test_who_was_away_while_its_log_was_truncated_opens_again_from_the_rollup(
    one: Shards, other: Shards, u: CollectionId
) -> None:
    """A broker says that the offset is out of range; nothing is lost, so nobody is told."""
    one.create(u, u, DESCRIPTION, Timestamp(0))
    other.open(u)
    group = other.following.group(u)
    other.following.leave(u)
    log = one.names(u).log
    while one.logs.bounds(log)[0] <= group.state.upto + 1:
        idle = [Advance(Timestamp(lower), Timestamp(lower + 1)) for lower in range(200)]
        one.submit([(u, advance) for advance in idle])
        maintenance.roll_up(one, u)
    other.following.follow(group)  # from where it was
    other.sync(u)
    assert rollup.encode(other.group_state(u)) == rollup.encode(one.group_state(u))
    upper = other.state(u).upper.time
    assert isinstance(append(other, u, upper, upper + 1), Appended)
    assert other.status().is_well


def test_a_record_with_its_writers_time_is_got_past(
    broker: EmbeddedBroker, kafka: KafkaBroker, one: Shards, other: Shards, u: CollectionId
) -> None:
    """Of a topic that somebody configured, and that took a record before it was put right."""
    beside = CollectionId(f"{u}b")
    for id_ in (u, beside):
        one.create(id_, id_, DESCRIPTION, Timestamp(0))
    other.open(u)
    append(one, u, 0, 10, row("a", 3))
    identity = one.identity(u) or ""
    place = ConfigResource(ConfigResource.Type.TOPIC, one.names(u).log)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def timed(kind: str) -> None:
        operation = AlterConfigOpType.SET
        place.incremental_configs = [
            ConfigEntry("message.timestamp.type", kind, incremental_operation=operation)
        ]
        admin.incremental_alter_configs([place])[place].result()

    timed("CreateTime")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    event = Event(EventId("t"), identity, Offset(1), Advance(Timestamp(0), Timestamp(99)))
    producer.produce(one.names(u).log, event_codec.encode(event), partition=0)
    producer.flush()
    timed("LogAppendTime")
    with pytest.raises(WronglyTimed):
        one.sync(u)
    assert isinstance(append(one, beside, 0, 10, row("b", 3)), Appended)
    group = Group(one.names(u), topic_id=identity, uuid=identity)
    verdict = verify(kafka.logs, kafka.chunks, group)
    assert [flaw.offset for flaw in verdict.flaws] == [2]
    skip(kafka.logs, verdict, 2, EventId("skip-time"), "CreateTime")
    fresh = client(kafka)
    try:
        fresh.open(u)
        assert append(fresh, u, 10, 20, row("b", 13)) == Appended((frontier(20),))
        for shards in (fresh, one, other):
            shards.open(u)
            shards.sync(u)
            assert present(shards, u, 19) == ["a", "b"]
    finally:
        fresh.close()


def test_a_foreign_record_of_a_transaction_and_its_mark_are_got_past(
    broker: EmbeddedBroker, kafka: KafkaBroker, one: Shards, other: Shards, u: CollectionId
) -> None:
    """The record by an operator's word; the mark, which no consumer is shown, by itself."""
    one.create(u, u, DESCRIPTION, Timestamp(0))
    other.open(u)
    append(one, u, 0, 10, row("a", 3))
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"stray-{u}"}
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(one.names(u).log, b"noise", partition=0)
    producer.commit_transaction()
    identity = one.identity(u) or ""

    def verdict() -> Verdict:
        group = Group(one.names(u), topic_id=identity, uuid=identity)
        return verify(kafka.logs, kafka.chunks, group)

    (flaw,) = verdict().flaws
    assert flaw.offset == 2
    fresh = client(kafka)
    try:
        skip(kafka.logs, verdict(), 2, EventId("skip"), "a transaction")
        fresh.open(u)
        assert append(fresh, u, 10, 20, row("b", 13)) == Appended((frontier(20),))
        for shards in (one, other):
            shards.open(u)
            shards.sync(u)
            assert present(shards, u, 19) == ["a", "b"]
        assert verdict().is_sound
        producer.begin_transaction()
        event = Event(EventId("t"), identity, Offset(4), Advance(Timestamp(0), Timestamp(1)))
        producer.produce(one.names(u).log, event_codec.encode(event), partition=0)
        producer.commit_transaction()  # an event of ours, and a mark at the end, a little later
        eventually(lambda: kafka.logs.bounds(one.names(u).log)[1] == 8)
        for shards in (one, fresh):
            shards.sync(u)
            assert shards.group_state(u).upto == 7
    finally:
        fresh.close()
