"""SubscribeAt: snapshot, changes at their times, in-line uppers, options, both ends' cancel."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from schemas import chunk
from streams.errors import InvalidUsage
from streams.ids import Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.progress import EMPTY, Antichain, frontier
from streams.storage import Storage
from streams.storage.client import maintenance
from streams.storage.client.handles import (
    FencedCapability,
    InvalidCapability,
    ReadCapability,
    WriteCapability,
)
from streams.storage.client.lifecycle import Unreadable
from streams.storage.log import rollup
from streams.storage.log.state import State
from streams.storage.read.options import Comparison, Operator, Options
from streams.storage.read.reader import Loaded
from streams.storage.read.subscription import Delivery, Subscription
from streams.trace.kernel import pool
from streams.trace.kernel.kernel import Kernel
from tests.support.storages import T1, TABLE, Place, contents, end, write


def taken(subscription: Subscription) -> Delivery:
    delivery = subscription.poll()
    assert delivery is not None
    assert delivery.upper == subscription.upper
    return delivery


def filled(storage: Storage) -> tuple[ReadCapability, WriteCapability]:
    """a at 1, b at 3, a gone at 5, c at 12; upper 20."""
    read, writer = storage.create(T1, TABLE)
    writer = write(storage, writer, 10, ("a", 1, 1, 1), ("b", 2, 3, 1), ("a", 1, 5, -1))
    return read, write(storage, writer, 20, ("c", 3, 12, 1))


def test_snapshot_then_changes_at_their_times(storage: Storage) -> None:
    read, writer = filled(storage)
    subscription = storage.subscribe_at(storage.downgrade(read, 4))
    first = taken(subscription)
    assert contents(first.updates) == {("a", 1, 4): 1, ("b", 2, 4): 1}
    assert first.upper == frontier(5)
    second = taken(subscription)
    assert contents(second.updates) == {("a", 1, 5): -1, ("c", 3, 12): 1}
    assert second.upper == frontier(20)
    assert subscription.poll() is None
    writer = write(storage, writer, 30)
    idle = taken(subscription)  # time has passed, and that is said too
    assert (idle.updates.num_rows, idle.upper) == (0, frontier(30))
    assert idle.updates.column_names == ["c0", "c1", "time", "diff"]
    storage.update_and_downgrade(writer, None, EMPTY)
    assert taken(subscription).upper == EMPTY
    assert subscription.is_over
    assert subscription.poll() is None


def test_a_snapshot_is_consolidated(storage: Storage) -> None:
    read, _ = filled(storage)
    first = taken(storage.subscribe_at(storage.downgrade(read, 6)))
    assert first.updates.to_pylist() == [{"c0": "b", "c1": 2, "time": 6, "diff": 1}]


def test_a_frontier_at_upper_waits_without_a_thread(storage: Storage) -> None:
    read, writer = storage.create(T1, TABLE, start=5)
    calls: list[None] = []
    subscription = storage.subscribe_at(read)
    stop = subscription.subscribe(lambda: calls.append(None))
    assert subscription.poll() is None
    assert not subscription.wait(timeout_ms=5)
    write(storage, writer, 10, ("a", 1, 5, 1), ("b", 2, 6, 1))
    assert calls
    assert contents(taken(subscription).updates) == {("a", 1, 5): 1}
    stop()


def test_no_snapshot_begins_after_the_frontier(storage: Storage) -> None:
    read, _ = filled(storage)
    subscription = storage.subscribe_at(storage.downgrade(read, 3), Options(snapshot=False))
    assert subscription.upper == frontier(4)
    assert contents(taken(subscription).updates) == {("a", 1, 5): -1, ("c", 3, 12): 1}


def test_until_ends_it(storage: Storage) -> None:
    read, _ = filled(storage)
    options = Options(until=Timestamp(12))
    deliveries = list(storage.subscribe_at(read, options))
    assert [delivery.upper for delivery in deliveries] == [frontier(1), EMPTY]
    assert contents(deliveries[1].updates) == {
        ("a", 1, 1): 1,
        ("b", 2, 3): 1,
        ("a", 1, 5): -1,
    }
    (only,) = storage.subscribe_at(read, Options(until=Timestamp(1)))
    assert only.upper == EMPTY
    with pytest.raises(InvalidUsage, match="until"):
        storage.subscribe_at(storage.downgrade(read, 5), Options(until=Timestamp(5)))


def test_filter_and_projection(storage: Storage) -> None:
    read, writer = filled(storage)
    write(storage, writer, 30, (None, None, 22, 1))
    options = Options(
        where=(
            Comparison("size", Operator.GREATER_EQUAL, 2),
            Comparison("name", Operator.NOT_EQUAL, "x"),
        ),
        columns=("size",),
    )
    deliveries = list(storage.subscribe_at(read, replace(options, until=Timestamp(30))))
    assert deliveries[0].updates.num_rows == 0
    assert deliveries[1].updates.to_pylist() == [
        {"c0": 2, "time": 3, "diff": 1},
        {"c0": 3, "time": 12, "diff": 1},
    ]


def test_chunks_that_hold_nothing_wanted_are_not_fetched(
    place: Place, storage: Storage
) -> None:
    read, writer = storage.create(T1, TABLE)
    for block in range(4):
        rows = [(f"n{block}{n:03}", block * 1_000 + n, block, 1) for n in range(300)]
        writer = write(storage, writer, block + 1, *rows)
    writer = write(storage, writer, 5, ("few", 7, 4, 1))  # too small for ranges: always read
    fetched: list[int] = []
    reader = place.client()
    fetch = reader.shards.chunks.fetch

    def counted(topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        fetched.append(len(refs))
        return fetch(topic, refs)

    reader.shards.chunks.fetch = counted  # type: ignore[method-assign]
    for where, chunks, rows_ in [
        ((Comparison("size", Operator.EQUAL, 2_007),), 2, 1),
        ((Comparison("size", Operator.LESS, 1_000),), 2, 301),
        ((Comparison("name", Operator.GREATER_EQUAL, "n2"),), 3, 600),
        (
            (
                Comparison("size", Operator.GREATER, 1_299),
                Comparison("size", Operator.LESS_EQUAL, 2_000),
            ),
            2,
            1,
        ),
        ((Comparison("size", Operator.NOT_EQUAL, 0),), 5, 1_200),
    ]:
        fetched.clear()
        as_of = reader.clone(read)
        options = Options(where=where, until=Timestamp(5))
        deliveries = list(reader.subscribe_at(as_of, options))
        assert sum(delivery.updates.num_rows for delivery in deliveries) == rows_
        assert sum(fetched) == chunks
    # what a Rollup brings back has its ranges too
    state = storage.shards.group_state(T1)
    again = rollup.decode(rollup.encode(state))
    assert rollup.encode(again) == rollup.encode(state)
    assert ranges_in(again) == ranges_in(state)


def test_a_reader_of_one_column_takes_the_memory_of_one(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka sends records whole; of each chunk what is not wanted goes before the next."""
    read, writer = storage.create(T1, TABLE)
    for block in range(16):
        rows = [(f"{block}.{n}" + "x" * 4096, n, block, 1) for n in range(100)]
        writer = write(storage, writer, block + 1, *rows)
    before, decode, held_then = pa.total_allocated_bytes(), chunk.decode, list[int]()

    def watched(body: bytes) -> Loaded:
        held_then.append(pa.total_allocated_bytes() - before)
        return decode(body)

    monkeypatch.setattr(chunk, "decode", watched)
    options = Options(columns=("size",), until=Timestamp(16))
    [first] = storage.subscribe_at(storage.downgrade(read, 15), options)
    assert first.updates.num_rows == 1600
    assert first.updates.schema.names == ["c0", "time", "diff"]
    assert len(held_then) == 16
    assert max(held_then) < 1 << 20, "all columns take 6 MB"


