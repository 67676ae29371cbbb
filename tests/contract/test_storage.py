"""What goes wrong under Storage, on every log there is: each answered by name, others go on."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage
from streams.ids import CollectionId, Offset, Timestamp
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.log import Logs, Truncated
from streams.kafka.memory.faulty import UNKNOWN, Fault, FaultyLogs
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import EMPTY, frontier
from streams.storage import Storage
from streams.storage.client.handles import (
    InvalidCapability,
    NotForward,
    ReadCapability,
    WriteCapability,
)
from streams.storage.client.id_registry import Directory
from streams.storage.client.lifecycle import Forgotten, NeverReused, NotBound, Unreadable
from streams.storage.client.shards import Shards
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from streams.storage.read.options import Options
from streams.storage.write.validation import OutsideInterval, WrongRows
from tests.support.processes import eventually
from tests.support.storages import SCHEMA, TABLE, contents, table, write

_spaces = itertools.count()
SIX_HOURS_MS = 6 * 3_600_000
T, OTHER = CollectionId("t"), CollectionId("other")
Found = dict[tuple[object, ...], int]


@dataclass
class Place:
    """A namespace of its own on a broker, and clients of it."""

    broker: MemoryBroker | KafkaBroker
    stack: ExitStack
    space: str

    def client(
        self, skew_ms: int = 0, logs: Logs | None = None, *, pump: bool = True
    ) -> Storage:
        shards = Shards(
            logs or self.broker.logs,
            self.broker.chunks,
            self.broker.topics,
            namespace=self.space,
            now_ms=lambda: time.time_ns() // 1_000_000 + skew_ms,
            pump=pump,
            resend_ms=(300, 300, 300),
        )
        return self.stack.enter_context(Storage(shards))


@pytest.fixture
def place(storage: MemoryBroker | KafkaBroker) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(storage, stack, f"faults{next(_spaces)}")


@pytest.fixture
def client(place: Place) -> Storage:
    return place.client()


def everything(client: Storage, read: ReadCapability, until: int) -> Found:
    events: Found = {}
    for delivery in client.subscribe_at(read, Options(until=Timestamp(until))):
        events.update(contents(delivery.updates))
    return events


def test_what_is_not_known_or_not_held(client: Storage) -> None:
    with pytest.raises(NotBound, match="create it first"):
        client.acquire_capabilities(T)
    read, writer = client.create(T, TABLE)
    _, foreign = client.create(OTHER, TABLE)
    with pytest.raises(InvalidCapability, match=f"it is one to collection {OTHER}|expired"):
        write(client, replace(foreign, id=T), 5, ("a", 1, 1, 1))
    writer = write(client, writer, 10, ("a", 1, 1, 1))
    with pytest.raises(NotForward, match="expected a frontier beyond"):
        client.downgrade(writer, 3)
    with pytest.raises(OutsideInterval, match="actual 25"):
        write(client, writer, 20, ("a", 1, 25, 1))
    wide = table(("a", 1, 12, 1)).set_column(1, "size", pa.array(["1"]))
    with pytest.raises(WrongRows, match="column size: expected int32, actual string"):
        client.update_and_downgrade(writer, wide, 20)
    with pytest.raises(WrongRows, match="column diff: expected no NULL"):
        write(client, writer, 20, ("a", 1, 12, None))  # type: ignore[arg-type]  # that is it
    assert everything(client, read, 10) == {("a", 1, 1): 1}


def test_an_expired_capability_is_refused(place: Place) -> None:
    keeper = place.client()
    read, write = keeper.create(T, TABLE, critical=True)
    short = keeper.clone(write, lease_ms=200)
    clock = keeper.shards.group_state(T).clock_ms
    while keeper.shards.group_state(T).clock_ms < clock + 400:
        time.sleep(0.1)
        keeper.heartbeat(write)  # the log's clock moves by its records
    with pytest.raises(InvalidCapability, match="expired"):
        keeper.update_and_downgrade(short, table(), short.frontier)
    assert keeper.heartbeat(read) == read


def test_large_rows_are_split_and_one_that_is_too_large_is_refused(client: Storage) -> None:
    read, writer = client.create(T, TABLE)
    names = [f"{n}{'x' * 700_000}" for n in range(6)] + [f"s{n}" for n in range(5_000)]
    count = len(names)
    columns = [names, list(range(count)), [1] * count, [1] * count]
    rows = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    done = client.update_and_downgrade(writer, rows, 5)
    assert isinstance(done, WriteCapability)
    contents = everything(client, read, 5)
    assert {key[0] for key in contents} == set(names)
    huge = os.urandom(5 << 20).hex()  # 10 MiB that do not compress to 8
    with pytest.raises(InvalidUsage, match="bytes of a packed row"):
        write(client, done, 9, (huge * 2, 1, 7, 1))
    assert write(client, done, 9, ("a", 1, 7, 1)).frontier == frontier(9)


@pytest.mark.parametrize("fault", sorted(UNKNOWN, key=str), ids=lambda fault: fault.name)
def test_an_outcome_that_is_not_known_is_read_back(place: Place, fault: Fault) -> None:
    logs = FaultyLogs(place.broker.logs)
    client = place.client(logs=logs)
    read, writer = client.create(T, TABLE)
    logs.plan([fault, fault])
    writer = write(client, writer, 5, ("a", 1, 3, 1))
    logs.surface()
    writer = write(client, writer, 9, ("b", 1, 7, 1))
    assert everything(place.client(), read, 9) == {("a", 1, 3): 1, ("b", 1, 7): 1}


def spoil_record(place: Place, client: Storage) -> None:
    place.broker.logs.append([(client.shards.names(T).log, b"no event")])


def delete_topics(place: Place, client: Storage) -> None:
    names = client.shards.names(T)
    place.broker.topics.delete([names.log, names.data])


def make_anew(place: Place, client: Storage) -> None:
    delete_topics(place, client)
    other = place.client()
    other.shards.create(T, T, TABLE, Timestamp(0))


@pytest.mark.parametrize(
    ("spoil", "kinds", "message"),
    [
        (spoil_record, (Corrupt, Indeterminate), "{log}/0@{offset}"),
        (delete_topics, (Determinate, Indeterminate), "{log}"),
        (make_anew, (Truncated, Indeterminate), "{log}"),
    ],
    ids=["corrupted record", "deleted", "made anew"],
)
def test_a_log_that_is_damaged_fails_its_own_collection_alone(
    place: Place,
    client: Storage,
    spoil: Callable[[Place, Storage], None],
    kinds: tuple[type[Exception], ...],
    message: str,
) -> None:
    _, writer = client.create(T, TABLE)
    for upper in (5, 10, 15):
        writer = write(client, writer, upper, ("a", 1, upper - 1, 1))
    other_read, other = client.create(OTHER, TABLE)
    offset = client.shards.group_state(T).upto + 1
    spoil(place, client)
    name = client.shards.names(T).log
    with pytest.raises(kinds, match=message.format(log=name, offset=offset)):
        await_failure(client, writer)
    until(lambda: set(client.status().failed) == {T})
    other = write(client, other, 5, ("b", 1, 3, 1))
    assert everything(client, other_read, 5)
    assert name in str(client.status())


@pytest.mark.parametrize("pump", [True, False])
@pytest.mark.parametrize("id_", [T, CollectionId("u1")])
def test_what_was_dropped_and_deleted_is_not_lost(
    place: Place, client: Storage, id_: CollectionId, *, pump: bool
) -> None:
    """Also for a client that has read nothing since before the drop."""
    client.shards.create(id_, id_, TABLE, Timestamp(0)) if id_ != T else client.create(T, TABLE)
    old = place.client(pump=pump)
    read, write = old.acquire_capabilities(id_)
    client.shards.drop(id_)
    Directory(client.shards).retire(id_, [id_])
    client.shards.delete(id_)
    for client_ in (old, place.client()):
        capabilities = client_.acquire_capabilities(id_)
        assert [capability.frontier for capability in capabilities] == [EMPTY, EMPTY]
        with pytest.raises(Forgotten):
            client_.heartbeat(read)
        with pytest.raises(Unreadable):
            client_.subscribe_at(read)
        with pytest.raises(NeverReused):
            client_.create(id_, TABLE)
        client_.drop(write)
        until(lambda follower=client_: follower.status().failed == {})  # type: ignore[misc]


@pytest.mark.parametrize("pump", [True, False])
def test_what_was_deleted_and_not_dropped_is_lost(
    place: Place, client: Storage, *, pump: bool
) -> None:
    client.create(T, TABLE)
    old = place.client(pump=pump)
    _, write = old.acquire_capabilities(T)
    delete_topics(place, client)
    name = client.shards.names(T).log
    for storage in (old, place.client()):
        with pytest.raises((Determinate, Indeterminate), match=name):
            storage.heartbeat(write)
        with pytest.raises((Determinate, Indeterminate), match=name):
            storage.acquire_capabilities(T)
    with pytest.raises(Truncated, match=f"{name} .* no drop of the collection is on record"):
        place.client().create(T, TABLE)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def await_failure(client: Storage, write: WriteCapability) -> None:
    """Give commands until one fails; a client notices what happens to a topic in seconds."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        client.shards.sync(T)
        client.heartbeat(write)
        time.sleep(0.2)


