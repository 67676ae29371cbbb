"""The client of many groups, over a log and chunks in memory, with and without faults."""

import gc
import threading
from collections.abc import Callable, Sequence

import pytest

from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage
from streams.ids import CollectionId, EventId, Offset, Timestamp, Topic
from streams.kafka.log import Entry, Truncated
from streams.kafka.memory.faulty import Fault, FaultyLogs
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.log import event_codec
from streams.storage.log.dedup_window import WINDOW
from streams.storage.log.events import Append, Body, Downgrade, Drop, Event, Part, Reclaim
from streams.storage.log.outcomes import (
    Appended,
    Dropped,
    Refused,
    Unavailable,
    UpperMismatch,
)
from streams.storage.read import reader as read
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, names, rows


@pytest.mark.parametrize("pump", [False, True])
def test_what_is_appended_is_read_back_at_every_time(*, pump: bool) -> None:
    with client(broker(), pump=pump) as one:
        state = one.create("u1", U1, DESCRIPTION, Timestamp(0))
        assert (state.since, state.upper) == (frontier(0), frontier(0))
        assert append(one, 0, 10, rows("a", "b", time=3)) == Appended((frontier(10),))
        assert append(one, 0, 10) == UpperMismatch(frontier(10), U1)
        assert append(one, 10, 20, rows("c", time=12), rows("a", time=15, diff=-1))
        expected = {2: [], 3: ["a", "b"], 12: ["a", "b", "c"], 15: ["a", "a", "b", "c"]}
        for as_of, present in expected.items():
            updates, errors = read.snapshot(one, U1, Timestamp(as_of))
            assert names(updates) == present
            assert set(updates.column("time").to_pylist()) <= {as_of}
            assert errors.num_rows == 0


@pytest.mark.parametrize("pump", [False, True])
def test_everything_is_recovered_from_the_topics(*, pump: bool) -> None:
    kafka = broker()
    with client(kafka, pump=pump) as one, client(kafka, pump=pump) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        append(one, 0, 10, rows("a", time=3))
        other.open("u1")
        assert other.state(U1) == one.state(U1)
        append(one, 10, 20, rows("b", time=13))
        other.sync(U1)
        assert other.state(U1) == one.state(U1)
        assert append(other, 20, 30) == Appended((frontier(30),))
        one.sync()
        assert one.state(U1).upper == frontier(30)


def test_two_creators_of_one_collection_agree() -> None:
    kafka = broker()
    with client(kafka) as one, client(kafka) as other:
        assert one.create("u1", U1, DESCRIPTION, Timestamp(0)) == other.create(
            "u1", U1, DESCRIPTION, Timestamp(0)
        )
        with pytest.raises(InvalidUsage, match="bound to one description"):
            other.create("u1", U1, "{}", Timestamp(0))


