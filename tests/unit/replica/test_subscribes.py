"""Subscribes in the loop of peeks of a replica, over topics in memory."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from streams.compute import subscribe_session
from streams.compute.controller import command_topic, response_topic
from streams.compute.protocol import (
    AllowWrites,
    Command,
    CreateInstance,
    InitializationComplete,
    UpdateConfiguration,
)
from streams.compute.reader import ResponseReader
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.compute.writer import CommandWriter
from streams.errors import Corrupt, Determinate, Indeterminate
from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.compile import Relation, compile_select
from streams.progress import EMPTY, frontier
from streams.replica.peeks import subscribe_read
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.log.events import Append, Part
from streams.trace.kernel.connection import KernelFailed
from tests.support.peeking import COLUMNS, INSTANCE, NAMESPACE, SCHEMA, Peeking, identity

Update = tuple[int, int, object, object]
"""Time, diff, and the two columns."""


def subscribe(as_of: int = 3, uuid: str = "s", until: int | None = None) -> Subscribe:
    return Subscribe(
        uuid=uuid,
        collection=CollectionId("u1"),
        group="u1",
        as_of=Timestamp(as_of),
        plan=identity("u1"),
        project=(0, 1),
        until=None if until is None else Timestamp(until),
    )


def updates_of(batch: SubscribeBatch) -> list[Update]:
    if not batch.count:
        return []
    table = pa.ipc.open_stream(batch.updates).read_all()
    assert table.num_rows == batch.count
    *columns, times, diffs = (column.to_pylist() for column in table.columns)
    return sorted(zip(times, diffs, *columns, strict=True))


class Silence(AssertionError):
    """Nothing is delivered."""


class Client:
    """Writes commands of one epoch, and folds what is delivered."""

    def __init__(self, peeking: Peeking) -> None:
        logs = peeking.broker.logs
        self.commands = CommandWriter(logs, command_topic(NAMESPACE, INSTANCE), 1)
        self.responses = ResponseReader(logs, response_topic(NAMESPACE, INSTANCE), "")
        self.heard: list[SubscribeOutcome] = []

    def begin(self, nonce: str, *more: Command) -> None:
        self.responses.restart(nonce)
        first = (CreateInstance(NAMESPACE, 2), InitializationComplete(), AllowWrites())
        self.commands.begin(nonce, (*first, *more))

    def hear(self, timeout_s: float = 20) -> SubscribeOutcome:
        """The next response."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for message in self.responses.poll(50):
                assert isinstance(message.response, SubscribeResponse)
                self.heard.append(message.response.outcome)
            if self.heard:
                return self.heard.pop(0)
        raise Silence

    def upto(self, upper: int | None, lower: int = 3) -> list[Update]:
        """The updates of contiguous intervals up to an upper; None is the end."""
        updates: list[Update] = []
        reached = frontier(lower)
        wanted = EMPTY if upper is None else frontier(upper)
        while reached != wanted:
            batch = self.hear()
            assert isinstance(batch, SubscribeBatch), batch
            assert frontier(batch.lower) == reached
            new = updates_of(batch)
            assert all(batch.lower <= at for at, *_ in new)
            updates += new
            reached = batch.upper
        return updates


@pytest.fixture
def peeking() -> Iterator[Peeking]:
    peeking = Peeking()
    peeking.collection("u1")
    yield peeking
    peeking.close()


@pytest.fixture
def client(peeking: Peeking) -> Client:
    return Client(peeking)


def test_a_snapshot_comes_first_and_then_each_change(peeking: Peeking, client: Client) -> None:
    peeking.append("u1", 5, (1, "a", 2, 1), (2, "b", 3, 2), (1, "a", 4, -1))
    peeking.replica()
    changes = replace(subscribe(), uuid="c", snapshot=False)
    client.begin("a", subscribe())
    assert client.upto(5) == [(3, 1, 1, "a"), (3, 2, 2, "b"), (4, -1, 1, "a")]
    peeking.append("u1", 7)
    assert client.upto(7, 5) == [], "time passes as well"
    client.commands.write([CancelSubscribe("s")])
    assert client.hear() == DroppedAt(Timestamp(7))
    client.commands.write([changes])
    assert client.upto(7, 4) == [(4, -1, 1, "a")]
    peeking.append("u1", 9, (3, "c", 8, 1), (4, "d", 7, 1), (4, "d", 7, -1))
    assert client.upto(9, 7) == [(8, 1, 3, "c")]