def test_a_log_that_lost_its_beginning_is_refused_by_name(place: Place) -> None:
    client = place.client()
    _, writer = client.create(T, TABLE)
    for upper in (5, 10, 15):
        writer = write(client, writer, upper)
    name = client.shards.names(T).log
    place.broker.logs.truncate(name, Offset(2))
    late = place.client()
    with pytest.raises(Truncated, match=f"log {name} cannot be read from offset 0"):
        late.heartbeat(writer)
    assert write(client, writer, 20).frontier == frontier(20)  # who had read it goes on


def test_a_corrupted_chunk_names_its_place(place: Place, client: Storage) -> None:
    read, writer = client.create(T, TABLE)
    (good,) = client.shards.write(T, table(("a", 1, 3, 1)).rename_columns(COLUMNS))
    part = Part(
        collection=T,
        capability=writer.name,
        lower=writer.frontier,
        upper=frontier(5),
        chunks=(replace(good, checksum=good.checksum ^ 1),),
    )
    (outcome,) = client.shards.submit([(T, Append((part,)))])
    assert isinstance(outcome, Appended)
    other_read, other = client.create(OTHER, TABLE)
    write(client, other, 5, ("b", 1, 3, 1))
    where = f"{client.shards.data_topic(T)}/{good.partition}@{good.offset}"
    with pytest.raises(Corrupt, match=f"chunk {where}: expected checksum"):
        everything(client, read, 5)
    assert everything(client, other_read, 5)