def test_events_of_many_groups_go_with_one_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = broker()
    logs = FaultyLogs(kafka.logs)
    flushes: list[int] = []
    inner = logs.append

    def counted(values: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        flushes.append(len(values))
        return inner(values)

    monkeypatch.setattr(logs, "append", counted)
    with client(kafka, logs=logs) as one:
        ids = [CollectionId(f"u{number}") for number in range(10)]
        for id_ in ids:
            one.create(id_, id_, DESCRIPTION, Timestamp(0))
        flushes.clear()
        events: list[tuple[str, Body]] = [
            (
                id_,
                Append(
                    (
                        Part(
                            collection=id_,
                            capability=write_capability(id_),
                            lower=frontier(0 if number % 2 else 7),
                            upper=frontier(10),
                        ),
                    )
                ),
            )
            for number, id_ in enumerate(ids)
        ]
        outcomes = one.submit(events)
        assert flushes == [10]
        assert [type(outcome) for outcome in outcomes] == [UpperMismatch, Appended] * 5


@pytest.mark.parametrize(
    "plan",
    [
        [Fault.AFTER],
        [Fault.INSTEAD],
        [Fault.INSTEAD, Fault.INSTEAD, Fault.AFTER],
        [Fault.INSTEAD, Fault.BEFORE],
    ],
    ids=lambda plan: "-".join(fault.name.lower() for fault in plan),
)
def test_an_append_in_doubt_counts_exactly_once(plan: list[Fault]) -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        append(one, 0, 10)
    logs = FaultyLogs(kafka.logs, plan)
    with client(kafka, logs=logs, resend_ms=(1, 1, 1)) as one:
        one.open("u1")
        assert append(one, 10, 20, rows("a", time=12)) == Appended((frontier(20),))
        # and what was in doubt may still surface, now or after others have written
        assert append(one, 20, 30, rows("b", time=22)) == Appended((frontier(30),))
        logs.surface()
        one.sync()
        assert one.state(U1).upper == frontier(30)
        assert names(read.snapshot(one, U1, Timestamp(29))[0]) == ["a", "b"]


def test_a_failure_before_the_append_had_no_effect() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
    with client(kafka, logs=FaultyLogs(kafka.logs, [Fault.BEFORE])) as one:
        one.open("u1")
        with pytest.raises(Determinate):
            append(one, 0, 10)
        assert append(one, 0, 10) == Appended((frontier(10),))


def test_a_doubt_that_stays_is_told() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
    logs = FaultyLogs(kafka.logs, [Fault.INSTEAD] * 3)
    with client(kafka, logs=logs, resend_ms=(1, 1)) as one:
        one.open("u1")
        with pytest.raises(Indeterminate):
            append(one, 0, 10)


def test_a_copy_that_surfaces_past_the_window_is_void() -> None:
    kafka = broker()
    logs = FaultyLogs(kafka.logs, [Fault.NONE, Fault.INSTEAD])
    with client(kafka, logs=logs) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        assert append(one, 0, 10) == Appended((frontier(10),))
        for _ in range(WINDOW + 1):
            noise(one)
        logs.surface()
        one.sync()
        assert one.state(U1).upper == frontier(10)
        assert append(one, 10, 20) == Appended((frontier(20),))


def noise(one: Shards) -> None:
    group = one.following.group("u1")
    seen = group.state.upto
    event = Event(EventId(f"n{seen}"), group.uuid, seen, Reclaim({}))
    one.logs.append([(one.names("u1").log, event_codec.encode(event))])
    one.sync()


def test_threads_share_a_client() -> None:
    with client(broker(), pump=True) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        won: list[int] = []

        def race() -> None:
            for _ in range(20):
                upper = one.state(U1).upper.time
                if isinstance(append(one, upper, upper + 1), Appended):
                    won.append(upper)

        threads = [threading.Thread(target=race) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one.sync()
        assert sorted(won) == list(range(one.state(U1).upper.time))
        assert len(won) >= 20


@pytest.mark.parametrize("pump", [False, True])
def test_waiting_ends_with_the_fold_that_makes_it_true(*, pump: bool) -> None:
    kafka = broker()
    with client(kafka, pump=pump) as one, client(kafka) as writer:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        writer.open("u1")
        later = threading.Timer(0.05, lambda: append(writer, 0, 10))
        later.start()
        assert one.wait(lambda: one.state(U1).upper == frontier(10), 5_000)
        later.join()
        assert not one.wait(lambda: False, 10)


def test_subscribers_hear_of_groups_that_moved() -> None:
    with client(broker()) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        changes: list[frozenset[str]] = []
        end = one.subscribe(changes.append)
        append(one, 0, 10)
        end()
        append(one, 10, 20)
        assert changes == [frozenset({"u1"})]


def test_the_clocks_difference_is_known_after_a_submit() -> None:
    with client(broker()) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        assert one.skew_ms("u1") == 5_000 - 1_000


def test_a_dropped_collection_cannot_be_read_nor_made_again() -> None:
    with client(broker()) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        append(one, 0, 10)
        one.drop(U1)
        with pytest.raises(InvalidUsage, match="since"):
            read.snapshot(one, U1, Timestamp(5))
        with pytest.raises(InvalidUsage, match="is not used again"):
            one.create("u1", U1, DESCRIPTION, Timestamp(0))


def test_a_group_that_is_not_there_or_not_open_says_so() -> None:
    with client(broker()) as one:
        with pytest.raises(InvalidUsage, match=r"group u1: there is no topic sw\.u1\.log"):
            one.open("u1")
        with pytest.raises(InvalidUsage, match="in no open group"):
            one.state(U1)
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.close("u1")
        with pytest.raises(InvalidUsage, match="in no open group"):
            one.state(U1)


# what no honest log holds stops its group, and its group alone


def spoil_record(kafka: MemoryBroker) -> None:
    kafka.logs.append([(Topic("sw.u1.log"), b"\xc3\x01nonsense")])


def spoil_topic(kafka: MemoryBroker) -> None:
    kafka.topics.delete([Topic("sw.u1.log")])
    kafka.topics.create([TopicSpec(Topic("sw.u1.log"), 1, TopicKind.LOG)])


def spoil_start(kafka: MemoryBroker) -> None:
    kafka.logs.append([(Topic("sw.u1.log"), b"x")] * 3)
    kafka.logs.truncate(Topic("sw.u1.log"), kafka.logs.bounds(Topic("sw.u1.log"))[1])


def spoil_times(kafka: MemoryBroker) -> None:
    kafka.store.log(Topic("sw.u1.log")).is_append_timed = False
    kafka.logs.append([(Topic("sw.u1.log"), b"x")])


@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (spoil_record, Corrupt, r"log sw\.u1\.log/0@2: avro header"),
        (
            spoil_topic,
            Truncated,
            r"log sw\.u1\.log cannot .* offset 2: .* and created again: its",
        ),
        (
            spoil_start,
            Truncated,
            r"log sw\.u1\.log cannot be .* begins at offset 5 and no",
        ),
        (spoil_times, Corrupt, r"log sw\.u1\.log at offset 2: expected the broker's append"),
    ],
    ids=["unknown record", "topic made anew", "truncated", "writer's times"],
)
def test_a_log_that_cannot_be_is_fatal_for_its_group(
    spoil: Callable[[MemoryBroker], None], kind: type[Exception], message: str
) -> None:
    kafka = broker()
    u2 = CollectionId("u2")
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", u2, DESCRIPTION, Timestamp(0))
        append(one, 0, 10)
        spoil(kafka)
        with pytest.raises(kind, match=message):
            one.sync(U1)
        with pytest.raises(kind, match=message):
            one.state(U1)
        assert isinstance(append(one, 10, 20), Unavailable)
        one.sync()
        assert one.state(u2).upper == frontier(0)