def test_it_ends_before_until(peeking: Peeking, client: Client) -> None:
    peeking.append("u1", 5, (1, "a", 2, 1), (2, "b", 4, 1))
    peeking.replica()
    client.begin("a", subscribe(until=7))
    assert client.upto(5) == [(3, 1, 1, "a"), (4, 1, 2, "b")]
    peeking.append("u1", 9, (3, "c", 6, 1), (4, "d", 7, 1))
    assert client.upto(None, 5) == [(6, 1, 3, "c")]
    client.commands.write([subscribe(uuid="short", until=4)])
    assert client.upto(None) == [(3, 1, 1, "a")]
    nothing = replace(subscribe(uuid="nothing", until=4), snapshot=False)
    client.commands.write([nothing])
    assert client.upto(None, 4) == []


def test_rows_are_filtered_and_columns_chosen(peeking: Peeking, client: Client) -> None:
    peeking.append("u1", 5, (1, "a", 2, 1), (2, "b", 2, 1), (1, "c", 4, 1), (2, "d", 4, 1))
    peeking.replica()
    relations = {"u1": Relation(CollectionId("u1"), COLUMNS)}
    selected = compile_select("SELECT v, k FROM u1 WHERE k = 2", relations)
    plan = plans.dumps(selected.dataflow)
    client.begin("a", replace(subscribe(), plan=plan))
    assert client.upto(5) == [(3, 1, "b", 2), (4, 1, "d", 2)]


def test_an_error_comes_behind_what_was_before_it(peeking: Peeking, client: Client) -> None:
    peeking.append("u1", 5, (1, "a", 2, 1))
    peeking.append("u1", 8, (2, "b", 5, 1))
    peeking.append("u1", 12, (3, "c", 9, 1), wrong="bad")
    peeking.replica()
    client.begin("a", subscribe())
    assert client.upto(8) == [(3, 1, 1, "a"), (5, 1, 2, "b")]
    assert client.hear() == SubscribeError(Timestamp(8), "bad")
    client.commands.write([subscribe(9, "later"), replace(subscribe(), uuid="w", plan="{}")])
    assert client.hear() == SubscribeError(Timestamp(9), "bad")
    wrong = client.hear()
    assert isinstance(wrong, SubscribeError)
    assert wrong.message.startswith("peek: the plan cannot be read")
    client.commands.write([replace(subscribe(), uuid="n", group="u9")])
    nowhere = "group u9: there is no topic sw.u9.log"
    assert client.hear() == SubscribeError(Timestamp(3), nowhere)


