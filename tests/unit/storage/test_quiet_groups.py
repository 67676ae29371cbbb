"""A quiet group is held in few bytes, and answers as if it were not."""

import gc
import random
import tracemalloc
from contextlib import nullcontext

import pytest

from streams.errors import Corrupt
from streams.ids import EventId, Offset, Timestamp, Topic
from streams.kafka.log import Entry
from streams.storage.client import quiet_groups
from streams.storage.client.group import Group, names_of
from streams.storage.client.quiet_groups import QUIET_S, QuietGroups
from streams.storage.client.shards import Shards
from streams.storage.log import event_codec, packing, rollup
from streams.storage.log.dedup_window import COMMAND, WINDOW
from streams.storage.log.events import Advance, Event, Reclaim, Rollup
from streams.storage.log.outcomes import RolledUp, Stale
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client

APPENDS = 1_800
LOG = Topic("sw.g.log")


def group() -> Group:
    return Group(names_of("sw", "g"), topic_id="g", uuid="g")


def entry(event: Event, offset: int) -> Entry:
    return Entry(LOG, Offset(offset), 1_000 + offset, event_codec.encode(event))


def event(id_: str, seen: int) -> Event:
    return Event(EventId(id_), "g", Offset(seen), Reclaim({0: max(seen, 0)}))


def grown(records_: int) -> Group:
    folded = group()
    for offset in range(records_):
        folded.fold(entry(event(f"e{offset}", offset - 1), offset))
    return folded


def pack(folded: Group) -> None:
    while folded.pack(nullcontext()):
        pass


def test_a_follower_holds_little_of_a_group_that_was_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It held 740 KiB for as long as the group was quiet."""
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        for time in range(APPENDS):
            append(one, time, time + 1)
    monkeypatch.setattr(quiet_groups, "QUIET_S", 0.0)

    def follow(other: Shards) -> None:
        other.open("u1")
        for _ in range(40):
            other.following.advance(0)
        gc.collect()

    with client(kafka) as warm, client(kafka) as other:
        follow(warm)  # what a process holds once is no matter of the group
        tracemalloc.start()
        try:
            follow(other)
            allocated, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert other.state(U1).upper.time == APPENDS
        assert (
            allocated < 96 * 1024
        )  # 43 KiB, and free lists of the interpreter, once a process


def test_the_outcomes_of_commands_are_held_once() -> None:
    """It held 63 KiB: those of the window beside the same among those that are kept longer."""
    chance = random.Random(7)
    grown(WINDOW)  # what a process holds once
    tracemalloc.start()
    try:
        folded = group()
        for offset in range(APPENDS):
            id_ = f"{COMMAND}{chance.randbytes(16).hex()}:0"
            folded.fold(entry(event(id_, offset - 1), offset))
        pack(folded)
        gc.collect()
        allocated, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert allocated < 50 * 1024


def test_a_group_that_was_packed_folds_as_one_that_was_not() -> None:
    chance = random.Random(7)
    continuous, often = group(), group()
    ids = [f"e{number}" for number in range(300)]
    outcomes: set[str] = set()
    for offset in range(WINDOW + 300):
        own = chance.choice(ids) if chance.random() < 0.3 else f"n{offset}"
        id_ = chance.choice(["", COMMAND]) + own
        seen = offset - chance.choice([1, 1, 2, 70, WINDOW - 1, WINDOW, WINDOW + 2])
        record = entry(event(id_, seen), offset)
        expected, actual = continuous.fold(record), often.fold(record)
        assert actual == expected
        assert expected is not None
        outcomes.add(type(expected[1]).__name__)
        if chance.random() < 0.01:
            pack(often)
            assert rollup.encode(often.state) == rollup.encode(continuous.state)
            newest, again = continuous.newest_retained(), often.newest_retained()
            if newest is not None and again is not None:
                assert rollup.encode(again) == rollup.encode(newest)
            assert (newest is None) == (again is None)
    assert outcomes == {"Reclaimed", Stale.__name__}


@pytest.mark.parametrize("upto", [255, 1_151, 1_215])
def test_a_packed_group_checks_every_rollup_that_counts(upto: int) -> None:
    end = 1_216
    honest = rollup.hash_of(rollup.encode(grown(upto + 1).state))
    for hash_, is_false in ((honest, False), ("0" * 64, True)):
        folded = grown(end)
        pack(folded)
        assert len(folded.retained) == 1
        body = Rollup(upto=Offset(upto), chunks=(), hash=hash_)
        record = entry(Event(EventId("r"), "g", Offset(end - 1), body), end)
        if is_false:
            with pytest.raises(Corrupt, match=f"expected a rollup of the state at {upto}"):
                folded.fold(record)
        else:
            outcome = folded.fold(record)
            assert outcome is not None
            assert isinstance(outcome[1], RolledUp)


def test_states_that_no_rollup_can_be_made_of_any_more_go() -> None:
    folded = grown(200)
    assert [state.upto for state in folded.retained] == [63, 127, 191]
    hash_ = rollup.hash_of(rollup.encode(folded.retained[1]))
    body = Rollup(upto=Offset(127), chunks=(), hash=hash_)
    folded.fold(entry(Event(EventId("r"), "g", Offset(199), body), 200))
    assert [state.upto for state in folded.retained] == [191]


def test_a_group_is_not_packed_again_for_a_few_records() -> None:
    folded = grown(200)
    pack(folded)
    state = folded.state
    folded.fold(
        entry(Event(EventId("a"), "g", Offset(199), Advance(Timestamp(0), Timestamp(1))), 200)
    )
    pack(folded)
    assert folded.packed == state.upto
    for offset in range(201, 200 + packing.WORTH):
        folded.fold(entry(event(f"e{offset}", offset - 1), offset))
    pack(folded)
    assert folded.packed == folded.state.upto


def test_what_is_folded_while_outcomes_are_packed_stays() -> None:
    folded = grown(63)

    class Lock(nullcontext[None]):
        """Other threads fold whenever it is free."""

        def __exit__(self, *_: object) -> None:
            offset = folded.state.upto + 1
            folded.fold(entry(event(f"e{offset}", offset - 1), offset))

    folded.pack(Lock())
    assert folded.packed == -1
    again = grown(folded.state.upto + 1)
    assert rollup.encode(folded.state) == rollup.encode(again.state)


def test_groups_are_due_when_they_have_not_moved_for_a_while() -> None:
    machine = QuietGroups()
    machine.moved(("a", "b"), 0.0)
    machine.moved(("a",), 1.0)
    assert machine.due(QUIET_S - 0.1) is None
    assert machine.due(QUIET_S) == "b"
    assert machine.due(QUIET_S) is None
    machine.again("b")
    assert machine.due(QUIET_S) == "b"
    machine.moved(("b",), QUIET_S)
    machine.again("b")  # it moved meanwhile
    assert machine.due(QUIET_S + 1.0) == "a"
    assert machine.due(QUIET_S + 1.0) is None
    assert machine.due(2 * QUIET_S) == "b"