@pytest.mark.parametrize("spoil", [spoil_record, spoil_topic, spoil_start, spoil_times])
def test_the_pump_goes_on_with_the_other_logs(spoil: Callable[[MemoryBroker], None]) -> None:
    kafka = broker()
    u2 = CollectionId("u2")
    with client(kafka, pump=True) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", u2, DESCRIPTION, Timestamp(0))
        append(one, 0, 10)
        spoil(kafka)
        assert one.wait(lambda: "u1" not in one.groups(), 5_000)
        one.drop(u2)
        assert one.state(u2).is_dropped
        assert one.defect is None


def test_a_log_without_its_beginning_cannot_be_opened() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        append(one, 0, 10)
    kafka.logs.truncate(Topic("sw.u1.log"), Offset(1))
    with client(kafka) as one, pytest.raises(Truncated, match="no rollup covers"):
        one.open("u1")


def test_a_refusal_is_returned_as_it_is() -> None:
    with client(broker()) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        assert isinstance(one.submit([("u1", Append(()))])[0], Refused)
        assert one.submit([]) == []
        assert one.submit([("u1", Drop(U1))])[0] == one.submit([("u1", Drop(U1))])[0]


def test_a_pump_that_fails_wakes_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = broker()
    with client(kafka, pump=True) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))

        def broken(wait_ms: int) -> tuple[Entry, ...]:
            raise ZeroDivisionError(wait_ms)

        monkeypatch.setattr(one.following._tail, "poll", broken)
        with pytest.raises(ZeroDivisionError):
            one.wait(lambda: one.state(U1).upper == frontier(99), 5_000)
        assert isinstance(one.defect, ZeroDivisionError)


def foreign(one: Shards) -> None:
    event = Event(EventId("stray"), "another", one.group_state("u1").upto, Reclaim({}))
    one.logs.append([(one.names("u1").log, event_codec.encode(event))])


def test_a_stray_event_of_another_group_changes_nothing() -> None:
    with client(broker()) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        foreign(one)
        assert append(one, 0, 10) == Appended((frontier(10),))


def test_events_of_another_group_in_a_topic_made_anew_are_fatal() -> None:
    """Longer than the one before, so that no offset tells (rule 12)."""
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.following.group("u1").topic_id = "the one before"
        foreign(one)
        with pytest.raises(Truncated, match="created again"):
            one.sync(U1)


def test_a_failed_group_does_not_keep_others_from_appending() -> None:
    kafka = broker()
    u2 = CollectionId("u2")
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", u2, DESCRIPTION, Timestamp(0))
        spoil_record(kafka)
        events: list[tuple[str, Body]] = [("u1", Drop(U1)), ("u2", Drop(u2))]
        assert [type(outcome) for outcome in one.submit(events)] == [Unavailable, Dropped]
        assert [type(outcome) for outcome in one.submit(events)] == [Unavailable, Dropped]


def test_a_group_is_opened_once_whoever_asks() -> None:
    kafka = broker()
    with client(kafka) as maker, client(kafka, pump=True) as one:
        maker.create("u1", U1, DESCRIPTION, Timestamp(0))
        threads = [threading.Thread(target=one.open, args=("u1",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert append(one, 0, 10) == Appended((frontier(10),))


def test_who_has_no_time_to_wait_is_told_what_can_be_known() -> None:
    kafka = broker()
    with client(kafka) as one, client(kafka) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        other.open("u1")
        append(one, 0, 10)
        assert other.wait(lambda: other.state(U1).upper == frontier(10), 0)


def test_many_groups_are_opened_without_a_search_for_cycles() -> None:
    """Values of the fold are in no cycle; searching all of them took a quarter of an open."""
    groups = [f"u{number}" for number in range(30)]
    kafka = broker()
    with client(kafka) as one:
        for name in groups:
            one.create(name, CollectionId(name), DESCRIPTION, Timestamp(0))
        moves = [
            Downgrade(
                collection=CollectionId(name),
                capability=write_capability(CollectionId(name)),
                frontier=frontier(time),
            )
            for time in range(1, 20)
            for name in groups
        ]
        one.submit([(str(move.collection), move) for move in moves])
    begun: list[object] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(info["generation"])

    with client(kafka) as other:
        gc.collect()
        gc.callbacks.append(count)
        try:
            other.open(*groups)
        finally:
            gc.callbacks.remove(count)
        assert other.group_state("u7").upto == 19
    assert gc.isenabled()
    assert len(begun) <= 3, "one when they are all there"