def ranges_in(state: State) -> list[object]:
    batches = state.collections[T1].batches.ordered()
    return [chunk.ranges for batch in batches for chunk in batch.chunks]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(columns=("nothing",)), "actual nothing"),
        (Options(where=(Comparison("nothing", Operator.EQUAL, 1),)), "actual nothing"),
        (Options(where=(Comparison("size", Operator.EQUAL, "big"),)), "cannot be compared"),
        (Options(where=(Comparison("name", Operator.EQUAL, 7),)), "cannot be compared"),
        (Options(where=(Comparison("size", Operator.LESS, 1 << 64),)), "cannot be compared"),
    ],
)
def test_options_are_refused_at_once(storage: Storage, options: Options, why: str) -> None:
    read, _ = filled(storage)
    with pytest.raises(InvalidUsage, match=why):
        storage.subscribe_at(read, options)


def test_any_client_resumes_from_a_time_it_holds(place: Place, storage: Storage) -> None:
    read, writer = filled(storage)
    subscription = storage.subscribe_at(read)
    upper: Antichain = frontier(0)
    for _ in range(2):
        upper = taken(subscription).upper
    stored = storage.downgrade(read, upper.time - 1)
    storage.close()
    other = place.client()
    write(other, writer, 30, ("d", 4, 25, 1))
    again = other.subscribe_at(stored, Options(snapshot=False))
    assert contents(taken(again).updates) == {("d", 4, 25): 1}


