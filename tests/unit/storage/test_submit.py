"""A log that cannot be written concerns its own events; what became of others is said."""

from collections import Counter, defaultdict, deque

import pytest

from streams.errors import Indeterminate
from streams.ids import CollectionId, EventId, Timestamp
from streams.kafka.log import Entry
from streams.kafka.memory.faulty import Fault, FaultyLogs
from streams.kafka.memory.logs import MemoryTail
from streams.kafka.topics import MAXIMUM_RECORD_BYTES
from streams.storage.client.follower import GroupFollower
from streams.storage.client.shards import Shards
from streams.storage.log.events import Advance, Body, Drop
from streams.storage.log.outcomes import Advanced, Outcome, Unavailable
from tests.support.shard_clients import DESCRIPTION, U1, broker, client

NEXT = Advance(Timestamp(0), Timestamp(1))


def two(one: Shards) -> list[tuple[str, Body]]:
    for name in ("u1", "u2"):
        one.create(name, CollectionId(name), DESCRIPTION, Timestamp(0))
    return [("u1", NEXT), ("u2", NEXT)]


def test_what_was_decided_of_others_is_said_beside_a_log_that_cannot_be_written() -> None:
    """It used to be in doubt as well, after six copies."""
    kafka = broker()
    logs = FaultyLogs(kafka.logs)
    with client(kafka, logs=logs, resend_ms=(0, 0)) as one:
        events = two(one)
        logs.unwritable = {one.names("u1").log}
        stuck, fine = one.submit(events)
        assert isinstance(fine, Advanced)
        assert isinstance(stuck, Unavailable)
        assert "not stored 10000 ms after others" in stuck.reason
        # the next time nobody waits so long for it
        stuck, fine = one.submit([("u1", NEXT), ("u2", Advance(Timestamp(1), Timestamp(2)))])
        assert isinstance(stuck, Unavailable)
        assert "not stored 500 ms after others" in stuck.reason
        assert isinstance(fine, Advanced)
        with pytest.raises(Indeterminate, match="not stored"):
            one.submit([("u1", NEXT)])
        logs.unwritable = set()
        assert isinstance(one.submit([("u1", NEXT)])[0], Advanced)  # from now on it is in time
        logs.unwritable = {one.names("u1").log}
        stuck, _ = one.submit([("u1", NEXT), ("u2", Advance(Timestamp(2), Timestamp(3)))])
        assert isinstance(stuck, Unavailable)
        assert "not stored 10000 ms after others" in stuck.reason


def test_many_events_of_one_log_are_appended_in_lots_that_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of other logs go with the first; none is appended twice as stale."""
    with client(broker()) as one:
        ups = [("u1", Advance(Timestamp(at), Timestamp(at + 1))) for at in range(1_200)]
        _, other = two(one)
        sent: list[Counter[str]] = []
        append = one.logs.append_each

        def counted(values, stragglers_ms=0):
            sent.append(Counter(topic for topic, _ in values))
            return append(values, stragglers_ms)

        monkeypatch.setattr(one.logs, "append_each", counted)
        outcomes = one.submit([*ups, other])
        assert all(isinstance(outcome, Advanced) for outcome in outcomes)
        u1, u2 = one.names("u1").log, one.names("u2").log
        assert sent == [{u1: 512, u2: 1}, {u1: 512}, {u1: 176}]


def test_a_record_that_is_refused_takes_no_other_with_it() -> None:
    kafka = broker()
    with client(kafka, resend_ms=(0, 0)) as one:
        events = two(one)
        huge = Drop(CollectionId("x" * MAXIMUM_RECORD_BYTES))
        refused, fine = one.submit([("u1", huge), events[1]])
        assert isinstance(refused, Unavailable)
        assert "too large" in refused.reason
        assert isinstance(fine, Advanced)


@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.TWICE, Fault.PARTLY, Fault.INSTEAD])
def test_what_is_there_after_all_is_decided(fault: Fault) -> None:
    kafka = broker()
    logs = FaultyLogs(kafka.logs)
    with client(kafka, logs=logs, resend_ms=(0, 0)) as one:
        events = two(one)
        logs.plan([fault])
        assert all(isinstance(outcome, Advanced) for outcome in one.submit(events))
        assert U1 in one.group_state("u1").collections


def test_events_that_were_decided_are_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each record that came used to be a look at the events of all groups."""
    with client(broker()) as one:
        names = [f"u{number}" for number in range(60)]
        for name in names:
            one.create(name, CollectionId(name), DESCRIPTION, Timestamp(0))
        looks = Counter[str]()
        outcome, poll = GroupFollower.outcome, MemoryTail.poll
        come: dict[MemoryTail, deque[Entry]] = defaultdict(deque)

        def counted(self: GroupFollower, id_: EventId) -> Outcome | None:
            looks[id_] += 1
            return outcome(self, id_)

        def one_by_one(self: MemoryTail, wait_ms: int) -> tuple[Entry, ...]:
            own = come[self]
            own.extend(poll(self, 0 if own else wait_ms))
            return (own.popleft(),) if own else ()

        monkeypatch.setattr(GroupFollower, "outcome", counted)
        monkeypatch.setattr(MemoryTail, "poll", one_by_one)
        outcomes = one.submit([(name, NEXT) for name in names])
        assert all(isinstance(outcome, Advanced) for outcome in outcomes)
        assert sum(looks.values()) < 6 * len(names)
