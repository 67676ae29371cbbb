"""Rollups, truncation and tombstones: a group stays small and loses nothing."""

from dataclasses import replace

import pyarrow as pa
import pytest

from streams.errors import Corrupt
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.storage.client import maintenance
from streams.storage.client.shards import Shards
from streams.storage.log import rollup
from streams.storage.log.events import Advance, Replace, Rollup
from streams.storage.log.outcomes import (
    RolledUp,
    Unavailable,
)
from streams.storage.log.state import State
from streams.storage.read import reader as read
from tests.support.shard_clients import (
    DESCRIPTION,
    U1,
    append,
    broker,
    client,
    grow,
    names,
    rows,
)


def test_a_group_restarts_from_its_newest_rollup() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        assert maintenance.roll_up(one, "u1") is None  # no stretch has ended yet
        grow(one, 70)
        assert maintenance.roll_up(one, "u1") == RolledUp(Offset(-1))
        assert maintenance.roll_up(one, "u1") is None
        grow(one, 140)
        assert maintenance.roll_up(one, "u1") == RolledUp(Offset(63))
        grow(one, 200)
        assert maintenance.roll_up(one, "u1") == RolledUp(Offset(127))
        grow(one, 210)
        expected = rollup.encode(one.group_state("u1"))
        snapshot = read.snapshot(one, U1, Timestamp(150))[0]
    assert kafka.logs.bounds(Topic("sw.u1.log"))[0] == 128
    with client(kafka) as one:
        one.open("u1")
        assert rollup.encode(one.group_state("u1")) == expected
        assert read.snapshot(one, U1, Timestamp(150))[0].equals(snapshot)
        grow(one, 260)
        assert maintenance.roll_up(one, "u1") == RolledUp(Offset(191))


def test_every_folder_checks_every_rollup() -> None:
    kafka = broker()
    with client(kafka) as one, client(kafka) as other:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        other.open("u1")
        grow(one, 70)
        body = rollup.encode(one.following.group("u1").retained[-1])
        false = rollup.encode(one.group_state("u1"))
        chunks = one.chunks.write(one.names("u1").data, rollup.cut(false), {})
        event = Rollup(upto=Offset(63), chunks=chunks, hash=rollup.hash_of(false))
        assert rollup.hash_of(body) != event.hash
        [outcome] = one.submit([("u1", event)])
        assert isinstance(outcome, Unavailable)
        assert "expected a rollup of the state at 63" in outcome.reason
        with pytest.raises(Corrupt, match="expected a rollup of the state at 63"):
            other.sync(U1)


def test_a_rollup_whose_chunks_are_gone_gives_way_to_the_one_before() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        grow(one, 70)
        maintenance.roll_up(one, "u1")
        grow(one, 140)
        maintenance.roll_up(one, "u1")
        newest = one.group_state("u1").rollups[-1]
        one.chunks.forget(one.names("u1").data, newest.chunks)
        expected = rollup.encode(one.group_state("u1"))
    with client(kafka) as one:
        one.open("u1")
        assert rollup.encode(one.group_state("u1")) == expected


def test_upkeep_waits_until_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LEAST_EVENTS", 100)
    with client(broker()) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        grow(one, 80)
        maintenance.keep_small(one)
        assert one.group_state("u1").rollups == ()
        grow(one, 130)
        maintenance.keep_small(one)
        assert [reference.upto for reference in one.group_state("u1").rollups] == [127]


def test_superseded_chunks_are_tombstoned_after_their_reclaim() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        append(one, 0, 10, rows("a", time=1))
        append(one, 10, 20, rows("b", time=11))
        old = list(one.state(U1).batches)
        new = one.write(U1, pa.concat_tables([rows("a", time=1), rows("b", time=11)]))
        swap = Replace(
            collection=U1,
            replaced=tuple(batch.name for batch in old),
            chunks=new,
            since=Timestamp(0),
        )
        one.submit([("u1", swap)])
        assert maintenance.collect(one, "u1") == tuple(
            sorted(
                (ref for batch in old for ref in batch.chunks),
                key=lambda ref: (ref.partition, ref.offset),
            )
        )
        assert maintenance.collect(one, "u1") == ()
        assert names(read.snapshot(one, U1, Timestamp(15))[0]) == ["a", "b"]
        with pytest.raises(Corrupt):
            one.chunks.fetch(one.data_topic(U1), old[0].chunks)


def test_many_groups_restart_at_once_though_a_rollup_of_one_is_gone() -> None:
    kafka = broker()
    groups = [f"g{number}" for number in range(5)]
    with client(kafka) as one:
        for group in groups:
            one.create(group, CollectionId(group), DESCRIPTION, Timestamp(0))
            for upto in (70, 140):
                idle = [Advance(Timestamp(time), Timestamp(time + 1)) for time in range(upto)]
                one.submit([(group, advance) for advance in idle])
                assert isinstance(maintenance.roll_up(one, group), RolledUp)
        newest = one.group_state("g3").rollups[-1]
        one.chunks.forget(one.names("g3").data, newest.chunks)
        expected = {group: rollup.encode(one.group_state(group)) for group in groups}
    with client(kafka) as one:
        one.open(*groups)
        assert {group: rollup.encode(one.group_state(group)) for group in groups} == expected


def false_rollup(one: Shards, state: State) -> Rollup:
    """A Rollup whose body is sound, and not what the records come to."""
    body = rollup.encode(replace(state, clock_ms=state.clock_ms + 1))
    chunks = one.chunks.write(one.names("u1").data, rollup.cut(body), {})
    return Rollup(upto=state.upto, chunks=chunks, hash=rollup.hash_of(body))


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_rollup_that_the_fold_refutes_is_not_believed_when_the_group_is_opened(
    before: int,
) -> None:
    """It used to be the truth for whoever opened the group after it."""
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        for number in range(before):
            grow(one, 70 * (number + 1))
            maintenance.roll_up(one, "u1")
        grow(one, 70 * (before + 1))
        state = one.following.group("u1").retained[-1]
        one.submit([("u1", false_rollup(one, state))])
    with client(kafka) as one, pytest.raises(Corrupt, match="expected a rollup of the state"):
        one.open("u1")


def test_a_rollup_that_does_not_count_confirms_nothing_and_harms_nothing() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        grow(one, 150)
        state = one.following.group("u1").retained[0]
        grow(one, 160)
        maintenance.roll_up(one, "u1")  # up to 127
        [outcome] = one.submit([("u1", false_rollup(one, state))])  # up to 63: it is too late
        assert not isinstance(outcome, RolledUp)
        expected = rollup.encode(one.group_state("u1"))
    with client(kafka) as one:
        one.open("u1")
        assert rollup.encode(one.group_state("u1")) == expected


def test_a_rollup_before_that_is_gone_leaves_the_furthest_to_be_believed() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        for upto in (70, 140, 210):
            grow(one, upto)
            maintenance.roll_up(one, "u1")
        before, _ = one.group_state("u1").rollups
        one.chunks.forget(one.names("u1").data, before.chunks)
        expected = rollup.encode(one.group_state("u1"))
    assert kafka.logs.bounds(Topic("sw.u1.log"))[0] > 0
    with client(kafka) as one:
        one.open("u1")
        assert rollup.encode(one.group_state("u1")) == expected