COLUMNS = ["c0", "c1", "time", "diff"]


def test_a_clock_that_is_hours_off_changes_nothing(place: Place) -> None:
    """Leases end by the broker's append times."""
    ahead, behind = place.client(SIX_HOURS_MS), place.client(-SIX_HOURS_MS)
    read, writer = ahead.create(T, TABLE)
    writer = write(behind, writer, 5, ("a", 1, 3, 1))
    clone = behind.clone(read, lease_ms=120_000)
    assert ahead.heartbeat(clone) == clone
    writer = write(ahead, writer, 9, ("b", 1, 7, 1))
    assert behind.heartbeat(writer) == writer
    for storage in (ahead, behind):
        assert set(everything(storage, clone, 9)) == {("a", 1, 3), ("b", 1, 7)}


def test_two_writers_at_full_speed_are_told_what_is_read(
    place: Place, is_full_minute: bool
) -> None:
    read, write = place.client().create(T, TABLE)
    written: list[Found] = [{}, {}]
    stop = threading.Event()

    def race(client: Storage, write: WriteCapability, number: int) -> None:
        count = 0
        while not stop.is_set():
            time_ = int(write.frontier.time)
            rows = table((f"w{number}", count, time_, 1))
            done = client.update_and_downgrade(write, rows, time_ + 1)
            if isinstance(done, WriteCapability):
                written[number][f"w{number}", count, time_] = 1
                write, count = done, count + 1
            else:
                write = replace(write, frontier=done.current)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(race, place.client(), write, number) for number in range(2)]
        try:
            time.sleep(60 if is_full_minute else 3)
            # Nothing is fair between them: on a busy machine one may lose for seconds.
            eventually(lambda: all(written) or any(writer.done() for writer in writers))
        finally:
            stop.set()
        for writer in writers:
            writer.result(timeout=120)
    upper = len(written[0]) + len(written[1])
    assert everything(place.client(), read, upper) == {**written[0], **written[1]}