def test_what_is_large_is_cut_between_times(peeking: Peeking, client: Client) -> None:
    many = [(number, "x" * 50, 3 + number // 20, 1) for number in range(100)]
    peeking.append("u1", 9, *many)
    peeking.replica()
    client.begin("a", UpdateConfiguration({"max_result_bytes": 4_096}), subscribe())
    got = client.upto(9)
    assert got == sorted((at, diff, k, v) for k, v, at, diff in many)


def test_one_time_that_is_too_large_is_an_error(peeking: Peeking, client: Client) -> None:
    peeking.append("u1", 5, *[(number, "x" * 50, 2, 1) for number in range(100)])
    peeking.replica()
    client.begin("a", UpdateConfiguration({"max_result_bytes": 2_048}), subscribe())
    outcome = client.hear()
    assert isinstance(outcome, SubscribeError)
    assert outcome.message.startswith("expected updates of at most 2048 bytes at 3, actual")


def test_a_slow_client_gets_no_more_than_it_acknowledges(
    peeking: Peeking, client: Client
) -> None:
    many = [(number, "x" * 20_000, 3 + number // 20, 1) for number in range(200)]
    peeking.append("u1", 13, *many)
    peeking.replica()
    limits = {"max_result_bytes": 1 << 19, "max_unacknowledged_bytes": 1 << 20}
    client.begin("a", UpdateConfiguration(limits), subscribe())
    batches: list[SubscribeBatch] = []

    def until_nothing_comes() -> int:
        before, wait_s = len(batches), 20.0  # for the first one, on a busy machine too
        with suppress(Silence):
            while True:
                batch = client.hear(wait_s)
                assert isinstance(batch, SubscribeBatch)
                batches.append(batch)
                wait_s = 1.0
        return sum(len(batch.updates) for batch in batches[before:])

    assert 0 < until_nothing_comes() < 3 << 19
    client.commands.write([replace(subscribe(), uuid="fast", until=Timestamp(4))])
    assert len(client.upto(None)) == 20, "which costs nobody else anything"
    while batches[-1].upper != frontier(13):
        client.commands.write([AcknowledgeSubscribe("s", batches[-1].upper.time)])
        assert 0 < until_nothing_comes() < 3 << 19
    got = [update for batch in batches for update in updates_of(batch)]
    assert got == sorted((at, diff, k, v) for k, v, at, diff in many)


def test_a_client_that_takes_nothing_is_not_told_for_ever_that_time_passes(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking, client: Client
) -> None:
    monkeypatch.setattr(subscribe_session, "MOST_SENT", 2)
    peeking.append("u1", 5)
    peeking.replica()
    client.begin("a", subscribe())
    client.upto(5)
    for upper in range(6, 9):
        peeking.append("u1", upper)
        with suppress(Silence):
            client.hear(0.5)
    client.commands.write([AcknowledgeSubscribe("s", Timestamp(5))])
    assert client.upto(8, 5) == []


FAILURES = [
    Determinate("no answer"),
    Indeterminate("no answer"),
    Corrupt("sw.u1.data/0@7: the chunk is missing"),
    KernelFailed("out of memory"),
    RuntimeError("a defect"),
]


def failing(monkeypatch: pytest.MonkeyPatch, name: str, failures: list[Exception]) -> None:
    """Let each read of a kind fail so often."""
    read = getattr(subscribe_read, name)

    def read_or_fail(*args: object, **named: object) -> object:
        if failures:
            raise failures.pop()
        return read(*args, **named)

    monkeypatch.setattr(subscribe_read, name, read_or_fail)


def test_a_read_that_fails_for_now_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking, client: Client
) -> None:
    monkeypatch.setattr(subscribe_session, "FIRST_PAUSE_S", 0.01)
    failing(monkeypatch, "snapshot", list(FAILURES))
    failing(monkeypatch, "changes", list(FAILURES))
    peeking.append("u1", 5, (1, "a", 2, 1), (2, "b", 4, 1))
    peeking.replica()
    client.begin("a", subscribe())
    assert client.upto(5) == [(3, 1, 1, "a"), (4, 1, 2, "b")]


def test_a_read_that_keeps_failing_interrupts_until_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking, client: Client
) -> None:
    monkeypatch.setattr(subscribe_session, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(subscribe_session, "MOST_ATTEMPTS", 2)
    failing(monkeypatch, "changes", [RuntimeError("a defect"), Determinate("no answer")])
    peeking.append("u1", 5, (1, "a", 2, 1), (2, "b", 4, 1))
    peeking.replica()
    client.begin("a", subscribe())
    assert client.upto(4) == [(3, 1, 1, "a")]
    why = "internal error: RuntimeError('a defect')"
    assert client.hear() == SubscribeInterrupted(Timestamp(4), why)
    client.commands.write([replace(subscribe(), snapshot=False)])
    assert client.upto(5, 4) == [(4, 1, 2, "b")]


def test_a_group_that_cannot_be_followed_may_be_there_later(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking, client: Client
) -> None:
    monkeypatch.setattr(subscribe_session, "FIRST_PAUSE_S", 0.01)
    failures = [Determinate("no broker answers")] * 3
    open_group = Shards.open

    def open_or_fail(shards: Shards, *groups: str) -> None:
        if failures:
            raise failures.pop()
        open_group(shards, *groups)

    monkeypatch.setattr(Shards, "open", open_or_fail)
    peeking.append("u1", 5, (1, "a", 2, 1))
    peeking.replica()
    client.begin("a", subscribe())
    assert client.upto(5) == [(3, 1, 1, "a")]
    assert not failures


def test_a_collection_that_a_replica_has_not_heard_of_may_come(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking, client: Client
) -> None:
    monkeypatch.setattr(subscribe_session, "FIRST_PAUSE_S", 0.01)
    peeking.append("u1", 5, (1, "a", 2, 1))
    peeking.replica()
    client.begin("a", replace(subscribe(), collection=CollectionId("u2")))
    with suppress(Silence):
        pytest.fail(str(client.hear(0.3)))
    described = Description(tuple((c.name, c.type) for c in COLUMNS), (), "view")
    peeking.shards.create("u1", CollectionId("u2"), described, Timestamp(3))
    refs = peeking.shards.write(CollectionId("u2"), SCHEMA.empty_table())
    part = Part(
        collection=CollectionId("u2"),
        capability=CapabilityId("u2.write"),
        lower=frontier(3),
        upper=frontier(5),
        chunks=refs,
    )
    peeking.shards.submit([("u1", Append((part,)))])
    assert client.upto(5) == []