def test_this_end_cancels(storage: Storage) -> None:
    read, _ = filled(storage)
    subscription = storage.subscribe_at(read)
    subscription.cancel()
    assert subscription.is_over
    assert subscription.poll() is None
    assert list(subscription) == []


def test_the_other_end_cancels(place: Place, storage: Storage) -> None:
    read, writer = filled(storage)
    short = storage.clone(read, lease_ms=100)
    expiring, dropped = storage.subscribe_at(short), storage.subscribe_at(read)
    place.now_ms += 200
    write(storage, writer, 30)
    with pytest.raises(InvalidCapability, match="has expired"):
        expiring.poll()
    assert taken(dropped).upper == frontier(1)
    end(place.client(), T1)
    storage.shards.sync(T1)
    with pytest.raises(Unreadable):
        dropped.poll()


def test_a_fenced_reader_is_told(storage: Storage) -> None:
    read, _ = storage.create(T1, TABLE, critical=True)
    subscription = storage.subscribe_at(read)
    mine = storage.downgrade(read, 0, token="mine")
    with pytest.raises(FencedCapability):
        subscription.poll()
    with pytest.raises(FencedCapability):
        storage.subscribe_at(read).poll()
    assert storage.subscribe_at(mine).poll() is None


def test_who_downgrades_past_what_was_not_delivered_is_told(storage: Storage) -> None:
    read, _ = filled(storage)
    subscription = storage.subscribe_at(read)
    storage.downgrade(read, 10)
    with pytest.raises(InvalidUsage, match="since"):
        subscription.poll()


def test_a_waiting_thread_is_woken(place: Place) -> None:
    writer, reader = place.client(), place.client()
    read, write_capability = writer.create(T1, TABLE)
    subscription = reader.subscribe_at(read)
    deliveries: list[Delivery] = []
    waiting = threading.Thread(target=lambda: deliveries.extend(subscription))
    waiting.start()
    write_capability = write(writer, write_capability, 10, ("a", 1, 0, 1))
    writer.update_and_downgrade(write_capability, pa.table({}).slice(0), EMPTY)
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    assert contents(deliveries[0].updates) == {("a", 1, 0): 1}
    assert deliveries[-1].upper == EMPTY


def truncated_beyond(one: Storage, held: WriteCapability, upto: int) -> WriteCapability:
    """Others write on until the log no longer holds what comes after `upto`."""
    shards = one.shards
    log = shards.names(T1).log
    while shards.logs.bounds(log)[0] <= upto + 1:
        for _ in range(70):
            upper = held.frontier.time
            held = write(one, held, upper + 1, (f"r{upper}", 1, upper, 1))
        maintenance.roll_up(shards, T1)
    return held


def test_a_subscriber_who_was_away_goes_on_where_it_stood(place: Place) -> None:
    one, other = place.client(), place.client()
    read, writer = filled(one)
    subscription = other.subscribe_at(read)
    assert taken(subscription).upper == frontier(1)
    assert taken(subscription).upper == frontier(20)
    writer = truncated_beyond(one, writer, other.shards.group_state(T1).upto)
    after = taken(subscription)
    assert after.upper == writer.frontier
    assert len(contents(after.updates)) == writer.frontier.time - 20


def test_a_subscriber_whose_right_expired_while_it_was_away_is_told(place: Place) -> None:
    one, other = place.client(), place.client()
    read, writer = filled(one)
    subscription = other.subscribe_at(read)
    taken(subscription)
    one.drop(read)
    truncated_beyond(one, writer, other.shards.group_state(T1).upto)
    other.shards.sync(T1)
    with pytest.raises(InvalidCapability, match="acquire"):
        subscription.poll()


def test_the_contents_of_a_sealed_collection_at_the_last_time_there_is(
    storage: Storage,
) -> None:
    """It used to be over at once, without them."""
    read, writer = filled(storage)
    storage.update_and_downgrade(writer, None, EMPTY)
    last = storage.downgrade(read, (1 << 63) - 1)
    subscription = storage.subscribe_at(last)
    delivery = taken(subscription)
    rows = {row[:2] for row in contents(delivery.updates)}
    assert rows == {("b", 2), ("c", 3)}
    assert delivery.upper == EMPTY
    assert subscription.is_over


def test_subscriptions_of_a_client_share_a_kernel(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Kernel] = []

    def starting() -> Kernel:
        started.append(Kernel())
        return started[-1]

    monkeypatch.setattr(pool, "Kernel", starting)
    read, _ = filled(storage)
    subscriptions = [storage.subscribe_at(storage.downgrade(read, 4)) for _ in range(3)]
    for subscription in subscriptions:
        taken(subscription)
        assert -1 in taken(subscription).updates.column("diff").to_pylist()
    assert len(started) == 1
