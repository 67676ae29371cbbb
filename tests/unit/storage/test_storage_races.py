"""What Storage tells is what is read: under races, and when the log does not answer."""

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.compaction.collector import Collector
from streams.errors import Corrupt, Determinate
from streams.ids import Timestamp, Topic
from streams.kafka.log import ChunkRef, Chunks, ChunkWrite
from streams.kafka.memory.faulty import Fault, FaultyBroker, FaultyLogs
from streams.kafka.memory.records import MemoryRawReader
from streams.progress import frontier
from streams.storage import Storage
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.client.lifecycle import Forgotten
from streams.storage.client.shards import Shards
from streams.storage.log.events import Reclaim
from streams.storage.log.outcomes import UpperMismatch
from streams.storage.read.options import Options
from tests.support.examples import examples
from tests.support.storages import T1, T2, TABLE, Place, contents, end, table, write

ROUNDS = 60
Told = dict[tuple[object, ...], int]


def race(client: Storage, held: WriteCapability, name: str, outcomes: Told) -> None:
    """Write one row a round under a capability that others hold too."""
    for number in range(ROUNDS):
        while True:
            time = held.frontier.time
            done = client.update_and_downgrade(held, table((name, number, time, 1)), time + 1)
            if isinstance(done, WriteCapability):
                outcomes[name, number, time] = 1
                held = done
                break
            held = replace(held, frontier=done.current)


def everything(client: Storage, read: ReadCapability, upper: int) -> Told:
    outcomes: Told = {}
    for delivery in client.subscribe_at(read, Options(until=Timestamp(upper))):
        outcomes.update(contents(delivery.updates))
    return outcomes


def test_two_writers_are_told_what_is_read() -> None:
    place = Place()
    first = place.client()
    read, write_capability = first.create(T1, TABLE)
    outcomes: list[Told] = [{}, {}]
    writers = [
        threading.Thread(target=race, args=(place.client(), write_capability, name, mine))
        for name, mine in zip("ab", outcomes, strict=True)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=60)
    assert all(len(mine) == ROUNDS for mine in outcomes)
    assert everything(first, read, 2 * ROUNDS) == {**outcomes[0], **outcomes[1]}


@examples(25)
@given(st.lists(st.sampled_from([Fault.NONE, Fault.BEFORE, Fault.AFTER]), max_size=12))
def test_a_command_that_raises_determinate_had_no_effect(plan: list[Fault]) -> None:
    place = Place()
    read, writer = place.client().create(T1, TABLE)
    broker = place.broker
    logs = FaultyLogs(broker.logs, plan)
    faulty = Storage(Shards(logs, broker.chunks, broker.topics, now_ms=lambda: 0))
    outcomes: Told = {}
    for number in range(8):
        rows = table(("a", number, number, 1))
        try:
            done = faulty.update_and_downgrade(writer, rows, number + 1)
        except Determinate:
            done = place.client().update_and_downgrade(writer, rows, number + 1)
        assert not isinstance(done, UpperMismatch)
        writer, outcomes["a", number, number] = done, 1
    assert everything(place.client(), read, 8) == outcomes


