"""A controller subscribes by replicas over topics in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streams.compute import open_subscribes, subscribe_session
from streams.compute.controller import Deliveries, command_topic
from streams.compute.parameters import DEFAULTS
from streams.compute.protocol import Alive, Command
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.errors import Corrupt, Determinate
from streams.ids import CollectionId, Timestamp
from streams.progress import Antichain, frontier
from streams.replica.peeks import subscribe_read
from streams.storage.read import reader
from tests.support.peeking import INSTANCE, NAMESPACE, Peeking, identity
from tests.unit.compute.test_controller_peeks import Asked

SUBSCRIBE = Subscribe(
    uuid="s",
    collection=CollectionId("u1"),
    group="u1",
    as_of=Timestamp(3),
    plan=identity("u1"),
    project=(0,),
)


@pytest.fixture
def peeking() -> Iterator[Peeking]:
    peeking = Peeking()
    peeking.collection("u1")
    peeking.append("u1", 5, (1, "a", 2, 1))
    yield peeking
    peeking.close()


def refuse(_: object) -> None:
    raise Determinate("refused")


def taken(deliveries: Deliveries, lower: int, upper: int) -> list[tuple[int, int]]:
    """Keys and times of contiguous intervals up to an upper."""
    reached: Antichain = frontier(lower)
    rows: list[tuple[int, int]] = []
    while reached != frontier(upper):
        batch = deliveries.get(timeout=20)
        assert isinstance(batch, SubscribeBatch), batch
        assert frontier(batch.lower) == reached
        reached = batch.upper
        if batch.count:
            table = pa.ipc.open_stream(batch.updates).read_all()
            pairs = zip(table["c0"].to_pylist(), table["time"].to_pylist(), strict=True)
            rows += [(key, time) for key, time in pairs if time >= batch.lower]
    return rows


def test_each_interval_comes_once_whichever_replica_lives(peeking: Peeking) -> None:
    controller = Asked(peeking.broker.logs)
    loops = [peeking.replica("r1"), peeking.replica("r2")]
    with controller.polled():
        deliveries = controller.subscribe(SUBSCRIBE)
        assert taken(deliveries, 3, 5) == [(1, 3)]
        for upper in range(6, 12):
            peeking.append("u1", upper, (upper, "b", upper - 1, 1))
        assert taken(deliveries, 5, 11) == [(at + 1, at) for at in range(5, 11)]
        for loop in loops:
            loop.close()
            peeking.loops.remove(loop)
        peeking.append("u1", 14, (14, "c", 12, 1))
        successor = peeking.replica("r1")
        successor._writer.write("n0", [Alive()])
        assert taken(deliveries, 11, 14) == [(14, 12)]
        controller.acknowledge("s", Timestamp(14))
        peeking.append("u1", 15)
        assert taken(deliveries, 14, 15) == []
        controller.cancel_subscribe("s")
    controller.close()
    assert deliveries.empty()


def test_an_iteration_goes_on_where_the_one_before_was(peeking: Peeking) -> None:
    controller = Asked(peeking.broker.logs)
    peeking.replica()
    with controller.polled():
        deliveries = controller.subscribe(SUBSCRIBE)
        assert taken(deliveries, 3, 5) == [(1, 3)]
        controller._begin_reduced()
        peeking.append("u1", 9, (2, "b", 7, 1))
        assert taken(deliveries, 5, 9) == [(2, 7)]
    controller.close()
    assert deliveries.get(timeout=1) == SubscribeError(Timestamp(9), "the controller has ended")


def test_what_is_refused_after_an_iteration_began_is_sent_later(
    peeking: Peeking, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Asked(peeking.broker.logs)
    peeking.replica()
    with controller.polled():
        deliveries = controller.subscribe(SUBSCRIBE)
        assert taken(deliveries, 3, 5) == [(1, 3)]

    write, sent = controller._writer.write, list[Command]()

    def record(commands: Sequence[Command]) -> None:
        sent.extend(commands)
        write(commands)

    with monkeypatch.context() as patch:
        patch.setattr(controller._writer, "write", refuse)
        controller._begin_reduced()
        with pytest.raises(Determinate, match="refused"):
            controller.acknowledge("s", Timestamp(5))
    with monkeypatch.context() as patch:
        patch.setattr(controller._writer, "write", record)
        controller.acknowledge("s", Timestamp(5))
    rest = replace(SUBSCRIBE, as_of=Timestamp(4), snapshot=False)
    assert sent == [rest, AcknowledgeSubscribe("s", Timestamp(5))]
    peeking.append("u1", 9, (2, "b", 7, 1))
    with controller.polled():
        assert taken(deliveries, 5, 9) == [(2, 7)]
    controller.close()


def test_one_that_is_closed_writes_nothing_more(
    peeking: Peeking, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Asked(peeking.broker.logs)
    controller.subscribe(SUBSCRIBE)
    with monkeypatch.context() as patch:
        patch.setattr(controller._writer, "write", refuse)
        controller._begin_reduced()
    _, end = peeking.broker.logs.bounds(command_topic(NAMESPACE, INSTANCE))
    controller.close()
    controller.cancel_subscribe("s")
    assert peeking.broker.logs.bounds(command_topic(NAMESPACE, INSTANCE))[1] == end


def test_one_that_is_refused_is_not_there(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking
) -> None:
    controller = Asked(peeking.broker.logs)
    with monkeypatch.context() as patch:
        patch.setattr(controller._writer, "write", refuse)
        with pytest.raises(Determinate, match="refused"):
            controller.subscribe(SUBSCRIBE)
    other = replace(SUBSCRIBE, uuid="o", until=Timestamp(4))
    peeking.replica()
    with controller.polled():
        deliveries = controller.subscribe(other)
        batch = deliveries.get(timeout=20)
    assert isinstance(batch, SubscribeBatch)
    assert batch.upper.is_empty
    controller.close()


@pytest.mark.parametrize("others", [0, 1])
def test_a_failure_of_the_moment_is_no_end(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking, others: int
) -> None:
    monkeypatch.setattr(subscribe_session, "MOST_ATTEMPTS", 1)
    changes, failures = reader.changes, [Determinate("no answer")] * 3

    def changes_or_fail(*args: Any, **named: Any) -> object:
        if failures:
            raise failures.pop()
        return changes(*args, **named)

    monkeypatch.setattr(subscribe_read, "changes", changes_or_fail)
    controller = Asked(peeking.broker.logs)
    for number in range(1 + others):
        peeking.replica(f"r{number}")
    with controller.polled():
        deliveries = controller.subscribe(SUBSCRIBE)
        peeking.append("u1", 9, (2, "b", 7, 1))
        assert taken(deliveries, 3, 9) == [(1, 3), (2, 7)]
    controller.close()


def test_what_no_replica_can_read_is_an_error_in_the_end(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking
) -> None:
    monkeypatch.setattr(subscribe_session, "MOST_ATTEMPTS", 1)
    monkeypatch.setattr(open_subscribes, "MOST_INTERRUPTIONS", 3)

    def fail(*_: object, **__: object) -> None:
        raise Corrupt("sw.u1.data/0@7: the chunk is missing")

    monkeypatch.setattr(subscribe_read, "changes", fail)
    controller = Asked(peeking.broker.logs)
    peeking.replica()
    with controller.polled():
        deliveries = controller.subscribe(SUBSCRIBE)
        assert taken(deliveries, 3, 4) == [(1, 3)]
        why = "sw.u1.data/0@7: the chunk is missing"
        assert deliveries.get(timeout=20) == SubscribeError(Timestamp(4), why)
    controller.close()


def test_what_several_processes_deliver_ahead_is_no_flood(peeking: Peeking) -> None:
    controller = Asked(peeking.broker.logs)
    controller.update_configuration({"max_unacknowledged_bytes": 1 << 20})
    assert controller._most_ahead == DEFAULTS.max_unacknowledged_bytes, "some have heard later"
    controller._most_ahead = 1 << 20
    deliveries = controller.subscribe(SUBSCRIBE)
    ahead = (1 << 20) + (7 << 20)

    def say(lower: int, size: int) -> SubscribeOutcome:
        batch = SubscribeBatch(Timestamp(lower), frontier(lower + 1), 0, bytes(size))
        controller._hear_subscribe("r1-a", SubscribeResponse("s", batch))
        return deliveries.get(timeout=1)

    for lower in range(3, 10):
        assert isinstance(say(lower, ahead), SubscribeBatch)
    outcome = say(10, ahead)
    assert isinstance(outcome, SubscribeError)
    assert outcome.message.startswith("expected at most 67108864 bytes that are not taken")
    controller.close()