class Reclaiming:
    """Chunks that a collector takes, now and then, before anybody links them."""

    def __init__(self, inner: Chunks, place: Place, often: float) -> None:
        self._inner, self._often, self._rng = inner, often, random.Random(5)
        self._shards = place.client().shards
        self._collector = Collector(
            self._shards, MemoryRawReader(place.broker.store), lambda: place.now_ms
        )
        self.taken = 0

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        refs = self._inner.write(topic, bodies, headers)
        if self._rng.random() < self._often:
            group = topic.removeprefix("sw.").removesuffix(".data")
            self._shards.open(group)
            ends = self._collector.ends(group)
            self.taken += len(self._collector.reclaim(group, ends))
        return refs

    def write_all(self, chunks: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        return [self.write(*arguments) for arguments in chunks]

    def __getattr__(self, name: str):
        return getattr(self._inner, name)


def test_what_a_collector_took_before_it_was_linked_is_written_anew() -> None:
    """Rule 7: the Append that names it is void, and the writer's rows are not lost."""
    place = Place()
    first = place.client()
    read, write_capability = first.create(T1, TABLE)
    outcomes: list[Told] = [{}, {}]
    clients = [place.client() for _ in outcomes]
    greedy = [Reclaiming(client.shards.chunks, place, 0.3) for client in clients]
    for client, chunks in zip(clients, greedy, strict=True):
        client.shards.chunks = chunks
    writers = [
        threading.Thread(target=race, args=(client, write_capability, name, mine))
        for client, name, mine in zip(clients, "ab", outcomes, strict=True)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=60)
    assert all(len(mine) == ROUNDS for mine in outcomes)
    assert everything(first, read, 2 * ROUNDS) == {**outcomes[0], **outcomes[1]}
    assert all(chunks.taken for chunks in greedy)


def test_a_write_that_surfaces_late_does_no_harm() -> None:
    place = Place()
    read, writer = place.client().create(T1, TABLE)
    logs = FaultyLogs(place.broker.logs, [Fault.INSTEAD])
    faulty = Storage(Shards(logs, place.broker.chunks, place.broker.topics, now_ms=lambda: 0))
    writer = write(faulty, writer, 5, ("a", 1, 3, 1))  # sent again as it was, and counted
    logs.surface()
    assert write(faulty, writer, 9, ("b", 2, 7, 1)).frontier == frontier(9)
    assert everything(place.client(), read, 9) == {("a", 1, 3): 1, ("b", 2, 7): 1}


def test_a_damaged_chunk_fails_its_own_collection_alone() -> None:
    place = Place()
    storage = place.client()
    read, writer = storage.create(T1, TABLE)
    write(storage, writer, 5, ("a", 1, 3, 1))
    other_read, other = storage.create(T2, TABLE)
    write(storage, other, 5, ("b", 1, 3, 1))
    (batch,) = storage.shards.state(T1).batches
    storage.shards.chunks.forget(storage.shards.data_topic(T1), batch.chunks)
    chunk: ChunkRef = batch.chunks[0]
    place_of = f"sw.t1.data/{chunk.partition}@{chunk.offset}"
    with pytest.raises(Corrupt, match=place_of):
        everything(storage, read, 5)
    assert everything(storage, other_read, 5) == {("b", 1, 3): 1}


def test_a_group_whose_log_is_gone_fails_alone() -> None:
    place = Place()
    storage = place.client()
    _, writer = storage.create(T1, TABLE)
    _, other = storage.create(T2, TABLE)
    names = storage.shards.names(T1)
    place.broker.topics.delete([names.log, names.data])
    with pytest.raises(Determinate, match=names.log):
        write(storage, writer, 5)
    assert write(storage, other, 5).frontier == frontier(5)


def test_a_write_overtaken_by_a_collector_is_written_anew() -> None:
    """The floor was raised between the chunk and the Append that links it (rule 7)."""
    place = Place()
    read, write_capability = place.client().create(T1, TABLE)
    collector = place.client()
    collector.shards.open(T1)
    turns = iter([None, None, None])

    def collect() -> None:
        """Before the Append, of the first and of the second attempt."""
        if place.broker.store.partition(names.log, 0).end > 1 and next(turns, "over") is None:
            floor = dict.fromkeys(range(4), 100)
            collector.shards.submit([(T1, Reclaim(floor))])

    names = collector.shards.names(T1)
    way = FaultyBroker(place.broker, collect)
    writer = Storage(Shards(way.logs, way.chunks, way.topics, now_ms=lambda: 0))
    for partition in place.broker.store.topic(names.data).partitions:
        partition.end = 99  # the floor of the collector is above what is written next
    writer.heartbeat(write_capability)
    write_capability = write(writer, write_capability, 5, ("a", 1, 3, 1))
    assert everything(place.client(), read, 5) == {("a", 1, 3): 1}
    floor = collector.shards.group_state(T1).floor
    assert floor


def test_a_write_that_meets_a_drop_says_that_the_collection_is_gone(place: Place) -> None:
    """Between the look at the capability and the rows nothing may be left of it."""
    storage, other = place.client(), place.client()
    _, writer = storage.create(T1, TABLE)
    other.shards.open(T1)
    end(other, T1)
    storage.shards.sync(T1)
    with pytest.raises(Forgotten):
        storage.shards.write_all([(T1, table(("a", 1, 3, 1)))])
    with pytest.raises(Forgotten):
        storage.update_and_downgrade(writer, table(("a", 1, 3, 1)), 10)
